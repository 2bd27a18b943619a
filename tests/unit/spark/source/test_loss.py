"""The start of a batch, and lost records (D1)."""

from penstock.core.ids import TopicPartition
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.loss import (
    BatchStart,
    batch_start,
    new_partitions,
    ranges_between,
    recreated_since,
)
from penstock.spark.source.ranges import OffsetRange

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = TopicPartition("u", 0)
IDS = {"t": "first"}


def offsets(values: dict[TopicPartition, int], ids: dict[str, str] | None = None) -> SourceOffsets:
    return SourceOffsets(values, IDS if ids is None else ids)


def test_nothing_is_lost() -> None:
    begin = batch_start(offsets({A: 3, B: 5}), offsets({A: 10, B: 5}), {A: 3, B: 0})
    assert begin == BatchStart({A: 3, B: 5}, ())


def test_a_new_partition_is_read_from_its_beginning() -> None:
    start, end = offsets({A: 3}), offsets({A: 3, B: 5})
    assert new_partitions(start, end) == {B}
    assert batch_start(start, end, {B: 0}) == BatchStart({A: 3, B: 0}, ())
    late = batch_start(start, end, {B: 2})
    assert late.offsets == {A: 3, B: 2}
    assert late.losses == ("new partition t-1 starts at offset 2 instead of 0",)


def test_a_partition_that_was_added_and_removed_is_lost() -> None:
    begin = batch_start(offsets({A: 3}), offsets({A: 3, B: 5}), {})
    assert begin == BatchStart({A: 3}, ("t-1 is gone",))


def test_a_missing_partition_is_lost() -> None:
    begin = batch_start(offsets({A: 3, OTHER: 1}), offsets({A: 4}), {})
    assert begin == BatchStart({A: 3}, ("u-0 is gone",))


def test_records_deleted_before_they_were_read_are_lost() -> None:
    begin = batch_start(offsets({A: 3}), offsets({A: 10}), {A: 5})
    assert begin.offsets == {A: 5}
    assert begin.losses == ("t-0 starts at offset 5 now, and was read up to 3 only",)
    all_deleted = batch_start(offsets({A: 3}), offsets({A: 10}), {A: 20})
    assert all_deleted.offsets == {A: 10}
    assert len(all_deleted.losses) == 1


def test_deleted_records_outside_the_batch_are_not_reported() -> None:
    assert batch_start(offsets({A: 3}), offsets({A: 3}), {A: 5}).losses == ()


def test_a_truncated_log_is_reported() -> None:
    begin = batch_start(offsets({A: 9}), offsets({A: 4}), {A: 0})
    assert begin.losses[0].startswith("t-0 ends at offset 4, and was read up to 9")
    assert ranges_between(begin, offsets({A: 4}))[0].size < 0


def test_a_recreated_topic_is_read_from_its_start() -> None:
    start, end = offsets({A: 9, OTHER: 1}), offsets({A: 4, OTHER: 2}, {"t": "second"})
    assert new_partitions(start, end) == {A}
    begin = batch_start(start, end, {A: 0})
    assert begin.offsets == {A: 0, OTHER: 1}
    assert [loss.split(":")[0] for loss in begin.losses] == [
        "topic t was deleted and created again"
    ]


def test_offsets_without_topic_ids_belong_to_the_current_topic() -> None:
    """A checkpoint of Spark's own source, or a broker without ids."""
    assert batch_start(offsets({A: 3}, {}), offsets({A: 4}), {}) == BatchStart({A: 3}, ())


def test_ranges_carry_the_id_of_the_topic() -> None:
    assert ranges_between(BatchStart({B: 1, A: 3}, ()), offsets({A: 4, B: 2, OTHER: 9})) == [
        OffsetRange("t", 0, 3, 4, "first"),
        OffsetRange("t", 1, 1, 2, "first"),
    ]


def test_topics_recreated_after_planning_are_detected() -> None:
    end = offsets({A: 4, OTHER: 1}, {"t": "first", "u": "other"})
    assert recreated_since(end, {"t": "second", "u": "other"}) == {"t"}
    assert recreated_since(end, {"u": "other"}) == frozenset()
