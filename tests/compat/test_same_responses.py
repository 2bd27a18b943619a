"""The same raw requests to Kafka's broker and to ours have the same results (M4, E1)."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.records.batch import compute_crc, write_crc
from penstock.records.compress import Compression
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.kafka.broker import KafkaBroker, KafkaParts, wait_until
from tests.support.kafka.odd_batches import send_odd_batches
from tests.support.kafka.once import once_per_run
from tests.support.kafka.transaction_requests import transactions
from tests.support.protocol.requests import NOW, batch_of, make_topic, new_producer, send_batch
from tests.support.storage.batches import iter_records

Results = dict[str, object]
TOPIC, BROKER = 2, 4
SETTINGS = {"auto.create.topics.enable": "false"}
TOPICS = {
    "plain": {"max.message.bytes": "2000"},
    "compacted": {"cleanup.policy": "compact,delete"},
    "punctual": {"message.timestamp.before.max.ms": "60000"},
    "wide": {"segment.bytes": "1048576", "max.message.bytes": "5000000"},
}
ATTRIBUTES_AT, COUNT_AT, MAGIC_AT, CRC_AT = 22, 60, 16, 17


def changed(batch: bytes, position: int, value: int, *, fix_crc: bool = True) -> bytes:
    """Returns the batch with one byte changed, with a recomputed CRC if `fix_crc`."""
    new = bytearray(batch)
    new[position] = value
    if fix_crc:
        write_crc(new, 0, compute_crc(new, 0, len(new)))
    return bytes(new)


def invalid_batches(client: WireClient) -> Results:
    """Sends invalid batches, in versions with and without the log start offset."""
    batch = batch_of(b"x")
    cases: dict[str, tuple[str, bytes, dict[str, int]]] = {
        "corrupt": ("plain", changed(batch, CRC_AT, batch[CRC_AT] ^ 1, fix_crc=False), {}),
        "too large": ("plain", batch_of(bytes(3000)), {}),
        "larger than a segment": ("wide", batch_of(bytes(2_000_000)), {}),
        "without a key": ("compacted", batch_of(b"x", b"y"), {}),
        "too old": ("punctual", batch, {}),
        "to an unknown topic": ("nowhere", batch, {}),
        "to an unknown partition": ("plain", batch, {"partition": 9}),
        "nothing": ("plain", b"", {}),
        "two batches": ("plain", batch * 2, {}),
        "of magic 1": ("plain", changed(batch, MAGIC_AT, 1, fix_crc=False), {}),
        "of magic 3": ("plain", changed(batch, MAGIC_AT, 3, fix_crc=False), {}),
        "zstd": ("plain", batch_of(b"x", codec=Compression.ZSTD), {"version": 6}),
        "acks": ("plain", batch, {"acks": 5}),
        "fewer records than it says": ("plain", changed(batch, COUNT_AT, 5), {}),
        "a control batch": ("plain", changed(batch, ATTRIBUTES_AT, 0x20), {}),
    }
    result: Results = {}
    for name, (topic, records, options) in cases.items():
        for version in (3, 8, 9, 12):
            how = {"version": version, **options}
            result[f"{name}, version {version}"] = fields_of(
                send_batch(client, topic, records, **how)
            )
    return result


def sequences(client: WireClient) -> Results:
    """Sends a batch after a sequence gap, and one with a fenced epoch."""
    producer_id, epoch = new_producer(client)
    result: Results = {}
    for name, epoch_then, sequence in (
        ("first", epoch, 0),
        ("gap", epoch, 9),
        ("new epoch", epoch + 2, 0),
        ("fenced", epoch, 1),
    ):
        batch = batch_of(b"x", producer=(producer_id, epoch_then, sequence), timestamp=recent())
        response = send_batch(client, "plain", batch)
        result[name] = fields_of(response)[:1] + fields_of(response)[2:]  # all but its offset
    return result


def duplicate(client: WireClient) -> Results:
    """Sends the same batch twice."""
    producer, sent = new_producer(client), recent()
    batch = batch_of(b"x", b"y", producer=(*producer, 0), timestamp=sent)
    first, second = (send_batch(client, "plain", batch) for _ in range(2))
    assert second.base_offset == first.base_offset
    return {"duplicate": (second.error_code, second.log_append_time_ms - sent)}


def named_twice(client: WireClient) -> Results:
    """Sends requests that name a resource more than once."""
    named = [
        (TOPIC, "plain"),
        (TOPIC, "nowhere"),
        (BROKER, "77"),
        (TOPIC, "wide"),
        (TOPIC, "plain"),
        (99, "plain"),
        (TOPIC, "plain"),
    ]
    request = IncrementalAlterConfigsRequest(
        [
            IncrementalAlterConfigsResource(
                kind, name, [IncrementalAlterConfigsAlterableConfig("retention.ms", 0, "-1")]
            )
            for kind, name in named
        ]
    )
    responses = client.request(request, 1).responses
    return {
        "named twice": [
            (response.resource_type, response.resource_name, response.error_code)
            for response in responses
        ]
    }


def fields_of(response: Any) -> tuple[int, int, int, int, list[int]]:
    """Returns the fields of a partition's response without its error messages."""
    return (
        response.error_code,
        response.base_offset,
        response.log_append_time_ms,
        response.log_start_offset,
        [record_error.batch_index for record_error in response.record_errors],
    )


