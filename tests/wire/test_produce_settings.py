"""Effects of topic settings on produced batches, on the event loop and on threads (P6)."""

import errno
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.records.batch import TimestampType, read_header
from penstock.records.compress import Compression
from penstock.storage.log.flush_task import FlushTask
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import TOPIC, alter
from tests.support.protocol.requests import (
    NOW,
    batch_of,
    fetch_partition,
    make_topic,
    new_producer,
    produce_request,
    produce_values,
    receive_response,
    records_in,
    send_batch,
    values_in,
)

LARGE = 300_000
"""The size of a batch that is validated on a thread if it must be decompressed."""


def incompressible(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_the_broker_recompresses_batches(
    client: WireClient, source: Compression, target: str, size: int
) -> None:
    """compression.type: small batches on the event loop, large ones on a thread."""
    topic = f"{source.name}-{target}-{size}"
    make_topic(client, topic, configs={"compression.type": target})
    value = incompressible(size)
    for offset in (0, 2):
        response = send_batch(client, topic, batch_of(value, None, codec=source))
        assert (response.error_code, response.base_offset) == (0, offset)
    result = fetch_partition(client, topic)
    expected_codec = Compression.NONE if target == "uncompressed" else Compression[target.upper()]
    assert read_header(result.records).compression is expected_codec
    assert values_in(result) == [value, None] * 2
    assert [record.offset for record in records_in(result)] == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [10, LARGE])
def test_the_codec_of_the_producer_is_retained(
    client: WireClient, codec: Compression, size: int
) -> None:
    """P6: with compression.type=producer, a batch is stored as it was sent."""
    topic = f"unchanged-{codec.name}-{size}"
    make_topic(client, topic)
    batch = batch_of(incompressible(size), codec=codec)
    assert send_batch(client, topic, batch).error_code == 0
    records = fetch_partition(client, topic).records
    assert read_header(records).compression is codec
    assert bytes(records)[61:] == batch[61:]


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize(
    ("codec", "size"), [(Compression.NONE, 10), (Compression.ZSTD, 10), (Compression.LZ4, LARGE)]
)
def test_log_append_time_replaces_timestamps(
    client: WireClient, version: int, codec: Compression, size: int
) -> None:
    if codec is Compression.ZSTD and version < 7:
        codec = Compression.SNAPPY
    topic = f"append-time-{version}-{codec.name}-{size}"
    make_topic(client, topic, configs={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    batch = batch_of(incompressible(size), b"b", codec=codec)
    response = send_batch(client, topic, batch, version=version)
    after = time.time_ns() // 1_000_000
    assert before <= response.log_append_time_ms <= after
    result = fetch_partition(client, topic)
    assert read_header(result.records).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records_in(result)} == {response.log_append_time_ms}


def test_timestamps_out_of_range_are_rejected(client: WireClient) -> None:
    make_topic(client, "limits", configs={"message.timestamp.before.max.ms": "1000"})
    response = send_batch(client, "limits", batch_of(b"a", timestamp=NOW))
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [record_error.batch_index for record_error in response.record_errors] == [0]
    now_ms = time.time_ns() // 1_000_000
    assert send_batch(client, "limits", batch_of(b"a", timestamp=now_ms)).error_code == 0


def test_a_corrupt_batch_is_rejected_by_a_thread(client: WireClient) -> None:
    make_topic(client, "corrupt-large")
    broken = bytearray(batch_of(incompressible(LARGE), codec=Compression.LZ4))
    broken[-100] ^= 0x55
    response = send_batch(client, "corrupt-large", bytes(broken))
    assert response.error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch_partition(client, "corrupt-large").high_watermark == 0


def test_pipelined_requests_keep_their_order(client: WireClient) -> None:
    """A request that needs a thread is not overtaken by the faster ones after it."""
    make_topic(client, "pipelined")
    large = batch_of(incompressible(LARGE), codec=Compression.GZIP)
    requests = [
        produce_request("pipelined", large if index % 5 == 2 else batch_of(b"%d" % index))
        for index in range(20)
    ]
    for request in requests:
        client.send(request, 9)
    for index, request in enumerate(requests):
        response = receive_response(client, request, 9).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, index)
    result = fetch_partition(client, "pipelined")
    assert result.high_watermark == 20


def test_the_first_append_of_an_epoch_keeps_the_order(client: WireClient) -> None:
    """The leader epoch is made durable first; the requests after it wait."""
    make_topic(client, "first")
    requests = [produce_request("first", batch_of(b"%d" % index), acks=1) for index in range(5)]
    for request in requests:
        client.send(request, 9)
    for request in requests:
        client.receive(request, 9)
    assert values_in(fetch_partition(client, "first")) == [b"0", b"1", b"2", b"3", b"4"]


