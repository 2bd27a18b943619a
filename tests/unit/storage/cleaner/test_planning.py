"""Which log compaction cleans, how far, and which segments become one."""

import logging
from dataclasses import replace

import pytest

from penstock.core.ids import TopicPartition
from penstock.storage.cleaner.planning import (
    LogToClean,
    SegmentSizes,
    by_dirty_ratio,
    durable_part,
    first_dirty_offset,
    group_segments,
    log_to_clean,
)
from penstock.storage.log_config import INT_MAX, LONG_MAX
from tests.support.storage.cleaning import COMPACT, TP, Broker

BOTH = frozenset({"compact", "delete"})


@pytest.fixture
def broker() -> Broker:
    """Three sealed segments of ten records each, and an active one with five."""
    broker = Broker()
    for segment in range(3):
        for n in range(10):
            broker.append((b"k%d" % n, b"v%d" % segment))
        broker.roll()
    for n in range(5):
        broker.append((b"k%d" % n, b"active"))
    return broker


def measured(broker: Broker, checkpoint: int | None = None) -> LogToClean:
    return log_to_clean(broker.log, checkpoint, broker.clock.now_ms())


def sizes(broker: Broker) -> list[int]:
    return [segment.size for segment in broker.log.local.segments]


class TestFirstDirtyOffset:
    def test_a_log_that_was_never_cleaned_is_dirty_from_its_start(self, broker: Broker) -> None:
        broker.log.increment_log_start_offset(4)
        assert first_dirty_offset(broker.log, None) == 4

    def test_the_dirty_part_starts_at_the_checkpoint(self, broker: Broker) -> None:
        assert first_dirty_offset(broker.log, 17) == 17
        assert first_dirty_offset(broker.log, 35) == 35

    def test_a_checkpoint_beyond_the_end_is_worth_nothing(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert first_dirty_offset(broker.log, 36) == 0
        assert "records were lost or truncated" in caplog.text

    def test_a_checkpoint_below_the_start_is_worth_nothing(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.log.increment_log_start_offset(12)
        assert first_dirty_offset(broker.log, 11) == 12
        assert "cleaning all of it" in caplog.text

    def test_retention_moves_the_start_without_a_warning(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.log.config = replace(COMPACT, cleanup_policy=BOTH)
        broker.log.increment_log_start_offset(12)
        with caplog.at_level(logging.WARNING):
            assert first_dirty_offset(broker.log, 11) == 12
        assert not caplog.text


class TestFirstUncleanableOffset:
    def test_the_active_segment_is_left_alone(self, broker: Broker) -> None:
        """S5."""
        result = measured(broker)
        assert result.first_uncleanable_offset == 30
        assert result.cleanable_bytes == sum(sizes(broker)[:3])
        assert result.clean_bytes == 0

    def test_records_above_the_high_watermark_are_not_deleted(self, broker: Broker) -> None:
        broker.log.high_watermark = 25
        assert measured(broker).first_uncleanable_offset == 20

    def test_an_open_transaction_is_left_alone(self) -> None:
        broker = Broker()
        broker.append((b"a", b"1"))
        broker.roll()
        broker.append((b"a", b"2"))
        broker.append((b"b", b"2"), producer_id=7, transactional=True)
        broker.roll()
        broker.append((b"a", b"3"))
        broker.roll()
        assert measured(broker).first_uncleanable_offset == 1
        broker.end_txn(7, commit=True)
        assert measured(broker).first_uncleanable_offset == 4

    def test_min_compaction_lag_leaves_young_segments_alone(self) -> None:
        broker = Broker(replace(COMPACT, min_compaction_lag_ms=1000))
        for _ in range(3):
            broker.append((b"k", b"v"))
            broker.roll()
            broker.advance(400)
        assert measured(broker).first_uncleanable_offset == 1
        broker.advance(200)
        assert measured(broker).first_uncleanable_offset == 2
        broker.advance(10_000)
        assert measured(broker).first_uncleanable_offset == 3

    def test_a_segment_that_is_not_on_disk_waits(self, broker: Broker) -> None:
        result = measured(broker)
        assert durable_part(result, 0, 0).first_uncleanable_offset == 0
        assert durable_part(result, 25, 0).first_uncleanable_offset == 20
        assert durable_part(result, 25, 0).cleanable_bytes == sum(sizes(broker)[:2])
        assert durable_part(result, broker.log.log_end_offset, 0) == result

    def test_nothing_is_cleanable_after_everything_was_cleaned(self, broker: Broker) -> None:
        result = measured(broker, 33)
        assert result.cleanable_bytes == 0
        assert not result.is_due


class TestWhetherDue:
    def test_the_dirty_ratio_must_be_passed(self, broker: Broker) -> None:
        """S5: `min.cleanable.dirty.ratio`."""
        result = measured(broker, 10)
        assert result.clean_bytes == sizes(broker)[0]
        assert result.cleanable_ratio == pytest.approx(2 / 3, abs=0.02)
        broker.log.config = replace(COMPACT, min_cleanable_dirty_ratio=result.cleanable_ratio)
        assert not result.is_due
        broker.log.config = replace(COMPACT, min_cleanable_dirty_ratio=0.6)
        assert result.is_due

    def test_an_empty_log_is_never_due(self) -> None:
        result = measured(Broker(replace(COMPACT, max_compaction_lag_ms=1)))
        assert result.total_bytes == 0
        assert result.cleanable_ratio == 0
        assert not result.is_due

    def test_max_compaction_lag_forces_a_cleaning(self) -> None:
        """S5: records that are dirty for too long are cleaned, regardless of the ratio."""
        config = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
        broker = Broker(config)
        broker.append((b"k", b"1"))
        broker.advance(1000)
        broker.append((b"k", b"2"))
        broker.roll()
        broker.advance(4000)
        assert not measured(broker).is_due
        broker.advance(1)
        assert measured(broker).overdue_ms == 1
        assert measured(broker).is_due
        assert measured(broker, 2).overdue_ms == 0

    def test_without_max_compaction_lag_nothing_is_overdue(self, broker: Broker) -> None:
        broker.advance(10**12)
        assert broker.log.config.max_compaction_lag_ms == LONG_MAX
        assert measured(broker).overdue_ms == 0

    def test_the_log_with_the_largest_dirty_ratio_is_first(self, broker: Broker) -> None:
        other_log = broker.create(TopicPartition("accounts", 1))
        for _ in range(2):
            broker.append((b"k", b"v"), log=other_log)
            broker.roll(other_log)
        clean = broker.create(TopicPartition("accounts", 2))
        some = measured(broker, 20)
        all_of_it = log_to_clean(other_log, None, 0)
        assert by_dirty_ratio([some, log_to_clean(clean, None, 0), all_of_it]) == [all_of_it, some]
        assert by_dirty_ratio([]) == []
        assert some.log.partition == TP


def facts(*segments: tuple[int, int]) -> list[SegmentSizes]:
    """Returns segments by base offset and size, with index entries for every hundred bytes."""
    return [SegmentSizes(base, size, size // 100 * 8, size // 100 * 12) for base, size in segments]


def grouped(
    segments: list[SegmentSizes], *, size: int = 1000, index_size: int = 10_000, end: int = 10_000
) -> list[list[int]]:
    groups = group_segments(
        segments, max_size=size, max_index_size=index_size, first_uncleanable_offset=end
    )
    return [[segments[n].base_offset for n in group] for group in groups]


class TestGroups:
    def test_neighbours_are_merged_up_to_segment_bytes(self) -> None:
        segments = facts((0, 400), (10, 600), (20, 1), (30, 998), (40, 2))
        assert grouped(segments) == [[0, 10], [20, 30], [40]]

    def test_a_segment_that_is_too_large_is_not_merged(self) -> None:
        assert grouped(facts((0, 5000), (10, 5000))) == [[0], [10]]

    def test_indexes_are_kept_within_segment_index_bytes(self) -> None:
        segments = facts((0, 200), (10, 200), (20, 200))
        assert grouped(segments, index_size=48) == [[0, 10], [20]]
        only_offsets = [SegmentSizes(base, 1, 30, 0) for base in (0, 10, 20)]
        assert grouped(only_offsets, index_size=60) == [[0, 10], [20]]

    def test_offsets_are_kept_within_31_bits_of_the_base(self) -> None:
        last = INT_MAX
        segments = facts((0, 10), (100, 10), (200, 10))
        assert grouped(segments, end=last + 1) == [[0, 100, 200]]
        assert grouped(segments, end=last + 2) == [[0, 100], [200]]
        far = facts((0, 10), (100, 10), (last + 2, 10))
        assert grouped(far, end=last + 200) == [[0], [100], [last + 2]]

    def test_an_empty_segment_has_no_offset_that_could_be_too_far(self) -> None:
        assert grouped(facts((0, 10), (100, 0)), end=INT_MAX * 2) == [[0, 100]]

    def test_no_segment_no_group(self) -> None:
        assert grouped([]) == []
