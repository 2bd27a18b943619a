"""How many records of a batch may be unreadable (D5)."""

import pyarrow as pa
import pytest

from penstock.core.ids import TopicPartition
from penstock.spark.errors import TooManyDeadLettersError
from penstock.spark.pipeline.model import DeadLetterSpec
from penstock.spark.progress import SourceOffsets
from penstock.spark.run.unreadable import check_limits, span


def letters(count: int) -> pa.Table:
    row = {"topic": "a", "partition": 0, "reason": "no JSON"}
    return pa.Table.from_pylist([{**row, "offset": each} for each in range(count)])


def test_none_is_allowed_where_there_is_no_place_for_them() -> None:
    with pytest.raises(TooManyDeadLettersError) as raised:
        check_limits("p.s", None, letters(1), 10)
    assert "1 of 10 records cannot be read; the first is offset 0 of a-0: no JSON" in str(
        raised.value
    )
    assert "Name a dead-letter topic or table" in str(raised.value)


def test_as_many_as_the_pipeline_allows() -> None:
    check_limits("p.s", DeadLetterSpec(topic="dlq"), letters(99), 99)
    check_limits("p.s", DeadLetterSpec(topic="dlq", max_count=3), letters(3), 10)
    with pytest.raises(TooManyDeadLettersError, match="max_count allows 3"):
        check_limits("p.s", DeadLetterSpec(topic="dlq", max_count=3), letters(4), 10)


def test_a_share_counts_from_a_hundred_records_on() -> None:
    allowed = DeadLetterSpec(topic="dlq", max_share=0.1)
    check_limits("p.s", allowed, letters(50), 99)
    check_limits("p.s", allowed, letters(10), 100)
    with pytest.raises(TooManyDeadLettersError, match=r"max_share allows 10\.00%"):
        check_limits("p.s", allowed, letters(11), 100)


def test_a_new_partition_counts_from_its_beginning() -> None:
    one, two = TopicPartition("a", 0), TopicPartition("a", 1)
    assert span(SourceOffsets({one: 5}), SourceOffsets({one: 9, two: 3})) == 7
