"""`penstock cluster export --to kafka`: Kafka's own broker serves everything, and we take it back.

Topics with their ids and settings, records, groups with their offsets, transactions, ACLs, SCRAM
users, quotas and producer ids (S1, P3, C2, X2, X3, X4).
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.broker.config.properties import load_broker_config
from penstock.broker.offline.stopped_store import existing_store, load_image
from penstock.client import Consumer, Producer
from penstock.client.admin import FeatureUpdate
from penstock.client.admin.admin import Admin
from penstock.client.admin.model_topics import NewTopic
from penstock.controller.metadata import ConfigKey, ConfigRecord
from penstock.core.ids import TopicPartition
from tests.support.broker.process import PenstockBroker
from tests.support.kafka.broker import KafkaBroker, KafkaParts, wait_until
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.metadata import change_everything, metadata_of

KAFKA_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SETTINGS = {
    "node.id": "1",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
KAFKA_METADATA_VERSION = 30
"""That of Kafka 4.3."""
COMPACTED = TopicPartition("compacted", 0)
GROWN = TopicPartition("grown", 3)


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("penstock")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def export(settings: Mapping[str, str], outputs: list[Path]) -> dict[str, object]:
    options = [part for output in outputs for part in ("--output", str(output))]
    options += [part for item in settings.items() for part in ("--set", "=".join(item))]
    done = penstock("cluster", "export", "--to", "kafka", "--json", *options)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def values_of(bootstrap: str, partition: TopicPartition) -> list[bytes | None]:
    """Returns the values of all records of a partition, of committed transactions only."""
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning([partition])
        values: list[bytes | None] = []
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(1)]
        return values


def next_values(bootstrap: str, protocol: str, count: int) -> list[bytes | None]:
    """Returns what a member of the group with the name of its protocol reads next; commits it."""
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=protocol,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["grown"])
        values: list[bytes | None] = []
        while len(values) < count:
            values += [record.value for record in consumer.poll(1)]
        consumer.commit()
        return values


def new_producer_id(bootstrap: str, transactional_id: str) -> int:
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        producer.init_transactions()
        [transaction] = admin.describe_transactions([transactional_id]).values()
        return transaction.producer_id


def write_records(bootstrap: str) -> None:
    """Makes records, some of them in a transaction."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(100):
            producer.send("grown", b"%d" % number, partition=3)
    with Producer(bootstrap_servers=bootstrap, transactional_id="committed") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(10):
            producer.send("compacted", b"v%d" % number, key=b"k%d" % number)
        producer.commit_transaction()


def stored_configs(settings: Mapping[str, str]) -> dict[ConfigKey, ConfigRecord]:
    config = load_broker_config(None, [f"{name}={value}" for name, value in settings.items()])
    with existing_store(config) as store:
        return load_image(store).configs


