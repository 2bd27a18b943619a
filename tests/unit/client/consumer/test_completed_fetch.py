"""Records out of what was fetched: any batches, any limits, as poll and as Arrow."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consumer.completed_fetch import CompletedFetch, FetchConfig
from penstock.client.consumer.deserializers import (
    IntegerDeserializer,
    JsonDeserializer,
    StringDeserializer,
    deserialize_with,
)
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.errors import ConfigError, RecordTooLargeError, SerializationError
from penstock.core.errors import CorruptRecordError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.fetch import AbortedTransaction, FetchPartitionData
from penstock.records.arrow import ArrowDecoder
from penstock.records.batch import TimestampType
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.records.record import Record
from tests.support.storage.batches import golden

TP = TopicPartition("t", 3)
T0 = 1_700_000_000_000


class Log(NamedTuple):
    """A log as bytes, its aborted transactions, and the offsets of its records."""

    data: bytes
    aborted: list[AbortedTransaction]
    committed: list[int]
    every: list[int]
    end: int


def batch(
    first: int,
    count: int,
    *,
    retained: set[int] | None = None,
    producer_id: int = -1,
    codec: Compression = Compression.NONE,
    epoch: int = 5,
) -> bytes:
    """A batch of records from `first` on; with `retained`, only those, as after compaction."""
    records = [
        Record(offset, T0 + offset, b"k%d" % offset, b"v%d" % offset)
        for offset in range(first, first + count)
        if retained is None or offset in retained
    ]
    return bytes(
        build_batch(
            records,
            base_offset=first,
            last_offset=first + count - 1,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            is_transactional=producer_id >= 0,
            partition_leader_epoch=epoch,
        )
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        build_end_txn_marker(
            commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=T0,
            base_offset=offset,
            partition_leader_epoch=5,
        )
    )


def fetch(
    data: bytes,
    offset: int = 0,
    *,
    aborted: list[AbortedTransaction] | None = None,
    config: FetchConfig | None = None,
) -> CompletedFetch:
    response = FetchPartitionData(records=data, aborted_transactions=aborted)
    return CompletedFetch(TP, offset, response, config or FetchConfig())


COMMITTED = FetchConfig(read_committed=True)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Plain batches and transactions of three producers, mixed; some records compacted away."""
    parts: list[bytes] = []
    open_since: dict[int, int] = {}
    open_offsets: dict[int, list[int]] = {}
    aborted: list[AbortedTransaction] = []
    committed: list[int] = []
    every: list[int] = []
    offset = 0
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["plain", "txn", "txn", "commit", "abort"]))
        producer = draw(st.integers(1, 3))
        if kind in ("commit", "abort"):
            if producer not in open_since:
                continue
            first, records = open_since.pop(producer), open_offsets.pop(producer)
            parts.append(marker(offset, producer, commit=kind == "commit"))
            if kind == "abort":
                aborted.append(AbortedTransaction(producer_id=producer, first_offset=first))
            else:
                committed += records
            offset += 1
            continue
        count = draw(st.integers(1, 4))
        retained = draw(st.sets(st.sampled_from(range(offset, offset + count))))
        is_removed = draw(st.integers(0, 4)) == 0
        codec = draw(st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]))
        number = producer if kind == "txn" else -1
        if not is_removed:
            if not retained:
                codec = Compression.NONE
            parts.append(batch(offset, count, retained=retained, producer_id=number, codec=codec))
            every += sorted(retained)
        records = [] if is_removed else sorted(retained)
        if kind == "txn":
            open_since.setdefault(producer, offset)
            open_offsets.setdefault(producer, []).extend(records)
        else:
            committed += records
        offset += count
    for producer, first in open_since.items():
        # A reader stops at the last stable offset; here every transaction ends.
        parts.append(marker(offset, producer, commit=False))
        aborted.append(AbortedTransaction(producer_id=producer, first_offset=first))
        offset += 1
    return Log(b"".join(parts), aborted, sorted(committed), every, offset)


