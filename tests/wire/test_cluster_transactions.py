"""Transactions whose coordinator, partitions and groups are on different brokers (P4)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client import Consumer, Producer
from penstock.client.errors import KafkaError
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.cluster.brokers import RunningCluster, running_cluster

SPREAD = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
"""Each broker leads one of three partitions."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


@contextmanager
def producer(cluster: RunningCluster, transactional_id: str) -> Iterator[Producer]:
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id
    ) as client:
        client.init_transactions()
        yield client


def read(cluster: RunningCluster, topic: str, count: int) -> list[bytes]:
    """Returns the committed values of all partitions, once there are `count`."""
    values: list[bytes] = []
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])

        def poll() -> bool:
            values.extend(bytes(record.value or b"") for record in consumer.poll(0.2))
            return len(values) >= count

        cluster.wait_until(poll, f"{count} committed records in {topic}")
    return sorted(values)


def open_transactions(cluster: RunningCluster, topic: str) -> int:
    """Returns in how many partitions a transaction is open."""
    return sum(
        broker.call(
            lambda running: sum(
                replica.log.last_stable_offset < replica.log.high_watermark
                for replica in running.replicas
                if replica.partition.key.topic == topic and replica.partition.is_leader
            )
        )
        for broker in cluster.brokers.values()
    )


@pytest.mark.parametrize("name", ["first", "second", "third", "fourth"])
def test_markers_reach_the_leaders_of_all_partitions(cluster: RunningCluster, name: str) -> None:
    """The ids have different coordinators."""
    topic = f"all-{name}"
    cluster.create_topic(topic, *SPREAD)
    with producer(cluster, name) as client:
        for outcome in (b"committed", b"aborted", b"committed too"):
            client.begin_transaction()
            for partition in range(3):
                client.send(topic, outcome, partition=partition)
            if outcome == b"aborted":
                client.abort_transaction()
            else:
                client.commit_transaction()
    assert read(cluster, topic, 6) == [b"committed"] * 3 + [b"committed too"] * 3
    cluster.wait_until(lambda: not open_transactions(cluster, topic), "all markers are written")


def test_offsets_are_committed_with_a_transaction_on_other_brokers(
    cluster: RunningCluster,
) -> None:
    cluster.create_topic("offsets", *SPREAD)
    source = TopicPartition("offsets", 0)
    with producer(cluster, "with-offsets") as client:
        for number in range(4):
            client.begin_transaction()
            client.send("offsets", b"x", partition=1)
            with Consumer(
                bootstrap_servers=cluster.bootstrap_servers, group_id=f"group-{number}"
            ) as consumer:
                client.send_offsets_to_transaction({source: number + 1}, consumer.group_metadata())
                client.commit_transaction()
                cluster.wait_until(
                    lambda: consumer.committed([source])[source] is not None,
                    "the offset is committed",
                )


def test_a_newer_producer_fences_the_older_one(cluster: RunningCluster) -> None:
    cluster.create_topic("fenced", *SPREAD)
    with producer(cluster, "zombie") as old:
        old.begin_transaction()
        for partition in range(3):
            old.send("fenced", b"of the zombie", partition=partition).result(10)
        with producer(cluster, "zombie") as new:
            with pytest.raises(KafkaError):
                old.commit_transaction()
            new.begin_transaction()
            for partition in range(3):
                new.send("fenced", b"of the new one", partition=partition)
            new.commit_transaction()
    assert read(cluster, "fenced", 3) == [b"of the new one"] * 3


def test_a_marker_of_an_old_coordinator_is_refused(cluster: RunningCluster) -> None:
    """A coordinator that was paused while another one took over."""
    cluster.create_topic("old-coordinator", (1,))
    with producer(cluster, "from-two") as client:
        client.begin_transaction()
        client.send("old-coordinator", b"x", partition=0).result(10)
        client.commit_transaction()
    read(cluster, "old-coordinator", 1)
    producers = cluster.brokers[1].call(
        lambda broker: broker.replicas.find("old-coordinator", 0).log.producers.active_producers()
    )
    ((producer_id, entry),) = producers.items()
    topics = [WritableTxnMarkerTopic("old-coordinator", [0])]
    marker = WritableTxnMarker(producer_id, entry.producer_epoch, True, topics, -1)
    with cluster.connect(1) as client_of_leader:
        response = client_of_leader.request(WriteTxnMarkersRequest([marker]), 1)
    code = response.markers[0].topics[0].partitions[0].error_code
    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_transactions_continue_when_brokers_are_restarted(tmp_path: Path) -> None:
    """Each broker in turn: coordinators and leaders move, and every marker is written."""
    settings = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
    with running_cluster(tmp_path, brokers=3, settings=settings) as cluster:
        cluster.create_topic("moving", *SPREAD)
        committed = 0
        with producer(cluster, "restarts") as client:
            for broker_id in range(3):
                for is_up in (True, False):
                    client.begin_transaction()
                    for partition in range(3):
                        client.send("moving", b"%d" % committed, partition=partition)
                    if is_up:
                        cluster.stop(broker_id)
                    else:
                        cluster.start(broker_id)
                    client.commit_transaction()
                    committed += 1
                cluster.wait_on_all(
                    lambda broker: all(
                        len(record.isr) == 3
                        for key, record in broker.image.partitions.items()
                        if key.topic == "moving"
                    ),
                    "all replicas are in sync",
                )
        expected = sorted(b"%d" % number for number in range(committed) for _ in range(3))
        assert read(cluster, "moving", len(expected)) == expected
        cluster.wait_until(
            lambda: not open_transactions(cluster, "moving"), "all markers are written"
        )
