"""Every record that is sent is accounted for: acknowledged, or failed with its line."""

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.records.bulk_values import joined_values
from penstock.cli.records.record_formats import print_values
from penstock.cli.records.record_input import Bulk, InputError
from penstock.cli.records.record_sender import Sender
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.errors import RecordTooLargeError, UnknownTopicError
from penstock.client.producer.bulk_future import BulkFuture, BulkPart, SentRecords
from penstock.client.producer.future import BatchResult, RecordFuture
from penstock.client.producer.producer import Producer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

REFUSED = KafkaError(ErrorCode.INVALID_RECORD, "refused")
PARTITION = TopicPartition("t", 0)


def result(record_errors: dict[int, KafkaError] | None = None) -> BatchResult:
    made = BatchResult(PARTITION)
    made.set_outcome(0, -1, REFUSED if record_errors else None, record_errors)
    return made


class FakeProducer:
    """Refuses values that are `bad`, does not take those that are `large`."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[bytes | None], object]] = []

    def send_many(
        self, topic: str, values: Sequence[bytes | None], keys: object = None, **_: object
    ) -> BulkFuture:
        if topic == "unknown":
            raise UnknownTopicError("there is no topic unknown")
        if b"large" in values:
            raise RecordTooLargeError("too large")
        self.calls.append((list(values), keys))
        bad = {index: REFUSED for index, value in enumerate(values) if value == b"bad"}
        made = BatchResult(PARTITION)
        made.set_outcome(0, -1, None)
        parts = [
            BulkPart(result({0: REFUSED}) if index in bad else made, 0, index, 1)
            for index in range(len(values))
        ]
        total = len(values)
        sizes = memoryview(bytearray(8 * total)).cast("i")
        return BulkFuture(SentRecords(total, sizes, None, 0, None), parts)

    def send(self, topic: str, value: bytes | None, **_: object) -> RecordFuture:
        if value == b"large":
            raise RecordTooLargeError("too large")
        self.calls.append(([value], None))
        bad = value == b"bad"
        return RecordFuture(result({0: REFUSED} if bad else None), 0, 0, -1, len(value or b""))


def sent(bulk: Bulk, topic: str | None = "t") -> tuple[Sender, FakeProducer]:
    producer = FakeProducer()
    sender = Sender(cast("Producer", cast("Any", producer)), topic)
    sender.send(bulk)
    sender.finish()
    return sender, producer


def test_all_is_well() -> None:
    sender, producer = sent(Bulk("it", 1, [b"a", None, b"ccc"]))
    assert (sender.acknowledged, sender.acknowledged_bytes, sender.failed) == (3, 4, False)
    assert len(producer.calls) == 1


def test_failures_name_their_lines() -> None:
    sender, _ = sent(Bulk("it", 10, [b"a", b"bad", b"c", b"bad"]))
    assert (sender.acknowledged, sender.acknowledged_bytes) == (2, 2)
    assert [failure.where for failure in sender.failures] == ["it, line 11", "it, line 13"]


def test_a_record_that_is_too_large_does_not_take_others_with_it() -> None:
    sender, _ = sent(Bulk("it", 1, [b"a", b"large", b"bad", b"d"]))
    assert sender.acknowledged == 2
    assert [(failure.where, failure.error.code.name) for failure in sender.failures] == [
        ("it, line 2", "MESSAGE_TOO_LARGE"),
        ("it, line 3", "INVALID_RECORD"),
    ]


def test_a_topic_that_does_not_exist() -> None:
    sender, _ = sent(Bulk("it", 1, [b"a", b"b"]), "unknown")
    assert (sender.acknowledged, len(sender.failures)) == (0, 2)


def test_records_that_name_no_topic() -> None:
    with pytest.raises(InputError, match="it, line 1"):
        sent(Bulk("it", 1, [b"a"]), None)
    sender, _ = sent(Bulk("it", 1, [b"a"], topic="own"), None)
    assert sender.acknowledged == 1


def test_failures_of_records_that_were_sorted() -> None:
    """Numbers are those of the call, whatever partition a record went to."""
    order = memoryview(bytearray(16)).cast("i")
    for position, number in enumerate((2, 0, 3, 1)):
        order[position] = number
    sizes = memoryview(bytearray(32)).cast("i")
    parts = [BulkPart(result({1: REFUSED}), 0, 0, 2), BulkPart(result({5: REFUSED}), 5, 2, 2)]
    future = BulkFuture(SentRecords(4, sizes, None, 0, order), parts)
    # In a batch with errors of its own all records have failed.
    assert [number for number, _ in future.failures(0)] == [0, 1, 2, 3]


@given(
    st.lists(st.none() | st.binary(max_size=5)),
    st.sampled_from([b"\n", b"", b"\r\n"]),
    st.sampled_from([b"", b"NULL"]),
    st.integers(0, 3),
)
def test_columns_print_what_records_do(
    values: list[bytes | None], end: bytes, null: bytes, skipped: int
) -> None:
    records = [ConsumerRecord("t", 0, 0, 0, 0, None, value) for value in values]
    for kind in (pa.binary(), pa.large_binary()):
        batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["value"])
        printed = joined_values(batch.slice(skipped), end, null)
        assert bytes(printed) == print_values(records[skipped:], end, null)
