"""DeleteRecords and OffsetForLeaderEpoch over the wire (S4, R4)."""

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.protocol.requests import fetch_partition, make_topic, produce_values, values_in


def delete(
    client: WireClient, topic: str, offset: int, version: int = 2, partition: int = 0
) -> tuple[ErrorCode, int]:
    """Returns the error code and the log start offset."""
    deletion = DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])
    (response,) = client.request(DeleteRecordsRequest([deletion], 1000), version).topics
    assert response.name == topic
    (result,) = response.partitions
    return ErrorCode(result.error_code), result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleting_records_moves_the_log_start_offset(client: WireClient, version: int) -> None:
    topic = f"later-{version}"
    make_topic(client, topic)
    for value in (b"a", b"b", b"c"):
        produce_values(client, topic, value)
    assert delete(client, topic, 2, version) == (0, 2)
    assert fetch_partition(client, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    result = fetch_partition(client, topic, 2)
    assert (result.log_start_offset, values_in(result)) == (2, [b"c"])
    # Offsets that were already deleted have no effect; the high watermark is the maximum.
    assert delete(client, topic, 1, version) == (0, 2)
    assert delete(client, topic, 4, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, topic, -2, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, topic, -1, version) == (0, 3)
    assert produce_values(client, topic, b"d") == 3


@pytest.mark.parametrize("version", [0, 1, 2])
def test_invalid_deletions_are_rejected(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"compacted-{version}", configs={"cleanup.policy": "compact"})
    assert delete(client, topic, 0, version) == (ErrorCode.POLICY_VIOLATION, -1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(client, "unknown", 0, version) == (unknown, -1)
    assert delete(client, topic, 0, version, partition=5) == (unknown, -1)


def test_the_log_start_offset_survives_a_restart(tmp_path: Path) -> None:
    """S4."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        produce_values(client, "t", b"a", b"b")
        assert delete(client, "t", 1) == (0, 1)
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert fetch_partition(client, "t", 1).log_start_offset == 1
        assert fetch_partition(client, "t", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def end_of(
    client: WireClient,
    topic: str,
    epoch: int,
    version: int,
    *,
    current: int = -1,
    partition: int = 0,
) -> tuple[int, int, int]:
    """Returns the error code, leader epoch and end offset."""
    partition_request = OffsetForLeaderPartition(partition, current, epoch)
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [partition_request])])
    (response,) = client.request(request, version).topics
    assert response.topic == topic
    (result,) = response.partitions
    assert result.partition == partition
    return result.error_code, result.leader_epoch, result.end_offset


def leader_epoch(client: WireClient, topic: str) -> int:
    response: Any = client.request(MetadataRequest([MetadataRequestTopic(name=topic)]), 9)
    epoch: int = response.topics[0].partitions[0].leader_epoch
    return epoch


def test_every_restart_begins_a_leader_epoch(tmp_path: Path) -> None:
    """R4: every start of the broker begins a new epoch, whose end offset is stored."""
    epochs: list[int] = []
    for _ in range(3):
        with running_broker(tmp_path) as broker, broker.connect() as client:
            if not epochs:
                make_topic(client, "t")
            epochs.append(leader_epoch(client, "t"))
            produce_values(client, "t", b"a", b"b")
    assert epochs == sorted(set(epochs))
    with running_broker(tmp_path) as broker, broker.connect() as client:
        for version in range(5):
            for number, epoch in enumerate(epochs, 1):
                returned_epoch = epoch if version >= 1 else -1
                assert end_of(client, "t", epoch, version) == (0, returned_epoch, 2 * number)
        assert end_of(client, "t", 1000, 4) == (0, -1, -1)


@pytest.mark.parametrize("version", range(5))
def test_the_end_offsets_of_epochs(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"ends-{version}")
    produce_values(client, topic, b"a", b"b", b"c")
    assert end_of(client, topic, 0, version) == (0, 0 if version >= 1 else -1, 3)
    assert end_of(client, topic, 5, version) == (0, -1, -1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_of(client, "unknown", 0, version) == (unknown, -1, -1)
    assert end_of(client, topic, 0, version, partition=3) == (unknown, -1, -1)
    if version >= 2:
        newer = end_of(client, topic, 0, version, current=3)
        assert newer == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert end_of(client, topic, 0, version, current=0)[0] == 0
