"""`penstock cluster status`: what is reported of partitions and replicas in each state."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from penstock.cli.admin import cluster_status
from penstock.cli.admin.cluster_status import ClusterStatus, read_status
from penstock.cli.output import Output
from penstock.client.admin import (
    AdminError,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ListedOffset,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicPartitionReplica,
)
from penstock.client.admin.admin import Admin
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node

NODES = (Node(0, "a", 1, "r"), Node(1, "b", 1, "r"))
PARTITIONS = (
    PartitionDescription(0, 0, 3, (0, 1), (0, 1)),
    PartitionDescription(1, 1, 3, (1, 2), (1,)),
    PartitionDescription(2, None, 3, (2,), (2,)),
)


class FakeAdmin:
    """A cluster whose broker 2 is down, and whose broker 1 does not respond to ListOffsets."""

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", NODES[0], NODES)

    def list_topics(self, *, include_internal: bool) -> dict[str, TopicListing]:
        return {"t": TopicListing("t", None, is_internal=False)}

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, None, False, PARTITIONS) for name in names}

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, names: Iterable[str]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        return {
            resource: {name: ConfigEntry(name, "2") for name in names} for resource in resources
        }

    def list_replica_end_offsets(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int
    ) -> dict[TopicPartitionReplica, int]:
        offsets = {
            TopicPartitionReplica("t", 0, 0): 12,
            TopicPartitionReplica("t", 0, 1): 9,
            TopicPartitionReplica("t", 1, 1): 5,
        }
        assert set(replicas) == set(offsets)
        lost = offsets.popitem()[0]
        failure = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late")
        raise AdminError("list_replica_end_offsets", {lost: failure}, offsets)

    def list_offsets(
        self, specs: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, ListedOffset]:
        assert set(specs) == {TopicPartition("t", 0), TopicPartition("t", 1)}
        return dict.fromkeys(specs, ListedOffset(9, -1, 3))


@pytest.fixture
def status() -> ClusterStatus:
    return read_status(cast(Admin, FakeAdmin()))


def test_problems_of_partitions(status: ClusterStatus) -> None:
    assert {
        partition.partition.partition: partition.problems for partition in status.partitions
    } == {
        0: [],
        1: ["under min ISR", "under-replicated"],
        2: ["offline", "under min ISR"],
    }


def test_offsets_and_lag_of_replicas(status: ClusterStatus) -> None:
    offsets = [
        (
            replica.partition.partition,
            replica.broker,
            replica.log_end_offset,
            replica.high_watermark,
            replica.lag,
        )
        for replica in status.replicas
    ]
    assert offsets == [
        (0, 0, 12, 9, 0),
        (0, 1, 9, 9, 3),
        (1, 1, None, 9, None),
        (1, 2, None, 9, None),
        (2, 2, None, None, None),
    ]


def test_the_table(status: ClusterStatus, capsys: pytest.CaptureFixture[str]) -> None:
    cluster_status._print(Output(as_json=False), status, every_replica=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[3:6] == [
        ["0", "a:1", "r", "yes", "up", "1", "1", "1"],
        ["1", "b:1", "r", "no", "up", "1", "2", "2"],
        ["2", "-", "-", "no", "down", "0", "2", "1"],
    ]
    text = "Partitions: 3, 1 under-replicated, 2 under min ISR, 1 offline"
    assert text.split() in lines
    assert ["t", "0", "1", "follower", "yes", "9", "9", "3"] in lines
    assert not any(line[:3] == ["t", "0", "0"] for line in lines), "it does not lag"


def test_the_document(status: ClusterStatus, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    cluster_status._print(Output(as_json=True), status, every_replica=False)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    counts = {name: document[name] for name in ("under_replicated", "under_min_isr", "offline")}
    assert counts == {"under_replicated": 1, "under_min_isr": 2, "offline": 1}
    assert document["partitions"][2] == {
        "topic": "t",
        "partition": 2,
        "leader": None,
        "replicas": [2],
        "isr": [2],
        "min_isr": 2,
        "offline_replicas": [],
        "problems": ["offline", "under min ISR"],
    }
    assert document["replicas"][1]["lag"] == 3
