"""Fetch versions 0 to 3: batches are converted to the message formats v0 and v1 (C1, C2, P6)."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.replica import down_conversion
from penstock.broker.replica.down_conversion import DownConversion
from penstock.broker.replica.fetch_sessions import CachedPartition
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchResponse,
)
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import first_entry
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.records.down_convert import MessageSet, down_convert
from penstock.records.record import Record
from penstock.storage.disk import OsDisk, OsFile
from penstock.storage.segment.log_segment import LogSlice
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.requests import (
    NOW,
    batch_of,
    fetch_partition,
    fetch_request,
    make_topic,
    partitions_of,
    produce_values,
    receive_response,
    records_in,
    send_batch,
    values_in,
)

VERSIONS = range(4)
MAGIC = (0, 0, 1, 1)
OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def whole_values(data: Any) -> list[bytes | None]:
    """Returns the values of a message set whose last message may be incomplete."""
    records = bytes(data.records)
    end = 0
    while len(records) - end > 17 and first_entry(records, end).size <= len(records) - end:
        end += first_entry(records, end).size
    data.records = records[:end]
    return values_in(data)


def append_marker(broker: RunningBroker, topic: str) -> None:
    def append(inside: Broker) -> None:
        marker = build_end_txn_marker(
            True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
        )
        inside.replicas.find(topic, 0).append(marker, origin=AppendOrigin.COORDINATOR)

    broker.call(append)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_batches_of_every_codec_are_converted(
    client: WireClient, codec: Compression, version: int
) -> None:
    """C2, P6: offset, key and value are retained, and from magic 1 on the timestamp."""
    topic = f"codec-{codec.codec_name}-{version}"
    make_topic(client, topic)
    for _ in range(2):
        batch = batch_of(b"a", None, b"", b"b" * 1000, key=b"key", codec=codec)
        assert send_batch(client, topic, batch).error_code == 0
    data = fetch_partition(client, topic, version=version)
    assert (data.error_code, data.high_watermark) == (0, 8)
    first = first_entry(data.records)
    assert first.magic == MAGIC[version]
    assert first.offset == (0 if codec is Compression.NONE else 3)
    values = (b"a", None, b"", b"b" * 1000)
    assert records_in(data) == [
        Record(offset, NOW + offset % 4 if MAGIC[version] else -1, b"key", values[offset % 4], ())
        for offset in range(8)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_several_partitions_in_one_response(client: WireClient, version: int) -> None:
    """C2: several topics and partitions in the order of the request, each with its own result."""
    first_topic, second_topic = f"first-{version}", f"second-{version}"
    make_topic(client, first_topic, 2)
    make_topic(client, second_topic)
    produce_values(client, first_topic, b"0")
    produce_values(client, first_topic, b"1", partition=1)
    produce_values(client, second_topic, b"2")
    request = fetch_request(
        {second_topic: {0: 0, 9: 0}, first_topic: {1: 0, 0: 7}, "unknown": {0: 0}}
    )
    response = client.request(request, version)
    assert response.throttle_time_ms == 0
    result = partitions_of(response)
    assert list(result) == [
        (second_topic, 0),
        (second_topic, 9),
        (first_topic, 1),
        (first_topic, 0),
        ("unknown", 0),
    ]
    assert [data.error_code for data in result.values()] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [values_in(data) for data in result.values()] == [[b"2"], [], [b"1"], [], []]
    assert [data.high_watermark for data in result.values()] == [1, -1, 1, -1, -1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_from_the_middle_of_a_batch(client: WireClient, version: int) -> None:
    topic = f"middle-{version}"
    make_topic(client, topic)
    produce_values(client, topic, b"a", b"b", b"c")
    assert values_in(fetch_partition(client, topic, 1, version=version)) == [b"b", b"c"]
    assert fetch_partition(client, topic, 3, version=version).records == b""


# --- errors of conversion


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_batches_have_an_error(client: WireClient, version: int) -> None:
    """E1: old clients cannot read zstd; batches before it are returned."""
    topic = f"zstd-{version}"
    make_topic(client, topic)
    produce_values(client, topic, b"plain")
    assert send_batch(client, topic, batch_of(b"z", codec=Compression.ZSTD)).error_code == 0
    assert values_in(fetch_partition(client, topic, version=version)) == [b"plain"]
    data = fetch_partition(client, topic, 1, version=version)
    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (data.high_watermark, data.records) == (-1, b"")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("compression.type", "zstd", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ("message.downconversion.enable", "false", ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_topics_without_conversion_have_an_error(
    client: WireClient, version: int, setting: str, value: str, code: ErrorCode
) -> None:
    topic = f"{setting}-{version}"
    make_topic(client, topic, configs={setting: value})
    assert fetch_partition(client, topic, version=version).error_code == code
    produce_values(client, topic, b"a")
    assert fetch_partition(client, topic, version=version).error_code == code
    assert values_in(fetch_partition(client, topic, version=4)) == [b"a"]


def test_conversion_can_be_disabled_by_default(tmp_path: Path) -> None:
    """The setting of a topic overrides that of the broker."""
    settings = {"log.message.downconversion.enable": "false"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "default")
        make_topic(client, "own", configs={"message.downconversion.enable": "true"})
        produce_values(client, "own", b"a")
        assert (
            fetch_partition(client, "default", version=2).error_code
            == ErrorCode.UNSUPPORTED_VERSION
        )
        assert values_in(fetch_partition(client, "own", version=2)) == [b"a"]


def test_a_corrupt_batch_is_not_converted(broker: RunningBroker, client: WireClient) -> None:
    """S4: conversion does not give a corrupt batch a new checksum."""
    make_topic(client, "corrupt")
    produce_values(client, "corrupt", b"good")
    offset = produce_values(client, "corrupt", b"bad")

    def corrupt(inside: Broker) -> None:
        segment = inside.replicas.find("corrupt", 0).log.local.segments.active
        segment.file.write_at(b"!", segment.size - 2)

    broker.call(corrupt)
    assert values_in(fetch_partition(client, "corrupt", version=1)) == [b"good"]
    data = fetch_partition(client, "corrupt", offset, version=1)
    assert (data.error_code, data.records) == (ErrorCode.CORRUPT_MESSAGE, b"")


# --- limits


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_size_limit_of_a_partition_is_exact(client: WireClient, version: int) -> None:
    """P7: up to version 2, an incomplete message signals a limit that is too low."""
    topic = f"limit-{version}"
    make_topic(client, topic)
    produce_values(client, topic, b"x" * 5000)
    request = fetch_request({topic: {0: 0}}, partition_max_bytes=1000)
    (data,) = partitions_of(client.request(request, version)).values()
    assert len(data.records) == 1000
    assert first_entry(data.records).size > 5000
    for limit in (0, -1):
        request = fetch_request({topic: {0: 0}}, partition_max_bytes=limit)
        (data,) = partitions_of(client.request(request, version)).values()
        assert (data.error_code, data.records) == (0, b"")
    produce_values(client, topic, *(b"%d" % index * 100 for index in range(30)))
    offset, read = 1, []
    while offset < 31:
        request = fetch_request({topic: {0: offset}}, partition_max_bytes=1000)
        (data,) = partitions_of(client.request(request, version)).values()
        assert len(data.records) <= 1000
        batch_values = whole_values(data)
        assert batch_values, "a limit between the sizes of a message and a batch returns messages"
        read += batch_values
        offset += len(batch_values)
    assert read == [b"%d" % index * 100 for index in range(30)]


def test_version_3_returns_the_first_batch_whole(client: WireClient) -> None:
    """P7, KIP-74: applies to the first partition that has a batch."""
    make_topic(client, "kip-74", 3)
    for partition in (1, 2):
        produce_values(client, "kip-74", b"x" * 5000, partition=partition)
    request = fetch_request({"kip-74": {0: 0, 1: 0, 2: 0}}, max_bytes=100)
    result = partitions_of(client.request(request, 3))
    assert [values_in(data) for data in result.values()] == [[], [b"x" * 5000], []]
    request = fetch_request({"kip-74": {1: 0}}, partition_max_bytes=100)
    (data,) = partitions_of(client.request(request, 3)).values()
    assert values_in(data) == [b"x" * 5000]


def test_conversion_does_not_exceed_the_size_limit(client: WireClient) -> None:
    """A v1 message has 34 bytes and a record 7, so the set ends within a message."""
    make_topic(client, "grows")
    for _ in range(20):
        produce_values(client, "grows", *[b"v"] * 100)
    assert len(values_in(fetch_partition(client, "grows", version=3))) == 2000
    size = 20 * len(batch_of(*[b"v"] * 100))
    request = fetch_request({"grows": {0: 0}}, max_bytes=size + 10)
    (data,) = partitions_of(client.request(request, 3)).values()
    assert len(data.records) == size + 10
    assert 0 < len(whole_values(data)) < 2000


def test_responses_are_small_when_memory_is_scarce(
    broker: RunningBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When much memory is used for slow clients, responses are small but never empty."""
    monkeypatch.setattr(down_conversion, "MAX_HELD_BYTES", 1)
    make_topic(client, "memory", 2)
    for partition in range(2):
        for _ in range(3):
            produce_values(client, "memory", b"x" * 100, partition=partition)
    result = partitions_of(client.request(fetch_request({"memory": {0: 0, 1: 0}}), 3))
    assert [len(records_in(data)) for data in result.values()] == [1, 0]
    assert broker.call(lambda _: down_conversion.held_bytes()) == 0, "it was sent"


