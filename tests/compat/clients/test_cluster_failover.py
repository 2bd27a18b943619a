"""P3, P5, C1, C2, R4, R6: every client on three Penstock brokers that are killed and return.

All clients run at the same time, each with a topic and a group of its own, while brokers are
killed: a leader, the coordinator of all groups, and the controller.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from penstock.client.admin.admin import Admin
from penstock.core.ids import TopicPartition
from tests.support.client.own_consumer import consumer_of, until
from tests.support.cluster.processes import GROUPS_LOG, ClusterView, ProcessCluster
from tests.support.kafka_clients.own_streams import own_streams
from tests.support.kafka_clients.streams import (
    PARTITIONS,
    Outcome,
    Stream,
    foreign_streams,
)

pytestmark = pytest.mark.long

STREAMS = {**foreign_streams(), **own_streams()}
REJOINING = {"kafkajs"}
"""Clients that join their group again when its coordinator is away, and then read again what they
had not committed."""
RECORDS = 10
"""How many more records of each partition every client must have sent and read to go on."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def view(cluster: ProcessCluster) -> Iterator[ClusterView]:
    with Admin(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=20) as admin:
        yield ClusterView(cluster, admin)


class Fleet:
    """The streams of all clients."""

    def __init__(self, streams: dict[str, Stream], view: ClusterView) -> None:
        self._streams = streams
        self._view = view

    def start(self, bootstrap: str, coordinator_id: int) -> None:
        for name, stream in self._streams.items():
            self._view.create_topic(name, (1, 2, 3), (2, 3, 1), (3, 1, 2))
            stream.start(bootstrap, name, self._view.group_coordinated_by(coordinator_id, name))

    def wait_for_flow(self) -> None:
        """Waits until every client has sent and read newer records of every partition."""
        expected = {
            name: [count + RECORDS for count in stream.progress().acknowledged]
            for name, stream in self._streams.items()
        }
        for name, counts in expected.items():
            has_reached = partial(_has_reached, self._streams[name], counts)
            self._view.wait_until(has_reached, f"{name} has sent and read {counts} records")

    def end(self) -> dict[str, Outcome]:
        with ThreadPoolExecutor(len(self._streams)) as pool:
            futures = {name: pool.submit(stream.end) for name, stream in self._streams.items()}
            return {name: future.result() for name, future in futures.items()}


def _has_reached(stream: Stream, expected: list[int]) -> bool:
    return all(
        min(acknowledged, position) >= count
        for acknowledged, position, count in zip(*stream.progress(), expected, strict=True)
    )


@pytest.fixture(scope="module")
def outcomes(cluster: ProcessCluster, view: ClusterView) -> dict[str, Outcome]:
    """Runs all clients while each of the brokers is killed once, and all are well again."""
    with consumer_of(cluster.bootstrap, group_id="creates-the-log") as consumer:
        consumer.committed([TopicPartition("any", 0)])
    view.wait_until(view.is_well, "the log of the groups")
    controller = view.controller_id()
    coordinator, leader = sorted(cluster.nodes.keys() - {controller})
    assert coordinator in view.leaders(GROUPS_LOG).values()
    with ExitStack() as stack:
        streams = {name: make() for name, make in STREAMS.items()}
        for stream in streams.values():
            stack.callback(stream.close)
        fleet = Fleet(streams, view)
        fleet.start(cluster.bootstrap, coordinator)
        fleet.wait_for_flow()
        for broker_id in (leader, coordinator, controller):
            if broker_id == controller:
                assert view.controller_id() == controller
            cluster.nodes[broker_id].kill()
            fleet.wait_for_flow()
            cluster.start()
            view.wait_until(view.is_well, f"broker {broker_id} in sync and leading again")
            fleet.wait_for_flow()
        return fleet.end()


@pytest.mark.parametrize("name", STREAMS)
def test_nothing_is_lost_doubled_or_reordered(
    cluster: ProcessCluster, view: ClusterView, outcomes: dict[str, Outcome], name: str
) -> None:
    """Acknowledged records are stored once, in order, and a group reads them without a gap."""
    outcome = outcomes[name]
    for partition in range(PARTITIONS):
        count = len(outcome.sent[partition])
        assert outcome.sent[partition] == list(range(count)), "the offset of every number"
        assert stored_values(cluster, name, partition) == [b"%d" % n for n in range(count)]
        records = outcome.read[partition]
        if name in REJOINING:
            records = sorted(set(records), key=records.index)
        assert records == [(number, number) for number in range(count)]
    [group] = [
        listing.group_id
        for listing in view.admin.list_groups()
        if listing.group_id.rpartition("-")[0] == name
    ]
    committed = view.admin.list_group_offsets([group])[group]
    assert {
        topic_partition.partition: item and item.offset
        for topic_partition, item in committed.items()
    } == {partition: len(offsets) for partition, offsets in enumerate(outcome.sent)}


def stored_values(cluster: ProcessCluster, topic: str, partition: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    place = TopicPartition(topic, partition)
    with consumer_of(cluster.bootstrap) as reader:
        reader.assign([place])
        [end] = reader.end_offsets([place]).values()
        until(
            lambda: reader.position(place) >= end,
            lambda: values.extend(record.value for record in reader.poll(0.5)),
        )
    return values
