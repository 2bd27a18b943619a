"""Elections are counted from the committed changes (R5)."""

from msgspec.structs import replace

from penstock.controller.election_counts import ElectionCounts
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Delete, PartitionRecord, Put

FIRST = PartitionRecord("t", 0, 1, 0, (1, 2), 1, 0)


def counts_of(change: Change) -> tuple[int, int]:
    image = ClusterImage()
    image.partitions[FIRST.key] = FIRST
    counts = ElectionCounts()
    counts.add(image, [change])
    return counts.elections, counts.unclean


def test_a_new_leader_of_the_isr_is_an_election() -> None:
    assert counts_of(Put(replace(FIRST, leader=2, leader_epoch=1, isr=(2,)))) == (1, 0)


def test_a_leader_from_outside_the_isr_is_unclean() -> None:
    assert counts_of(Put(replace(FIRST, leader=3, leader_epoch=1, isr=(3,)))) == (1, 1)


def test_other_changes_are_no_elections() -> None:
    assert counts_of(Put(replace(FIRST, isr=(1,)))) == (0, 0)
    assert counts_of(Put(replace(FIRST, leader=-1, leader_epoch=1))) == (0, 0)
    assert counts_of(Put(replace(FIRST, partition=1))) == (0, 0)
    assert counts_of(Delete(FIRST.key)) == (0, 0)
