"""Where `penstock consume` begins and ends."""

import pytest

from penstock.cli.output import UsageError
from penstock.cli.records.reading_plan import (
    Span,
    Start,
    StartKind,
    chosen_partitions,
    parse_partitions,
    parse_span,
    start_offsets,
)
from penstock.core.ids import TopicPartition

PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("words", "span"),
    [
        ([], Span()),
        (["beginning"], Span(Start(StartKind.BEGINNING))),
        (["latest"], Span(Start(StartKind.END))),
        (["stored"], Span(Start(StartKind.STORED))),
        (["17"], Span(Start(StartKind.OFFSET, 17))),
        (["-3"], Span(Start(StartKind.LAST, 3))),
        (["s@5", "e@1700000000000"], Span(Start(StartKind.TIME, 5), 1700000000000)),
        (["e@1970-01-01T00:00:01Z"], Span(None, 1000)),
        (["s@1970-01-01T00:00:02"], Span(Start(StartKind.TIME, 2000))),
    ],
)
def test_spans(words: list[str], span: Span) -> None:
    assert parse_span(words) == span


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["middle"], "beginning, end"),
        (["--5"], "an offset"),
        (["s@soon"], "s@soon"),
        (["1", "2"], "start is given twice"),
        (["e@1", "e@2"], "end is given twice"),
    ],
)
def test_spans_that_make_no_sense(words: list[str], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        parse_span(words)


@pytest.mark.parametrize(
    ("start", "at_time", "offset"),
    [
        (Start(StartKind.BEGINNING), None, 10),
        (Start(StartKind.END), None, 20),
        (Start(StartKind.OFFSET, 15), None, 15),
        (Start(StartKind.OFFSET, 3), None, 10),
        (Start(StartKind.OFFSET, 99), None, 20),
        (Start(StartKind.LAST, 4), None, 16),
        (Start(StartKind.LAST, 40), None, 10),
        (Start(StartKind.TIME, 1), 12, 12),
        (Start(StartKind.TIME, 1), None, 20),
    ],
)
def test_offsets_lie_within_the_partition(start: Start, at_time: int | None, offset: int) -> None:
    offsets = start_offsets(start, {PARTITION: 10}, {PARTITION: 20}, {PARTITION: at_time})
    assert offsets == {PARTITION: offset}


def test_partitions() -> None:
    assert parse_partitions(["0,2-4", "7"]) == {0, 2, 3, 4, 7}
    assert chosen_partitions({"a": 2, "b": 1}, None) == [("a", 0), ("a", 1), ("b", 0)]
    assert chosen_partitions({"a": 3}, {2, 0}) == [("a", 0), ("a", 2)]


@pytest.mark.parametrize("word", ["", "x", "1-", "3-1", "-1", "0-99999999"])
def test_partitions_that_make_no_sense(word: str) -> None:
    with pytest.raises(UsageError, match="-p"):
        parse_partitions([word])


def test_a_partition_that_the_topic_does_not_have() -> None:
    with pytest.raises(
        UsageError, match="topic a has 2 partitions, 0 to 1: there is no partition 2"
    ):
        chosen_partitions({"a": 2}, {1, 2})