# --- waiting


@pytest.mark.parametrize("version", VERSIONS)
def test_a_long_poll_of_an_old_version(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """C1: a produce or the timeout ends the wait."""
    topic = f"poll-{version}"
    make_topic(client, topic)
    request = fetch_request({topic: {0: 0}}, max_wait_ms=15_000, min_bytes=1)
    with broker.connect() as waiting:
        waiting.send(request, version)
        while not broker.call(lambda inside: len(inside.replicas.find(topic, 0).delayed_fetches)):
            time.sleep(0.001)
        produce_values(client, topic, b"news")
        (data,) = partitions_of(receive_response(waiting, request, version)).values()
        assert values_in(data) == [b"news"]
    late = fetch_request({topic: {0: 1}}, max_wait_ms=10, min_bytes=1)
    (data,) = partitions_of(client.request(late, version)).values()
    assert (data.error_code, data.records) == (0, b"")


def test_a_waiting_fetch_is_removed_when_its_client_disconnects(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "left")
    with broker.connect() as waiting:
        waiting.send(fetch_request({"left": {0: 0}}, max_wait_ms=15_000, min_bytes=1), 2)
        while not broker.call(lambda inside: len(inside.replicas.find("left", 0).delayed_fetches)):
            time.sleep(0.001)
    while broker.call(lambda inside: len(inside.replicas.find("left", 0).delayed_fetches)):
        time.sleep(0.001)
    assert produce_values(client, "left", b"a") == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_markers_are_skipped(broker: RunningBroker, client: WireClient, version: int) -> None:
    """C4: a fetch that finds only markers waits for more, as at the log end."""
    topic = f"markers-{version}"
    make_topic(client, topic)
    produce_values(client, topic, b"before")
    append_marker(broker, topic)
    data = fetch_partition(client, topic, version=version)
    assert (values_in(data), data.high_watermark) == ([b"before"], 2)
    data = fetch_partition(client, topic, 1, version=version)
    assert (data.error_code, data.records) == (0, b"")
    request = fetch_request({topic: {0: 1}}, max_wait_ms=15_000, min_bytes=1)
    with broker.connect() as waiting:
        waiting.send(request, version)
        while not broker.call(lambda inside: len(inside.replicas.find(topic, 0).delayed_fetches)):
            time.sleep(0.001)
        append_marker(broker, topic)
        (data,) = partitions_of(receive_response(waiting, request, version)).values()
        assert data.records == b""
    offset = produce_values(client, topic, b"after")
    assert offset == 3
    assert values_in(fetch_partition(client, topic, 1, version=version)) == [b"after"]


@pytest.mark.parametrize("cached", [True, False])
def test_reading_continues_after_many_markers(
    broker: RunningBroker, client: WireClient, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the size limit covers only markers, so reading continues after them."""
    if not cached:
        monkeypatch.setattr(OsFile, "is_cached", lambda *_: False)
    topic = f"many-markers-{cached}"
    make_topic(client, topic)
    for _ in range(3):
        append_marker(broker, topic)
    produce_values(client, topic, b"after")
    request = fetch_request({topic: {0: 0}}, partition_max_bytes=100)
    (data,) = partitions_of(client.request(request, 3)).values()
    assert values_in(data) == [b"after"]


# --- threads and files


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that converted batches."""
    names: list[str] = []

    def record_thread(*arguments: Any, **kwargs: Any) -> MessageSet:
        names.append(threading.current_thread().name)
        return down_convert(*arguments, **kwargs)

    monkeypatch.setattr(down_conversion, "down_convert", record_thread)
    return names


@pytest.mark.parametrize("cached", [True, False])
def test_batches_are_converted_on_a_thread(
    client: WireClient, threads: list[str], cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that is not cached is read by another thread than the one that converts."""
    if not cached:
        monkeypatch.setattr(OsFile, "is_cached", lambda *_: False)
    topic = f"threads-{cached}"
    make_topic(client, topic)
    produce_values(client, topic, b"a")
    assert values_in(fetch_partition(client, topic, version=2)) == [b"a"]
    assert [name.partition("_")[0] for name in threads] == ["penstock-compute"]


@pytest.mark.parametrize("failure", ["closed", "broken"])
def test_a_missing_segment_file(
    broker: RunningBroker, client: WireClient, tmp_path: Path, failure: str
) -> None:
    """A deleted segment returns no records, a failing disk an error that old clients know."""
    make_topic(client, f"missing-{failure}")
    file = OsDisk().open(str(tmp_path / "log"), create=True)
    if failure == "closed":
        file.close()
    data = FetchPartitionData(
        0, 0, 1, records=LogSlice(file, -5 if failure == "broken" else 0, 100)
    )
    response = FetchResponse(
        responses=[FetchableTopicResponse(f"missing-{failure}", partitions=[data])]
    )
    partition = CachedPartition(f"missing-{failure}", ZERO_UUID, FetchPartition(0))

    async def convert(inside: Broker) -> bool:
        conversion = DownConversion(
            inside.replicas, inside.workers, 3, 100, {partition.key: partition}
        )
        return await conversion.convert(response)

    has_data = broker.wait(convert)
    assert data.records == b""
    if failure == "closed":
        assert (has_data, data.error_code) == (False, 0)
    else:
        assert (has_data, data.error_code) == (True, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        file.close()