def recent() -> int:
    return time.time_ns() // 1_000_000


_CODECS = ("none", "gzip", "zstd")
CORRECTED = {
    f"odd: {codec}, {oddity}"
    for codec in _CODECS
    for oddity in (
        "offset deltas 0 5",
        "offset deltas 1 2",
        "offset deltas 0 0",
        "offset deltas 1 0",
        "a negative offset delta",
    )
}
STRICTER = {
    "odd: gzip, a record shorter than it says",
    "odd: gzip, a record longer than it says",
    "odd: zstd, a record shorter than it says",
    "odd: zstd, a record longer than it says",
    "odd: codec 5",
    "odd: codec 6",
    "odd: codec 7",
    "odd: codec gzip, records not compressed",
    "odd: producer id without an epoch",
    "odd: epoch -2",
}

SCENARIOS: tuple[Callable[[WireClient], Results], ...] = (
    invalid_batches,
    sequences,
    duplicate,
    named_twice,
    transactions,
    send_odd_batches,
)


def run_all(client: WireClient) -> Results:
    for topic, configs in TOPICS.items():
        make_topic(client, topic, 1, configs)
    wait_until(
        lambda: client.request(InitProducerIdRequest(None, 0), 4).error_code == 0, "producer ids"
    )
    for topic in TOPICS:
        batch = batch_of(b"a", b"b", b"c", key=b"k", timestamp=recent())
        assert send_batch(client, topic, batch).error_code == 0
        start = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 2)])
        response = client.request(DeleteRecordsRequest([start], 5000), 2)
        assert response.topics[0].partitions[0].low_watermark == 2
    result: Results = {}
    for scenario in SCENARIOS:
        result |= scenario(client)
    return result


@pytest.fixture(scope="session")
def results(
    kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, Results]:
    """The results of Kafka and ours."""

    def run_both(directory: Path) -> tuple[Results, Results]:
        with (
            KafkaBroker(kafka_parts, directory / "kafka", SETTINGS) as kafka,
            WireClient(("127.0.0.1", kafka.port)) as client,
        ):
            theirs = run_all(client)
        with running_broker(directory / "ours", SETTINGS) as broker, broker.connect() as client:
            return theirs, run_all(client)

    return once_per_run(tmp_path_factory, "same-responses", run_both)


def test_results_are_kafkas(results: tuple[Results, Results]) -> None:
    """P2, P7: including the log start offset in error responses."""
    theirs, ours = results
    assert recent() - 60_000 > NOW, "a batch of batch_of() must be old"
    differing = {name for name in theirs if ours[name] != theirs[name]}
    assert ours.keys() == theirs.keys()
    assert differing == STRICTER | CORRECTED


def test_batches_that_would_break_consumers_are_refused(results: tuple[Results, Results]) -> None:
    """Kafka stores some of them, and has an unknown error for the others."""
    for name in STRICTER:
        assert results[1][name] == [ErrorCode.INVALID_RECORD, -1, []]


def test_wrong_offset_deltas_are_corrected(results: tuple[Results, Results]) -> None:
    """Kafka stores them, with offsets that are not those of the response, or does not respond."""
    for name in CORRECTED:
        result = results[1][name]
        assert isinstance(result, list)
        assert result[:5] == [0, 0, [], 0, 2]
        stored = iter_records(bytes.fromhex(result[5]))
        assert [record.offset for record in stored] == [0, 1]
