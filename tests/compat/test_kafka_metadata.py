"""The log directory of a stopped Kafka node in KRaft mode is served with everything in it.

Topics keep their ids and settings; ACLs, SCRAM users, quotas, feature levels, groups' offsets and
producer ids are taken over (S1, P3, C2, X2, X3, X4).
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.broker.kraft.metadata_log import read_metadata
from penstock.broker.kraft.snapshot import build_snapshot, snapshot_name
from penstock.client import Consumer, Producer
from penstock.client.admin.admin import Admin
from penstock.client.admin.model_topics import NewTopic
from penstock.core.ids import TopicPartition
from penstock.records.batch import read_header
from tests.support.broker.process import BrokerError, PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.kafka.broker import KafkaBroker, KafkaParts, wait_until
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.metadata import change_everything, metadata_of

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
OWN_SETTINGS = {
    "node.id": "1",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class StoppedKafka(NamedTuple):
    data: Path
    metadata: dict[str, object]
    last_producer_id: int


@pytest.fixture(scope="module")
def kafka(
    kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoppedKafka]:
    with KafkaBroker(kafka_parts, tmp_path_factory.mktemp("kafka"), SETTINGS) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            change_everything(admin)
            with Producer(bootstrap_servers=broker.bootstrap, transactional_id="t") as producer:
                producer.init_transactions()
                producer.begin_transaction()
                for number in range(10):
                    producer.send("compacted", b"v%d" % number, key=b"k%d" % number)
                producer.commit_transaction()
            with Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
                consumer.commit({TopicPartition("compacted", 0): 4})
            metadata = metadata_of(admin)
            [transaction] = admin.describe_transactions(["t"]).values()
        broker.stop()
        assert list((broker.data / "__cluster_metadata-0").glob("0*.checkpoint")), "no snapshot"
        yield StoppedKafka(broker.data, metadata, transaction.producer_id)


def without_times(snapshot: bytes) -> list[bytes]:
    """Returns the batches of a snapshot with zeros instead of timestamps and checksums."""
    batches = []
    position = 0
    while position < len(snapshot):
        size = read_header(snapshot, position).size
        batch = bytearray(snapshot[position : position + size])
        batch[17:21], batch[27:43] = bytes(4), bytes(16)
        batches.append(bytes(batch))
        position += size
    return batches


def test_our_snapshots_are_those_of_kafka_storage(kafka: StoppedKafka, tmp_path: Path) -> None:
    """`bootstrap.checkpoint`, which `kafka-storage format` has written, byte for byte."""
    theirs = (kafka.data / "bootstrap.checkpoint").read_bytes()
    (tmp_path / snapshot_name(0, 0)).write_bytes(theirs)
    ours = b"".join(build_snapshot(list(read_metadata(tmp_path)), timestamp=0))
    assert without_times(ours) == without_times(theirs)


def test_what_will_be_taken_over_is_shown_before(kafka: StoppedKafka) -> None:
    survey = Cli().json("cluster", "adopt", "--set", "node.id=1", "--set", f"log.dirs={kafka.data}")
    assert {(topic["topic"], topic["source"]) for topic in survey["topics"]} == {
        (name, "kafka")
        for name in ("__consumer_offsets", "__transaction_state", "compacted", "created-again")
    } | {("grown", "kafka")}
    [compacted] = [topic for topic in survey["topics"] if topic["topic"] == "compacted"]
    assert compacted["settings"] == {"cleanup.policy": "compact", "segment.ms": "1234567"}
    assert (survey["acls"], survey["users_and_quotas"]) == (2, 2)
    assert not (kafka.data / "penstock-metadata.db").exists()


def test_the_metadata_of_a_stopped_kafka_is_taken_over(kafka: StoppedKafka, tmp_path: Path) -> None:
    data = shutil.copytree(kafka.data, tmp_path / "data")
    settings = {**OWN_SETTINGS, "log.dirs": str(data)}
    with (
        PenstockBroker(tmp_path / "broker", settings) as broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        assert metadata_of(admin) == kafka.metadata
        with Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
            partition = TopicPartition("compacted", 0)
            committed = consumer.committed([partition])[partition]
            assert committed is not None
            assert committed.offset == 4
            consumer.assign([partition])
            consumer.seek(partition, 0)
            values: list[bytes | None] = []
            while len(values) < 10:
                values += [record.value for record in consumer.poll(1)]
            assert values == [b"v%d" % number for number in range(10)]
        with Producer(bootstrap_servers=broker.bootstrap, transactional_id="new") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("compacted", b"v", key=b"k")
            producer.commit_transaction()
        [transaction] = admin.describe_transactions(["new"]).values()
        assert transaction.producer_id > kafka.last_producer_id


def test_metadata_that_is_damaged_or_outdated_is_not_taken_over(
    kafka: StoppedKafka, tmp_path: Path
) -> None:
    """However often the broker is started, it gives no log another name."""
    data = shutil.copytree(kafka.data, tmp_path / "data")
    broker = PenstockBroker(tmp_path, OWN_SETTINGS)
    snapshot = max((data / "__cluster_metadata-0").glob("*.checkpoint"))
    content = snapshot.read_bytes()
    snapshot.write_bytes(content[:-1] + b"!")
    for _ in range(2):
        with pytest.raises(BrokerError, match=f"{snapshot} cannot be read"):
            broker.start()
    snapshot.write_bytes(content)
    with broker:
        pass
    (data / "penstock-metadata.db").unlink()
    for _ in range(2):
        with pytest.raises(BrokerError, match="was taken over before, so that it is outdated"):
            broker.start()
    assert not list(data.glob("*-stray"))


@pytest.mark.long
def test_the_nodes_of_a_stopped_cluster_become_brokers(
    kafka_parts: KafkaParts, tmp_path: Path
) -> None:
    with KafkaCluster(kafka_parts, tmp_path / "kafka") as kafka:
        with (
            Admin(bootstrap_servers=kafka.bootstrap) as admin,
            Producer(bootstrap_servers=kafka.bootstrap) as producer,
        ):
            assignments = {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (2, 1)}
            configs = {"retention.ms": "-1", "min.insync.replicas": "1"}
            admin.create_topics([NewTopic("t", assignments=assignments, configs=configs)])
            for number in range(100):
                producer.send("t", b"v%d" % number, partition=number % 4)
            producer.flush()
            [topic] = admin.describe_topics(["t"]).values()
        for node in kafka.nodes.values():
            node.kill()  # without a majority of controllers, Kafka does not stop cleanly
        directories = {node.id: node.data for node in kafka.nodes.values()}
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper, ExitStack() as stack:
        brokers = [
            stack.enter_context(
                PenstockBroker(
                    tmp_path / f"broker-{node_id}",
                    {
                        "node.id": str(node_id),
                        "log.dirs": str(directory),
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "zookeeper.connect": f"{zookeeper.address}/migrated",
                    },
                )
            )
            for node_id, directory in sorted(directories.items(), reverse=True)
        ]
        admin = stack.enter_context(Admin(bootstrap_servers=brokers[0].bootstrap))

        def is_in_sync() -> bool:
            [described] = admin.describe_topics(["t"]).values()
            return all(
                partition.leader is not None and set(partition.isr) == set(partition.replicas)
                for partition in described.partitions
            )

        wait_until(is_in_sync, "every replica in sync")
        [migrated] = admin.describe_topics(["t"]).values()
        assert migrated.topic_id == topic.topic_id
        assert {p.partition: p.replicas for p in migrated.partitions} == assignments
        with Consumer(
            bootstrap_servers=brokers[0].bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(4)])
            values: set[bytes | None] = set()
            while len(values) < 100:
                values.update(record.value for record in consumer.poll(1))
            assert values == {b"v%d" % number for number in range(100)}
