"""The common Kafka clients behind one interface.

`ALL` contains them. Those written in Python run in this process; kcat runs once for each operation;
the others are programs that run one job after the other (see `program`).
"""

from collections.abc import Callable, Mapping

from tests.support.kafka_clients.aiokafka_client import AiokafkaClient
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.kafka_python_client import KafkaPythonClient
from tests.support.kafka_clients.kcat import KcatClient
from tests.support.kafka_clients.model import Client
from tests.support.kafka_clients.program import franz_go, java_client, java_versions, kafkajs

ALL: Mapping[str, Callable[[], Client]] = {
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
    "kcat": KcatClient,
    "kafkajs": kafkajs,
    "franz-go": franz_go,
    **{f"java-{version}": java_client(version) for version in java_versions()},
}
