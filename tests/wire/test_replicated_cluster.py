"""Three brokers: records reach all replicas, and the ISR follows the brokers (R2, R3)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.client.admin.admin import Admin
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)
from tests.support.broker.faults import watching
from tests.support.broker.simulated_followers import PendingProduce
from tests.support.client.cli import Cli
from tests.support.cluster.brokers import RunningCluster, running_cluster
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    fetch_request,
    produce_request,
    values_in,
)

LAG_MS = 1500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    settings = {"replica.lag.time.max.ms": str(LAG_MS), "min.insync.replicas": "2"}
    with watching(), running_cluster(tmp_path, brokers=3, settings=settings) as running:
        yield running


def isr_of(cluster: RunningCluster, broker_id: int, topic: str) -> set[int]:
    return set(
        cluster.brokers[broker_id].call(
            lambda broker: broker.image.partitions[TopicPartition(topic, 0)].isr
        )
    )


def leader_of(cluster: RunningCluster, topic: str) -> int:
    """The leader of a partition, as a broker knows it."""
    broker = next(iter(cluster.brokers.values()))
    return broker.call(lambda broker: broker.image.partitions[TopicPartition(topic, 0)].leader)


def high_watermark(cluster: RunningCluster, broker_id: int, topic: str) -> int:
    return cluster.brokers[broker_id].call(
        lambda broker: broker.replicas.find(topic, 0).log.high_watermark
    )


def test_records_are_replicated_and_committed(cluster: RunningCluster) -> None:
    cluster.create_topic("t", (0, 1, 2))
    with cluster.connect(0) as client:
        produces = [
            PendingProduce(client, "t", b"%d" % number, version=8 + number % 2)
            for number in range(20)
        ]
        responses = [produce.result() for produce in produces]
        assert [(response.error_code, response.base_offset) for response in responses] == [
            (0, number) for number in range(20)
        ]
        data = fetch_partition(client, "t")
        assert (data.high_watermark, len(values_in(data))) == (20, 20)
    cluster.wait_on_all(
        lambda broker: broker.replicas.find("t", 0).log.high_watermark == 20,
        "followers learn the high watermark",
    )
    for broker_id in (1, 2):
        with cluster.connect(broker_id) as client:
            data = fetch_partition(client, "t", version=12)
            assert values_in(data) == [b"%d" % number for number in range(20)]


def test_a_follower_leaves_the_isr_and_returns(cluster: RunningCluster) -> None:
    cluster.create_topic("t", (0, 1, 2))
    with cluster.connect(0) as client:
        assert PendingProduce(client, "t", b"a").result().error_code == 0
        cluster.stop(2)
        started = time.monotonic()
        assert PendingProduce(client, "t", b"b").result().error_code == 0
        assert time.monotonic() - started < 10
        cluster.wait_until(lambda: isr_of(cluster, 0, "t") == {0, 1}, "the ISR shrinks")
        cluster.start(2)
        cluster.wait_until(lambda: isr_of(cluster, 0, "t") == {0, 1, 2}, "the ISR grows")
        assert PendingProduce(client, "t", b"c").result().error_code == 0
    cluster.wait_until(lambda: high_watermark(cluster, 2, "t") == 3, "it has caught up")


def test_eligible_leader_replicas_are_shown_to_clients(cluster: RunningCluster) -> None:
    """KIP-966: by every broker, although only the controller decides about them."""
    cluster.create_topic("t", (0, 1), (0, 2))
    cluster.stop(1)
    cluster.wait_until(lambda: isr_of(cluster, 2, "t") == {0}, "the ISR shrinks")

    def described(broker_id: int) -> list[tuple[list[int], list[int]]]:
        request = DescribeTopicPartitionsRequest([DescribeTopicPartitionsTopicRequest("t")])
        with cluster.connect(broker_id) as client:
            (topic,) = client.request(request, 0).topics
        return [(p.eligible_leader_replicas, p.last_known_elr) for p in topic.partitions]

    for broker_id in (0, 2):
        assert described(broker_id) == [([1], []), ([], [])], broker_id
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        partitions = admin.describe_topics(["t"])["t"].partitions
        assert [p.eligible_leader_replicas for p in partitions] == [(1,), ()]
    table = Cli(cluster.bootstrap_servers)("topic", "describe", "t").output
    assert [line.split() for line in table.splitlines()][-2:] == [
        ["0", "0", "0,1", "0", "1", "-"],
        ["1", "0", "0,2", "0,2", "-", "-"],
    ]
    cluster.start(1)
    cluster.wait_until(lambda: isr_of(cluster, 2, "t") == {0, 1}, "the ISR grows")
    cluster.wait_until(
        lambda: all(described(broker_id) == [([], [])] * 2 for broker_id in cluster.brokers),
        "there are none",
    )


def test_another_broker_leads_with_all_committed_records(cluster: RunningCluster) -> None:
    cluster.create_topic("t", (0, 1, 2))
    with cluster.connect(0) as client:
        for number in range(5):
            assert PendingProduce(client, "t", b"%d" % number).result().error_code == 0
    cluster.stop(0)

    def leader() -> int:
        record = cluster.brokers[1].call(
            lambda broker: broker.image.partitions[TopicPartition("t", 0)]
        )
        return record.leader if record.leader != 0 else 0

    new_leader = cluster.wait_until(leader, "another leader")
    with cluster.connect(new_leader) as client:

        def produced() -> bool:
            response = PendingProduce(client, "t", b"next").result()
            assert response.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return bool(response.error_code == 0)

        cluster.wait_until(produced, "the new leader accepts records")
        values = values_in(fetch_partition(client, "t", version=12))
        assert values == [b"0", b"1", b"2", b"3", b"4", b"next"]
    cluster.start(0)
    cluster.wait_until(lambda: isr_of(cluster, new_leader, "t") == {0, 1, 2}, "it returns")


def test_a_broker_that_does_not_lead_names_the_leader_and_its_address(
    cluster: RunningCluster,
) -> None:
    """KIP-951: a follower and a broker without a replica, with Produce and Fetch."""
    cluster.create_topic("t", (0, 1))
    topic_id = cluster.brokers[0].call(lambda broker: broker.image.topics["t"].topic_id)
    host, _, port = cluster.brokers[0].bootstrap_servers.rpartition(":")

    def check(response: Any, partition: Any) -> None:
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = partition.current_leader
        assert (leader.leader_id, leader.leader_epoch) == (0, 0)
        [node] = response.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (0, host, int(port), None)

    for broker_id in (1, 2):
        with cluster.connect(broker_id) as client:
            for _ in range(2):  # the second time on the fast path
                response = client.request(produce_request("t", batch_of(b"a")), 12)
                check(response, response.responses[0].partition_responses[0])
            old = client.request(produce_request("t", batch_of(b"a")), 9)
            assert (old.node_endpoints, len(old.responses)) == ([], 1)
    with cluster.connect(2) as client:
        response = client.request(fetch_request({topic_id: {0: 0}}), 16)
        check(response, response.responses[0].partitions[0])
        response = client.request(fetch_request({topic_id: {0: 0}}), 15)
        assert response.node_endpoints == []
    with cluster.connect(0) as client:
        response = client.request(produce_request("t", batch_of(b"a")), 12)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert response.node_endpoints == []


def test_partitions_without_records_of_the_leaders_epoch_are_quiet(cluster: RunningCluster) -> None:
    """They are not read again for each fetch of a follower, which knows no later epoch."""
    cluster.create_topic("t", (0, 1, 2))
    with cluster.connect(0) as client:
        assert PendingProduce(client, "t", b"a").result().error_code == 0
    cluster.create_topic("empty", *([(0, 1, 2)] * 3))
    cluster.stop(0)
    cluster.wait_until(lambda: leader_of(cluster, "t") > 0, "another broker leads")
    cluster.start(0)

    def is_quiet(broker: Broker) -> bool:
        led = [replica for replica in broker.replicas if replica.partition.is_leader]
        sessions = broker.fetch_sessions._sessions.values()
        fetched = sum(len(session.partitions) for session in sessions)
        waiting = [session.changes for session in sessions if session.changes is not None]
        return fetched == 2 * len(led) and not any(changes.partitions for changes in waiting)

    def is_in_sync(broker: Broker) -> bool:
        return all(len(record.isr) == 3 for record in broker.image.partitions.values())

    cluster.wait_on_all(is_in_sync, "everything is in sync")
    cluster.wait_on_all(is_quiet, "all partitions are quiet")
