"""Every client that has transactions."""

from collections.abc import Callable, Mapping

from tests.support.kafka_clients.aiokafka_transactions import AiokafkaTransactions
from tests.support.kafka_clients.confluent_transactions import ConfluentTransactions
from tests.support.kafka_clients.kafka_python_transactions import KafkaPythonTransactions
from tests.support.kafka_clients.program import franz_go, java_client, java_versions, kafkajs
from tests.support.kafka_clients.program_transactions import JavaTransactions, ProgramTransactions
from tests.support.kafka_clients.transactional import TransactionalClient

JAVA = [f"java-{version}" for version in java_versions()]


def _java(version: str) -> Callable[[], JavaTransactions]:
    make = java_client(version)
    return lambda: JavaTransactions(make(), ends_by_version_2=not version.startswith("3."))


TRANSACTIONAL: Mapping[str, Callable[[], TransactionalClient]] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
    "kafkajs": lambda: ProgramTransactions(kafkajs(), retries_the_end=False),
    "franz-go": lambda: ProgramTransactions(franz_go(), ends_by_version_2=True),
    **{f"java-{version}": _java(version) for version in java_versions()},
}