@given(logs(), st.integers(0, 20), st.lists(st.integers(1, 5), max_size=5), st.booleans())
def test_every_record_is_returned_once_and_in_order(
    log: Log, start: int, limits: list[int], read_committed: bool
) -> None:
    config = FetchConfig(read_committed=read_committed)
    fetched = fetch(log.data, start, aborted=log.aborted, config=config)
    expected = [item for item in (log.committed if read_committed else log.every) if item >= start]
    offsets: list[int] = []
    for limit in [*limits, 1000]:
        records = fetched.take(limit)
        assert len(records) <= limit
        for record in records:
            assert record.value == b"v%d" % record.offset
            assert record.leader_epoch == 5
        offsets += [record.offset for record in records]
        remaining = [offset for offset in expected if offset not in offsets]
        assert fetched.next_offset <= min(remaining, default=max(log.end, start))
    assert offsets == expected
    assert fetched.is_consumed
    assert fetched.next_offset == fetched.end_offset


@given(logs(), st.integers(0, 20), st.integers(0, 5), st.booleans())
def test_arrow_returns_the_same_records(
    log: Log, start: int, before: int, read_committed: bool
) -> None:
    config = FetchConfig(read_committed=read_committed)
    expected = fetch(log.data, start, aborted=log.aborted, config=config).take(1000)
    fetched = fetch(log.data, start, aborted=log.aborted, config=config)
    records = fetched.take(before) if before else []
    decoder = ArrowDecoder(check_crcs=False)
    rows = fetched.take_arrow(decoder)
    columns = decoder.finish().to_pydict()
    assert rows == len(expected) - len(records)
    assert columns["offset"] == [item.offset for item in expected[len(records) :]]
    assert columns["value"] == [item.value for item in expected[len(records) :]]
    assert fetched.is_consumed


def test_all_fields_of_a_record() -> None:
    record = Record(7, T0, b"key", None, (("h", b"x"), ("n", None)))
    data = bytes(build_batch([record], base_offset=7, partition_leader_epoch=2))
    (result,) = fetch(data, 7).take(10)
    assert result == ConsumerRecord(
        "t", 3, 7, T0, 0, b"key", None, (("h", b"x"), ("n", None)), leader_epoch=2
    )
    assert result.topic_partition == TP
    assert (result.serialized_key_size, result.serialized_value_size) == (3, -1)


def test_log_append_time() -> None:
    data = bytes(
        build_batch(
            [Record(0, T0, None, b"a"), Record(1, T0 + 5, None, b"b")],
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=T0 + 99,
        )
    )
    assert {(item.timestamp, item.timestamp_type) for item in fetch(data).take(9)} == {(T0 + 99, 1)}


@pytest.mark.parametrize("name", [item for item in golden("legacy") if "append" not in item])
def test_old_formats(name: str) -> None:
    data = golden("legacy")[name]
    first = 0 if name.endswith("from_0") else 500
    fetched = fetch(data, first + 1)
    assert [(item.offset, item.value) for item in fetched.take(100)] == [
        (first + 1, None),
        (first + 2, b"w" * 100),
    ]
    assert fetched.end_offset == fetched.next_offset == first + 3


def test_an_abort_marker_without_records_does_not_hide_the_next_transaction() -> None:
    """Compaction has removed the aborted records; later commits of the producer are returned."""
    data = marker(5, 1, commit=False) + batch(6, 2, producer_id=1) + marker(8, 1, commit=True)
    aborted = [AbortedTransaction(producer_id=1, first_offset=3)]
    fetched = fetch(data, 4, aborted=aborted, config=COMMITTED)
    assert [item.offset for item in fetched.take(10)] == [6, 7]


def test_a_partial_batch_at_the_end_waits_for_the_next_fetch() -> None:
    complete_batch = batch(0, 3)
    fetched = fetch(complete_batch + batch(3, 3)[:-1])
    assert (fetched.end_offset, len(fetched.take(100))) == (3, 3)
    with pytest.raises(RecordTooLargeError, match="raise max_partition_fetch_bytes"):
        fetch(complete_batch[:-1]).take(1)