class Gate:
    """Delays flushes."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    new_gate = Gate()
    run = FlushTask.run

    def delayed_run(task: FlushTask) -> None:
        new_gate.reached.set()
        assert new_gate.open.wait(10)
        run(task)

    monkeypatch.setattr(FlushTask, "run", delayed_run)
    yield new_gate
    new_gate.open.set()


def recovery_point(broker: RunningBroker, topic: str) -> int:
    def find(inside: object) -> int:
        log = broker.app.broker.logs.get(TopicPartition(topic, 0))
        assert log is not None
        return log.local.recovery_point

    return broker.call(find)


@pytest.mark.parametrize("version", [3, 9, 12])
def test_flush_messages_delays_the_response(
    broker: RunningBroker, client: WireClient, gate: Gate, version: int
) -> None:
    """S6: with flush.messages=1, a response means that the record is on disk."""
    topic = f"flushed-{version}"
    make_topic(client, topic, configs={"flush.messages": "1"})
    request = produce_request(topic, batch_of(b"a"))
    client.send(request, version)
    assert gate.reached.wait(10)
    # Other clients are served, and may read records that are not durable yet.
    with broker.connect() as second_client:
        assert second_client.request(ApiVersionsRequest(), 0).error_code == 0
        assert values_in(fetch_partition(second_client, topic)) == [b"a"]
    client.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.receive(request, version)
    client.sock.settimeout(10)
    assert recovery_point(broker, topic) == 0
    gate.open.set()
    client.receive(request, version)
    assert recovery_point(broker, topic) == 1


def test_requests_after_a_pending_flush_are_handled(
    broker: RunningBroker, client: WireClient, gate: Gate
) -> None:
    """Only the responses wait, in order; one flush covers all requests that arrived before it."""
    make_topic(client, "many", configs={"flush.messages": "1"})
    requests = [produce_request("many", batch_of(b"%d" % index)) for index in range(4)]
    for request in requests:
        client.send(request, 9)
    with broker.connect() as second_client:
        while fetch_partition(second_client, "many").high_watermark < 4:
            assert not gate.open.is_set()
    gate.open.set()
    offsets = [
        receive_response(client, request, 9).responses[0].partition_responses[0].base_offset
        for request in requests
    ]
    assert offsets == [0, 1, 2, 3]
    assert recovery_point(broker, "many") == 4


def test_a_duplicate_waits_for_the_pending_flush(
    broker: RunningBroker, client: WireClient, gate: Gate
) -> None:
    """P3: its response is sent only when the first batch, whose flush is pending, is durable."""
    make_topic(client, "doubled", configs={"flush.messages": "1"})
    batch = batch_of(b"a", producer=(*new_producer(client), 0))
    request = produce_request("doubled", batch)
    with broker.connect() as first:
        first.send(request, 9)
        assert gate.reached.wait(10)
    client.send(request, 9)
    client.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.receive(request, 9)
    client.sock.settimeout(10)
    gate.open.set()
    response = receive_response(client, request, 9).responses[0].partition_responses[0]
    assert (response.error_code, response.base_offset) == (0, 0)
    assert recovery_point(broker, "doubled") == 1
    # The batch is durable now, so its duplicate needs no flush.
    assert send_batch(client, "doubled", batch).base_offset == 0


def test_a_disk_error_affects_only_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other partition's records are acknowledged; later appends to the broken one fail."""

    def fail(task: FlushTask) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    directories = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with running_broker(tmp_path, directories) as broker, broker.connect() as client:
        make_topic(client, "broken", configs={"flush.messages": "1"})
        make_topic(client, "whole")
        monkeypatch.setattr(FlushTask, "run", fail)
        request = produce_request("broken", batch_of(b"a"))
        request.topic_data += produce_request("whole", batch_of(b"a")).topic_data
        broken, whole = client.request(request, 9).responses
        (response,) = broken.partition_responses
        assert (response.error_code, response.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert response.log_start_offset == -1
        assert "the disk is broken" in response.error_message
        assert whole.partition_responses[0].error_code == 0
        later_response = send_batch(client, "broken", batch_of(b"b"))
        assert later_response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce_values(client, "whole", b"b") == 1
        monkeypatch.undo()


def test_a_changed_setting_applies_to_the_next_batch(client: WireClient) -> None:
    """The next batch is validated with the new limit."""
    make_topic(client, "changing")
    assert produce_values(client, "changing", b"x" * 5000) == 0
    alter(client, TOPIC, "changing", {"max.message.bytes": "1000"})
    response = send_batch(client, "changing", batch_of(b"x" * 5000))
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
