"""Offsets in open transactions (P4)."""

from penstock.coordinator.group.offsets.pending import PendingOffsets
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

KEY = OffsetCommitKey("group", "topic", 3)
OTHER = OffsetCommitKey("group", "topic", 4)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset)


def test_a_committed_transaction_applies_its_offsets() -> None:
    pending = PendingOffsets()
    pending.add(7, KEY, value(1))
    pending.add(7, OTHER, value(2))
    pending.add(7, KEY, value(5))
    assert pending
    assert pending.is_open("group", "topic", 3)
    assert pending.has_open("group")
    assert not pending.is_open("group", "topic", 5)
    assert not pending.has_open("another")
    assert pending.end(7, commit=True) == [(KEY, value(5)), (OTHER, value(2))]
    assert not pending
    assert not pending.has_open("group")


def test_an_aborted_transaction_drops_its_offsets() -> None:
    pending = PendingOffsets()
    pending.add(7, KEY, value(1))
    assert pending.end(7, commit=False) == []
    assert not pending.is_open("group", "topic", 3)
    assert pending.end(7, commit=True) == []


def test_a_later_plain_commit_wins_over_the_transaction() -> None:
    pending = PendingOffsets()
    pending.add(7, KEY, value(1))
    pending.supersede(KEY)
    assert pending.is_open("group", "topic", 3), "the transaction may yet commit again"
    pending.add(7, OTHER, value(2))
    assert pending.end(7, commit=True) == [(OTHER, value(2))]


def test_a_later_transactional_commit_wins_over_a_plain_one() -> None:
    pending = PendingOffsets()
    pending.add(7, KEY, value(1))
    pending.supersede(KEY)
    pending.add(7, KEY, value(9))
    assert pending.end(7, commit=True) == [(KEY, value(9))]


def test_the_later_record_wins_between_transactions() -> None:
    pending = PendingOffsets()
    pending.add(7, KEY, value(1))
    pending.add(8, KEY, value(2))
    assert pending.end(8, commit=True) == [(KEY, value(2))]
    assert pending.is_open("group", "topic", 3)
    assert pending.end(7, commit=True) == []
    pending.add(7, KEY, value(3))
    pending.add(8, KEY, value(4))
    assert pending.end(7, commit=True) == [(KEY, value(3))]
    assert pending.end(8, commit=True) == [(KEY, value(4))]


def test_a_tombstone_removes_pending_offsets() -> None:
    pending = PendingOffsets()
    pending.add(7, KEY, value(1))
    pending.add(8, KEY, value(2))
    pending.add(8, OTHER, value(3))
    assert sorted(pending.partitions("group")) == [("topic", 3), ("topic", 4)]
    pending.remove(KEY)
    pending.remove(KEY)
    assert not pending.is_open("group", "topic", 3)
    assert pending.end(7, commit=True) == []
    assert pending.end(8, commit=True) == [(OTHER, value(3))]
