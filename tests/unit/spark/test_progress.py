"""Offsets as Spark stores them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from penstock.spark.errors import ProgressError
from penstock.spark.progress import Json, SourceOffsets, first_batch_start, with_first_batch_start

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=8)


@given(
    st.dictionaries(st.tuples(NAMES, st.integers(0, 300)), st.integers(0, 2**63 - 1), max_size=20),
    NAMES | st.just(""),
)
def test_offsets_are_read_as_they_were_written(
    offsets: dict[tuple[str, int], int], source: str
) -> None:
    partitions = {TopicPartition(*item): offset for item, offset in offsets.items()}
    ids = {topic: f"id of {topic}" for topic, _ in offsets}
    written = SourceOffsets(partitions, ids, source)
    assert SourceOffsets.from_json(json.loads(json.dumps(written.to_json()))) == written


def test_the_same_offsets_are_the_same_text() -> None:
    """Spark compares offsets as text, so the order of partitions is fixed."""
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    reversed_offsets = dict(reversed(offsets.items()))
    texts = {
        json.dumps(SourceOffsets(item, ids, "s").to_json())
        for item, ids in [(offsets, {"a": "1", "b": "2"}), (reversed_offsets, {"b": "2", "a": "1"})]
    }
    assert texts == {
        '{"#penstock": {"source": "s", "topicIds": {"a": "1", "b": "2"}}, '
        '"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    }


def test_offsets_of_sparks_own_source_are_read() -> None:
    result = SourceOffsets.from_json({"orders": {"0": 17, "1": 4}})
    assert result == SourceOffsets(
        {TopicPartition("orders", 0): 17, TopicPartition("orders", 1): 4}
    )


@pytest.mark.parametrize("topic_ids", [{}, {"t": "id"}])
def test_the_end_of_a_first_batch_contains_its_start(topic_ids: dict[str, str]) -> None:
    end = SourceOffsets({TopicPartition("t", 0): 7}, topic_ids)
    begin: dict[str, Json] = {"t": {"0": 5}}
    written = json.loads(json.dumps(with_first_batch_start(end.to_json(), begin)))
    assert SourceOffsets.from_json(written) == end
    assert first_batch_start(written) == begin
    assert first_batch_start(end.to_json()) is None


@pytest.mark.parametrize(
    "data",
    [
        {"orders": 5},
        {"orders": {"0": "5"}},
        {"orders": {"x": 5}},
        {"#penstock": 5},
        {"#penstock": {"topicIds": 5}},
        {"#penstock": {"source": 5}},
    ],
)
def test_invalid_offsets_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(ProgressError):
        SourceOffsets.from_json(data)  # type: ignore[arg-type]