@pytest.mark.long
def test_kafka_serves_an_export_and_we_take_it_back(
    kafka_parts: KafkaParts, tmp_path: Path
) -> None:
    log_dirs = [tmp_path / "first", tmp_path / "second"]
    settings = {**SETTINGS, "log.dirs": ",".join(map(str, log_dirs))}
    broker = PenstockBroker(tmp_path / "penstock", settings)
    broker.start()
    with (
        Admin(bootstrap_servers=broker.bootstrap) as admin,
        Producer(bootstrap_servers=broker.bootstrap, transactional_id="open") as open_producer,
    ):
        change_everything(admin)
        admin.create_topics([NewTopic("kept", 1, 1, configs={"cleanup.policy": ""})])
        write_records(broker.bootstrap)
        open_producer.init_transactions()
        open_producer.begin_transaction()
        open_producer.send("compacted", b"open", key=b"open").result()
        for protocol in ("classic", "consumer"):
            first = next_values(broker.bootstrap, protocol, 100)
            assert len(first) == 100
        metadata = metadata_of(admin)
        broker.stop()
        open_producer.close(timeout=0)
    configs = stored_configs(settings)

    kafka = KafkaBroker(kafka_parts, tmp_path / "kafka", KAFKA_SETTINGS)
    outputs = [kafka.data, tmp_path / "kafka" / "second"]
    exported = export(settings, outputs)
    assert exported["left_out"] == []
    assert all(any(output.glob("*-[0-9]")) for output in outputs), "both have logs"
    kafka_dirs = ",".join(map(str, outputs))
    kafka = KafkaBroker(kafka_parts, tmp_path / "kafka", {**KAFKA_SETTINGS, "log.dirs": kafka_dirs})
    with kafka:
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            assert metadata_of(admin) == metadata
            check_records(kafka.bootstrap)
            [transaction] = admin.describe_transactions(["open"]).values()
            assert transaction.state.name == "ONGOING"
            assert new_producer_id(kafka.bootstrap, "kafka") > transaction.producer_id
            admin.create_topics([NewTopic("created-by-kafka", 1, 1)])
        with Producer(bootstrap_servers=kafka.bootstrap) as producer:
            for number in range(100, 110):
                producer.send("grown", b"%d" % number, partition=3)
        for protocol in ("classic", "consumer"):
            values = next_values(kafka.bootstrap, protocol, 10)
            assert values == [b"%d" % number for number in range(100, 110)]
        last_producer_id = new_producer_id(kafka.bootstrap, "open")  # aborts the transaction
        check_records(kafka.bootstrap)
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.update_features({"metadata.version": FeatureUpdate(KAFKA_METADATA_VERSION)})
        kafka.stop()
    assert not [line for line in kafka.log_lines("ERROR") if "ControllerApis" not in line]

    settings["log.dirs"] = kafka_dirs
    with PenstockBroker(tmp_path / "penstock", settings) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert metadata_of(admin) == metadata
            assert "created-by-kafka" in admin.list_topics()
        check_records(broker.bootstrap)
        assert new_producer_id(broker.bootstrap, "back") > last_producer_id
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("grown", b"last", partition=3)
        for protocol in ("classic", "consumer"):
            assert next_values(broker.bootstrap, protocol, 1) == [b"last"]
    assert stored_configs(settings) == configs, "with the keys of users"


def check_records(bootstrap: str) -> None:
    assert values_of(bootstrap, GROWN)[:100] == [b"%d" % number for number in range(100)]
    assert values_of(bootstrap, COMPACTED) == [b"v%d" % number for number in range(10)]


class ExportedCluster(KafkaCluster):
    """A Kafka cluster on the export of ours."""

    def __init__(self, parts: KafkaParts, directory: Path, exported: Path) -> None:
        super().__init__(parts, directory)
        self._exported = exported

    def _format(self) -> None:
        for node in self.nodes.values():
            (self._exported / f"node-{node.id}").rename(node.data)


@pytest.mark.long
def test_a_kafka_cluster_serves_the_export_of_several_brokers(
    kafka_parts: KafkaParts, tmp_path: Path
) -> None:
    """R1, R2: one snapshot for all; every replica has its log and gets in sync."""
    settings = {"node.id": "1", "log.dirs": str(tmp_path / "data")}
    assignments = {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (2, 1)}
    with PenstockBroker(tmp_path / "penstock", settings, brokers=3) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", assignments=assignments)])
            [topic] = admin.describe_topics(["t"]).values()
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=number % 4)
        with Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
            consumer.commit({TopicPartition("t", 3): 7})
    exported = export(settings, [tmp_path / "exported"])
    assert exported["left_out"] == []
    with (
        ExportedCluster(kafka_parts, tmp_path / "kafka", tmp_path / "exported") as kafka,
        Admin(bootstrap_servers=kafka.bootstrap) as admin,
    ):

        def is_in_sync() -> bool:
            [described] = admin.describe_topics(["t"]).values()
            return all(
                partition.leader is not None and set(partition.isr) == set(partition.replicas)
                for partition in described.partitions
            )

        wait_until(is_in_sync, "every replica in sync")
        [described] = admin.describe_topics(["t"]).values()
        assert described.topic_id == topic.topic_id
        assert {p.partition: p.replicas for p in described.partitions} == assignments
        for number in range(4):
            values = [b"%d" % value for value in range(number, 100, 4)]
            assert values_of(kafka.bootstrap, TopicPartition("t", number)) == values
        with Consumer(bootstrap_servers=kafka.bootstrap, group_id="g") as consumer:
            [committed] = consumer.committed([TopicPartition("t", 3)]).values()
            assert committed is not None
            assert committed.offset == 7
