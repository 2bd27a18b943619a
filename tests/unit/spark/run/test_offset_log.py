"""Spark's offset log, and the stored start of a query (D3)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from penstock.spark.errors import PipelineError, ProgressError
from penstock.spark.progress import SourceOffsets
from penstock.spark.run.offset_log import (
    Checkpoint,
    by_name,
    number_repeated,
    parse_offsets,
    source_of,
)

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"a":"{\\"-\\":1}"}}'


def offsets(source: str, *numbers: int) -> SourceOffsets:
    result = {TopicPartition(source, index): number for index, number in enumerate(numbers)}
    return SourceOffsets(result, {source: f"id-{source}"}, source)


def written(*sources: SourceOffsets) -> str:
    return "\n".join(["v1", METADATA, *(json.dumps(source.to_json()) for source in sources)])


@given(st.lists(st.lists(st.integers(0, 2**62), max_size=4), min_size=1, max_size=4))
def test_offsets_of_the_source_are_read_back(numbers: list[list[int]]) -> None:
    sources = [offsets(f"s{index}", *number) for index, number in enumerate(numbers)]
    assert [source.offsets for source in parse_offsets(written(*sources))] == [
        source.offsets for source in sources
    ]


def test_sources_are_in_the_order_of_the_plan() -> None:
    text = written(offsets("orders", 5), offsets("clicks", 7, 8))
    assert list(by_name(parse_offsets(text))) == ["orders", "clicks"]


def test_a_source_without_an_offset_has_none() -> None:
    assert parse_offsets(f"v1\n{METADATA}\n-\n" + '{"a": {"0": 3}}') == [
        SourceOffsets({}),
        SourceOffsets({TopicPartition("a", 0): 3}),
    ]


def test_the_second_format_has_names_before_the_offsets() -> None:
    text = f"v2\n{METADATA}\n0:" + json.dumps(offsets("a", 3).to_json()) + "\n1:-"
    assert parse_offsets(text) == [offsets("a", 3), SourceOffsets({})]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(PipelineError, match="newer version of Spark"):
        parse_offsets("v3\n{}\n{}")


def test_offsets_of_another_kind_of_source_are_refused() -> None:
    with pytest.raises(ProgressError):
        parse_offsets(f'v1\n{METADATA}\n{{"logOffset": 3}}')


def test_a_source_that_is_read_twice_has_two_names() -> None:
    names = number_repeated(["a", "b", "a", "a"])
    assert names == ["a", "b", "a#2", "a#3"]
    assert [source_of(name) for name in names] == ["a", "b", "a", "a"]


class OffsetLogDirectory:
    """The files of a checkpoint, in memory."""

    def __init__(self, **files: str) -> None:
        self.files = {name.replace("__", "/"): text for name, text in files.items()}

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def write(self, path: str, text: str) -> None:
        self.files[path] = text

    def names(self, directory: str) -> list[str]:
        below = f"{directory}/" if directory else ""
        return [
            name.removeprefix(below).split("/")[0] for name in self.files if name.startswith(below)
        ]

    def remove(self) -> None:
        self.files.clear()


def test_a_checkpoint_contains_its_query_and_its_last_batches() -> None:
    files = OffsetLogDirectory(
        metadata='{"id":"query-1"}', offsets__9="", offsets__10="", commits__9=""
    )
    files.files["offsets/.10.crc"] = ""
    checkpoint = Checkpoint(files)
    assert (checkpoint.query_id, checkpoint.last_planned, checkpoint.last_done) == (
        "query-1",
        10,
        9,
    )
    assert checkpoint.exists


def test_no_checkpoint() -> None:
    checkpoint = Checkpoint(OffsetLogDirectory())
    assert not checkpoint.exists
    assert checkpoint.query_id is None
    assert checkpoint.last_planned is None
    assert checkpoint.begin is None
    assert checkpoint.end_of(0) is None


def test_the_start_of_a_query_is_stored() -> None:
    checkpoint = Checkpoint(OffsetLogDirectory())
    begin = {"a": offsets("a", 3), "a#2": offsets("a", 3)}
    checkpoint.write_begin(begin)
    assert checkpoint.begin == begin
    checkpoint.remove()
    assert not checkpoint.exists
