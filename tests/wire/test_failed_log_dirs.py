"""A log directory that fails while its broker runs: its leaders move, its followers leave the ISR.

The failure is a real one: the directory is replaced by a file, so that the next checkpoint fails.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.client import Producer
from penstock.client.admin.admin import Admin
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker.faults import watching
from tests.support.broker.in_process import WireClient
from tests.support.broker.simulated_followers import PendingProduce
from tests.support.client.cli import Cli
from tests.support.cluster.brokers import RunningCluster, running_cluster
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.protocol.requests import fetch_partition, values_in

SETTINGS = {
    "min.insync.replicas": "2",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "zookeeper.session.timeout.ms": "6000",
}
PARTITIONS = 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with watching(), running_cluster(tmp_path, brokers=3, settings=SETTINGS, log_dirs=2) as running:
        running.create_topic("t", *([(1, 2, 0)] * PARTITIONS))
        yield running


@contextmanager
def failed_dir(cluster: RunningCluster, broker_id: int) -> Iterator[set[int]]:
    """Replaces the second directory of a broker by a file; yields the partitions in it."""
    directory = cluster.log_dirs(broker_id)[1]
    partitions = {int(path.name.rpartition("-")[2]) for path in directory.glob("t-*")}
    moved = directory.with_name("moved")
    directory.rename(moved)
    directory.write_text("")
    try:
        yield partitions
    finally:
        if broker_id in cluster.brokers:
            cluster.stop(broker_id)
        directory.unlink()
        moved.rename(directory)


def partitions_of(cluster: RunningCluster, broker_id: int) -> dict[int, tuple[int, set[int]]]:
    """The leader and the ISR of each partition, as a broker knows them."""

    def read(broker: Broker) -> dict[int, tuple[int, set[int]]]:
        records = broker.image.partitions_of("t")
        return {record.partition: (record.leader, set(record.isr)) for record in records}

    return cluster.brokers[broker_id].call(read)


def has_moved(cluster: RunningCluster, failed: set[int], broker_id: int) -> bool:
    """Whether all brokers know that the failed replicas are offline, and only those."""
    for observer in cluster.brokers:
        for number, (leader, isr) in partitions_of(cluster, observer).items():
            if (number in failed) != (broker_id not in isr) or leader not in isr:
                return False
    return True


def produce(client: WireClient, partition: int) -> bool:
    """Whether the broker accepts a record with acks=all, as the leader."""
    code = PendingProduce(client, "t", b"next", partition=partition).result().error_code
    assert code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return bool(code == 0)


def test_another_broker_leads_the_partitions_of_a_failed_directory(
    cluster: RunningCluster,
) -> None:
    with failed_dir(cluster, 1) as failed:
        assert 0 < len(failed) < PARTITIONS, "both directories are used"
        cluster.wait_until(lambda: has_moved(cluster, failed, 1), "other brokers lead")
        leaders = {n: leader for n, (leader, _) in partitions_of(cluster, 0).items()}
        assert {n for n, leader in leaders.items() if leader != 1} == failed
        for number, leader in leaders.items():
            with cluster.connect(leader) as client:
                produced = partial(produce, client, number)
                cluster.wait_until(produced, "acks=all is accepted")
    cluster.start(1)
    cluster.wait_until(lambda: has_moved(cluster, set(), 1), "its replicas are in sync again")


def test_offline_replicas_are_shown_to_clients(cluster: RunningCluster) -> None:
    with failed_dir(cluster, 1) as failed:
        cluster.wait_until(lambda: has_moved(cluster, failed, 1), "other brokers lead")
        expected = {number: [1] if number in failed else [] for number in range(PARTITIONS)}
        for broker_id in cluster.brokers:
            with cluster.connect(broker_id) as client:
                metadata = client.request(MetadataRequest([MetadataRequestTopic(name="t")]), 9)
                topics = [DescribeTopicPartitionsTopicRequest("t")]
                described = client.request(DescribeTopicPartitionsRequest(topics), 0)
            for topic in (*metadata.topics, *described.topics):
                offline = {p.partition_index: p.offline_replicas for p in topic.partitions}
                assert offline == expected, broker_id
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            topic = admin.describe_topics(["t"])["t"]
            assert {p.partition: list(p.offline_replicas) for p in topic.partitions} == expected
        status = Cli(cluster.bootstrap_servers).json("cluster", "status", "--topic", "t")
        assert {p["partition"]: p["offline_replicas"] for p in status["partitions"]} == expected
        table = Cli(cluster.bootstrap_servers)("cluster", "status", "--topic", "t").output
        assert "OFFLINE REPLICAS" in table
    cluster.start(1)
    cluster.wait_until(lambda: has_moved(cluster, set(), 1), "its replicas are in sync again")
    for broker_id in cluster.brokers:
        assert not cluster.brokers[broker_id].call(lambda broker: broker.image.offline_replicas)


def test_a_producer_continues_while_directories_fail(cluster: RunningCluster) -> None:
    """Leaders first, then followers: of both, the records stay complete."""
    stopping = threading.Event()
    offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:

        def produce() -> None:
            count = 0
            while not stopping.is_set() or count % PARTITIONS:
                number, value = count % PARTITIONS, b"%d" % count
                record = producer.send("t", value, partition=number).result(60)
                offsets[number].append(record.offset)
                values[number].append(value)
                count += 1

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            with failed_dir(cluster, 1) as failed:
                cluster.wait_until(lambda: has_moved(cluster, failed, 1), "other brokers lead")
                done = len(offsets[-1])
                cluster.wait_until(lambda: len(offsets[-1]) > done + 5, "the producer continues")
            cluster.start(1)
            cluster.wait_until(lambda: has_moved(cluster, set(), 1), "everything is in sync")
            with failed_dir(cluster, 0) as failed:
                cluster.wait_until(lambda: has_moved(cluster, failed, 0), "followers left the ISR")
                done = len(offsets[-1])
                cluster.wait_until(lambda: len(offsets[-1]) > done + 5, "the producer continues")
        finally:
            stopping.set()
            thread.join(120)
    assert not thread.is_alive()
    for number in range(PARTITIONS):
        assert offsets[number] == list(range(len(offsets[number])))
        leader = partitions_of(cluster, 1)[number][0]
        with cluster.connect(leader) as client:
            data = fetch_partition(client, "t", partition=number, version=12)
            assert values_in(data) == values[number]


def test_a_single_replica_is_offline_until_its_directory_is_back(cluster: RunningCluster) -> None:
    cluster.create_topic("single", *([(1,)] * 4))
    directory = cluster.log_dirs(1)[1]
    keys = {TopicPartition("single", int(p.name[-1])) for p in directory.glob("single-*")}

    def leaderless() -> set[TopicPartition]:
        return cluster.brokers[0].call(
            lambda broker: {
                record.key for record in broker.image.partitions_of("single") if record.leader == -1
            }
        )

    with failed_dir(cluster, 1) as failed:
        cluster.wait_until(lambda: leaderless() == keys, "its partitions have no leader")
        cluster.wait_until(lambda: has_moved(cluster, failed, 1), "other brokers lead")
    cluster.start(1)
    cluster.wait_until(lambda: not leaderless(), "its partitions have a leader again")


def reassign(cluster: RunningCluster, numbers: set[int], replicas: list[int]) -> None:
    """Reassigns partitions, and waits until they have these replicas, all of them in sync."""
    partitions = [ReassignablePartition(number, replicas) for number in numbers]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", partitions)])
    with cluster.connect(0) as client:
        assert client.request(request, 0).error_code == 0

    def has_ended() -> bool:
        states = partitions_of(cluster, 0)
        return all(states[number][1] == set(replicas) for number in numbers)

    cluster.wait_until(has_ended, f"the replicas are {replicas}")


def test_a_replica_is_assigned_again_while_its_directory_is_offline(
    cluster: RunningCluster,
) -> None:
    """R8: its log is in two directories when the first one is repaired, and one of them is used."""
    for number in range(PARTITIONS):
        with cluster.connect(1) as client:
            assert produce(client, number)
    with failed_dir(cluster, 1) as failed:
        cluster.wait_until(lambda: has_moved(cluster, failed, 1), "other brokers lead")
        reassign(cluster, failed, [2, 0])
        reassign(cluster, failed, [2, 0, 1])
        for number in failed:
            with cluster.connect(partitions_of(cluster, 0)[number][0]) as client:
                cluster.wait_until(partial(produce, client, number), "acks=all is accepted")
    cluster.start(1)
    cluster.wait_until(lambda: has_moved(cluster, set(), 1), "its replicas are in sync again")
    strays = [
        path.name for path in cluster.log_dirs(1)[1].iterdir() if path.name.endswith("-stray")
    ]
    assert len(strays) == len(failed)


def test_failed_directories_are_reported_through_zookeeper(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        settings = {**SETTINGS, "zookeeper.connect": f"{server.address}/dirs"}
        with (
            watching(),
            running_cluster(tmp_path, brokers=3, settings=settings, log_dirs=2) as cluster,
        ):
            cluster.create_topic("t", *([(1, 2, 0)] * PARTITIONS))
            with failed_dir(cluster, 1) as failed:
                cluster.wait_until(lambda: has_moved(cluster, failed, 1), "other brokers lead")
            cluster.start(1)
            cluster.wait_until(lambda: has_moved(cluster, set(), 1), "it is in sync again")
