"""ListOffsets: special timestamps, lookups by time and versions (Q5)."""

from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.broker.in_process import WireClient
from tests.support.protocol.requests import NOW, batch_of, make_topic, send_batch

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -1, -2, -3, -4, -5, -6
VERSIONS = range(1, 12)
TIMES = [NOW, NOW + 100, NOW + 50, NOW + 200]


def list_offset(
    client: WireClient,
    topic: str,
    timestamp: int,
    version: int,
    *,
    partition: int = 0,
    isolation: int = 0,
    leader_epoch: int = -1,
    max_num_offsets: int = 1,
) -> Any:
    partition_request = ListOffsetsPartition(partition, leader_epoch, timestamp)
    if version == 0:
        partition_request.max_num_offsets = max_num_offsets
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [partition_request])])
    if version >= 2:
        request.isolation_level = isolation
    response = client.request(request, version)
    assert [topic.name for topic in response.topics] == [topic]
    return response.topics[0].partitions[0]


def create_filled_topic(client: WireClient, topic: str, **configs: str) -> str:
    """Creates a topic with four records of different times and deletes the first record."""
    make_topic(client, topic, configs={name.replace("_", "."): v for name, v in configs.items()})
    for time in TIMES:
        assert send_batch(client, topic, batch_of(b"v" * 30, timestamp=time)).error_code == 0
    partition = DeleteRecordsPartition(0, 1)
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [partition])], 1000)
    assert client.request(request, 2).topics[0].partitions[0].error_code == 0
    return topic


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
def test_the_earliest_and_the_latest_offset(
    client: WireClient, version: int, isolation: int
) -> None:
    topic = create_filled_topic(client, f"ends-{version}-{isolation}")
    for timestamp, offset in ((EARLIEST, 1), (LATEST, 4)):
        result = list_offset(client, topic, timestamp, version, isolation=isolation)
        assert (result.error_code, result.offset, result.timestamp) == (0, offset, -1)
        assert result.leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize("version", [1, 4, 7, 11])
def test_an_offset_is_found_by_time(client: WireClient, version: int) -> None:
    """Finds the first record that is not older, at or after the log start offset."""
    topic = create_filled_topic(client, f"times-{version}")
    expected = [
        (0, 1, NOW + 100),
        (NOW, 1, NOW + 100),
        (NOW + 100, 1, NOW + 100),
        (NOW + 101, 3, NOW + 200),
        (NOW + 200, 3, NOW + 200),
        (NOW + 201, -1, -1),
        (2**63 - 1, -1, -1),
    ]
    for timestamp, offset, time in expected:
        result = list_offset(client, topic, timestamp, version)
        assert (result.error_code, result.offset, result.timestamp) == (0, offset, time)
        if version >= 4:
            assert result.leader_epoch == (0 if offset >= 0 else -1)


@pytest.mark.parametrize("version", [1, 6, 7, 11])
def test_the_offset_of_the_largest_timestamp(client: WireClient, version: int) -> None:
    topic = create_filled_topic(client, f"max-{version}")
    result = list_offset(client, topic, MAX_TIMESTAMP, version)
    if version < 7:
        assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    else:
        assert (result.error_code, result.offset, result.timestamp) == (0, 3, NOW + 200)


@pytest.mark.parametrize(
    ("timestamp", "first_version", "offset"),
    [(EARLIEST_LOCAL, 8, 1), (LATEST_TIERED, 9, -1), (PENDING, 11, -1)],
)
@pytest.mark.parametrize("version", [1, 7, 8, 9, 11])
def test_special_timestamps_of_tiered_storage(
    client: WireClient, timestamp: int, first_version: int, offset: int, version: int
) -> None:
    """Without tiered storage, the earliest local offset is the log start offset."""
    topic = create_filled_topic(client, f"tiered{timestamp}-{version}")
    result = list_offset(client, topic, timestamp, version)
    if version < first_version:
        assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    else:
        assert (result.error_code, result.offset) == (0, offset)


@pytest.mark.parametrize("version", [1, 7, 11])
def test_offsets_of_an_empty_partition(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"empty-{version}")
    assert list_offset(client, topic, EARLIEST, version).offset == 0
    assert list_offset(client, topic, LATEST, version).offset == 0
    result = list_offset(client, topic, NOW, version)
    assert (result.error_code, result.offset, result.timestamp) == (0, -1, -1)
    if version >= 7:
        assert list_offset(client, topic, MAX_TIMESTAMP, version).offset == -1


@pytest.mark.parametrize("version", [0, 1, 5, 11])
def test_unknown_partitions_are_rejected(client: WireClient, version: int) -> None:
    make_topic(client, topic := f"known-{version}")
    for name, partition in (("unknown", 0), (topic, 1), (topic, -1)):
        result = list_offset(client, name, LATEST, version, partition=partition)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert result.offset == -1


@pytest.mark.parametrize("version", [4, 7, 11])
def test_a_newer_leader_epoch_is_rejected(client: WireClient, version: int) -> None:
    topic = create_filled_topic(client, f"epochs-{version}")
    assert list_offset(client, topic, LATEST, version, leader_epoch=0).error_code == 0
    result = list_offset(client, topic, LATEST, version, leader_epoch=1)
    assert result.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [1, 11])
def test_an_unknown_special_timestamp_is_rejected(client: WireClient, version: int) -> None:
    topic = create_filled_topic(client, f"nothing-{version}")
    assert list_offset(client, topic, -99, version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [1, 7, 11])
def test_an_offset_is_found_by_time_in_many_segments(client: WireClient, version: int) -> None:
    """Every batch is in a segment of its own."""
    topic = f"segments-{version}"
    make_topic(client, topic, configs={"segment.bytes": "1048576", "index.interval.bytes": "1"})
    for number in range(4):
        batch = batch_of(b"x" * 600_000, timestamp=NOW + number * 1000)
        assert send_batch(client, topic, batch).error_code == 0
    for number in range(4):
        result = list_offset(client, topic, NOW + number * 1000 - 1, version)
        assert (result.offset, result.timestamp) == (number, NOW + number * 1000)


def test_version_0_returns_the_offsets_of_segments(client: WireClient) -> None:
    """The oldest version returns the base offsets of segments, newest first, up to a limit."""
    topic = "version-0"
    make_topic(client, topic, configs={"segment.bytes": "1048576"})
    for number in range(3):
        batch = batch_of(b"x" * 600_000, timestamp=NOW + number * 1000)
        assert send_batch(client, topic, batch).error_code == 0
    result = list_offset(client, topic, LATEST, 0, max_num_offsets=10)
    assert result.old_style_offsets == [3, 2, 1, 0]
    assert list_offset(client, topic, LATEST, 0, max_num_offsets=1).old_style_offsets == [3]
    assert list_offset(client, topic, EARLIEST, 0, max_num_offsets=10).old_style_offsets == [0]
    assert list_offset(client, topic, EARLIEST, 0, max_num_offsets=0).old_style_offsets == []


def test_several_partitions_in_one_request(client: WireClient) -> None:
    make_topic(client, "several", 3)
    partition_requests = [ListOffsetsPartition(index, timestamp=LATEST) for index in (2, 0, 9)]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("several", partition_requests)])
    partitions = client.request(request, 7).topics[0].partitions
    assert [(partition.partition_index, partition.error_code) for partition in partitions] == [
        (2, 0),
        (0, 0),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
