"""How many records of a batch may be unreadable (D5)."""

import pyarrow as pa
import pytest

from penstock.core.ids import TopicPartition
from penstock.spark.errors import TooManyDeadLettersError
from penstock.spark.pipeline.model import DeadLetterSpec
from penstock.spark.progress import SourceOffsets
from penstock.spark.run.dead_letter_reader import check_limits, most_allowed, span


def letters(count: int) -> pa.Table:
    row = {"topic": "a", "partition": 0, "reason": "no JSON"}
    return pa.Table.from_pylist([{**row, "offset": number} for number in range(count)])


def test_none_is_allowed_without_a_dead_letter_topic_or_table() -> None:
    with pytest.raises(TooManyDeadLettersError) as raised:
        check_limits("p.s", None, letters(1), 10)
    assert "1 of 10 records cannot be read; for example offset 0 of a-0: no JSON" in str(
        raised.value
    )
    assert "name a dead-letter topic or table" in str(raised.value)


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


def test_only_as_many_are_read_as_exceed_the_limit() -> None:
    """A wrong schema makes a whole batch unreadable: the driver need not hold it."""
    assert most_allowed(None, 1000) == 0
    assert most_allowed(DeadLetterSpec(topic="dlq"), 1000) is None
    assert most_allowed(DeadLetterSpec(topic="dlq", max_count=3), 1000) == 3
    assert most_allowed(DeadLetterSpec(topic="dlq", max_share=0.0019), 1000) == 1
    assert most_allowed(DeadLetterSpec(topic="dlq", max_share=0.01), 99) is None
    both = DeadLetterSpec(topic="dlq", max_count=3, max_share=0.5)
    assert (most_allowed(both, 1000), most_allowed(both, 100)) == (3, 3)
    with pytest.raises(TooManyDeadLettersError, match="700 records of a batch cannot be read"):
        check_limits("p.s", both, letters(4), 1000, bad=700)
    with pytest.raises(TooManyDeadLettersError, match="700 of 1000 records of a batch cannot"):
        check_limits("p.s", DeadLetterSpec(topic="d", max_share=0.001), letters(2), 1000, bad=700)


def test_a_new_partition_counts_from_its_beginning() -> None:
    one, two = TopicPartition("a", 0), TopicPartition("a", 1)
    assert span(SourceOffsets({one: 5}), SourceOffsets({one: 9, two: 3})) == 7