# --- invalid data


def broken(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[-1] ^= 0xFF
    return bytes(changed)


def take_records(fetched: CompletedFetch) -> object:
    return fetched.take(100)


def take_arrow_rows(fetched: CompletedFetch) -> object:
    return fetched.take_arrow(ArrowDecoder(check_crcs=False))


@pytest.mark.parametrize("take", [take_records, take_arrow_rows])
def test_a_corrupt_batch_is_not_skipped(take: Callable[[CompletedFetch], object]) -> None:
    fetched = fetch(batch(0, 2) + broken(batch(2, 2)) + batch(4, 2))
    assert take(fetched)
    assert fetched.next_offset == 2
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"t-3 .* from offset 2.*CRC"):
            take(fetched)
    assert fetched.next_offset == 2


def test_corrupt_batches_are_detected_without_a_crc_check_too() -> None:
    data = bytearray(batch(0, 2))
    data[61] = 0x7F  # the length of the first record
    with pytest.raises(
        CorruptRecordError, match=r"batch at offset 0 is corrupt.*seek past it to 2"
    ):
        fetch(bytes(data), config=FetchConfig(check_crcs=False)).take(1)


def test_arbitrary_bytes_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="magic"):
        fetch(b"\xff" * 80).take(1)


def test_a_value_that_cannot_be_deserialized_is_an_error() -> None:
    """Earlier records are returned first; the error is raised until the consumer seeks past it."""

    def value(data: bytes) -> str:
        if data == b"v2":
            raise RuntimeError("no good")
        return data.decode()

    config = FetchConfig(
        key=deserialize_with(StringDeserializer, "key_deserializer"),
        value=deserialize_with(value, "value_deserializer"),
    )
    fetched = fetch(batch(0, 4), config=config)
    assert [(item.key, item.value) for item in fetched.take(10)] == [("k0", "v0"), ("k1", "v1")]
    assert fetched.next_offset == 2
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"value .* offset 2 of t-3 .*seek to 3"):
            fetched.take(10)


def test_null_stays_null() -> None:
    data = bytes(build_batch([Record(0, T0, None, None)]))
    config = FetchConfig(value=deserialize_with(JsonDeserializer(), "value_deserializer"))
    assert fetch(data, config=config).take(1)[0].value is None


def test_deserializers() -> None:
    assert JsonDeserializer().deserialize("t", (), b'{"a": 1}') == {"a": 1}
    assert IntegerDeserializer(8).deserialize("t", (), b"\xff" * 8) == -1
    with pytest.raises(ValueError, match="4 bytes"):
        IntegerDeserializer().deserialize("t", (), b"1")
    with pytest.raises(ConfigError, match="key_deserializer=7"):
        deserialize_with(7, "key_deserializer")


@pytest.mark.parametrize("codec", list(Compression))
@given(start=st.integers(0, 30), end=st.integers(0, 40), max_bytes=st.integers(1, 60))
def test_a_range_of_offsets_as_arrow(
    codec: Compression, start: int, end: int, max_bytes: int
) -> None:
    """D1: no records from the end offset on, and no more batches than `max_bytes` needs."""
    log = b"".join(batch(first, 6, codec=codec) for first in range(0, 30, 6))
    fetch = CompletedFetch(TP, start, FetchPartitionData(records=memoryview(log)), FetchConfig())
    offsets: list[int] = []
    while not fetch.is_consumed and fetch.next_offset < end:
        decoder = ArrowDecoder()
        rows = fetch.take_arrow(decoder, end_offset=end, max_bytes=max_bytes)
        assert rows == decoder.rows
        assert decoder.size < max_bytes + 6 * 6
        offsets += decoder.finish().column("offset").to_pylist()
    assert offsets == list(range(start, min(end, 30)))
