"""The checker passes correct histories, and reports each kind of planted fault."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from tests.support.history.history import (
    Aborted,
    Acknowledged,
    Assigned,
    CommitRequested,
    Committed,
    Event,
    Failed,
    History,
    OffsetsCommitted,
    Read,
    RecordId,
    Sent,
)
from tests.support.history.history_checker import Kind, check, report

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
COPIES = TopicPartition("copies", 0)
FIRST = PARTITIONS[0]


@dataclass
class IdealCluster:
    """A cluster without faults, and clients whose requests sometimes have no result."""

    rng: Random
    events: list[Event] = field(default_factory=list)
    log: dict[TopicPartition, dict[int, RecordId]] = field(
        default_factory=lambda: {partition: {} for partition in PARTITIONS}
    )
    ends: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    committed: dict[TopicPartition, int] = field(
        default_factory=lambda: dict.fromkeys(PARTITIONS, 0)
    )
    positions: dict[TopicPartition, int] = field(
        default_factory=lambda: dict.fromkeys(PARTITIONS, 0)
    )
    numbers: int = 0
    members: int = 0

    def history(self) -> History:
        return History(self.events, self.log)

    def produce(self) -> None:
        record, partition = self._next(), self.rng.choice(PARTITIONS)
        self.events.append(Sent(record, partition))
        outcome = self.rng.choice(("acknowledged", "acknowledged", "failed", "unknown"))
        if outcome == "acknowledged":
            self.events.append(Acknowledged(record, self._append(partition, record)))
            return
        if self.rng.random() < 0.5:
            self._append(partition, record)
        if outcome == "failed":
            self.events.append(Failed(record))

    def transact(self) -> None:
        transaction = f"txn-{self.numbers}"
        records = [(self._next(), self.rng.choice(PARTITIONS)) for _ in range(3)]
        self.events += [Sent(record, partition, transaction) for record, partition in records]
        outcome = self.rng.choice(("commit", "commit", "abort", "forget", "unknown"))
        if outcome in ("commit", "unknown"):
            self.events.append(CommitRequested(transaction))
        is_visible = outcome == "commit" or (outcome == "unknown" and self.rng.random() < 0.5)
        for record, partition in records:
            offset = self._append(partition, record, is_visible=is_visible)
            if self.rng.random() < 0.5:
                self.events.append(Acknowledged(record, offset))
        if outcome == "commit":
            self.events.append(Committed(transaction))
        if outcome == "abort":
            self.events.append(Aborted(transaction))

    def read(self) -> None:
        """The current member of the group reads a few records."""
        if not self.members:
            self.rebalance()
        partition = self.rng.choice(PARTITIONS)
        for offset in sorted(self.log[partition]):
            if offset >= self.positions[partition] and self.rng.random() < 0.9:
                record = self.log[partition][offset]
                self.events.append(Read(self._member, "group", partition, offset, record))
                self.positions[partition] = offset + 1
            elif offset >= self.positions[partition]:
                break

    def commit(self) -> None:
        if self.members:
            self.committed.update(self.positions)
            offsets = tuple(self.positions.items())
            self.events.append(OffsetsCommitted(self._member, "group", offsets))

    def rebalance(self) -> None:
        """Another member continues from the committed offsets."""
        self.members += 1
        self.positions = dict(self.committed)
        self.events.append(Assigned(self._member, "group", PARTITIONS))

    @property
    def _member(self) -> str:
        return f"member-{self.members}"

    def _next(self) -> RecordId:
        self.numbers += 1
        return RecordId(f"producer-{self.rng.randrange(2)}", self.numbers)

    def _append(
        self, partition: TopicPartition, record: RecordId, *, is_visible: bool = True
    ) -> int:
        offset = self.ends[partition]
        self.ends[partition] += 1
        if is_visible:
            self.log[partition][offset] = record
        return offset


ACTIONS: tuple[Callable[[IdealCluster], None], ...] = (
    IdealCluster.produce,
    IdealCluster.produce,
    IdealCluster.transact,
    IdealCluster.read,
    IdealCluster.commit,
    IdealCluster.rebalance,
)


def ideal_cluster(seed: int, actions: int = 80) -> IdealCluster:
    cluster = IdealCluster(Random(seed))
    for _ in range(actions):
        cluster.rng.choice(ACTIONS)(cluster)
    return cluster


@given(st.integers(0, 2**32))
def test_correct_histories_pass(seed: int) -> None:
    violations = check(ideal_cluster(seed).history())
    assert not violations, report(violations)


# --- faults planted in correct histories


def events_of(cluster: IdealCluster, kind: type[Event]) -> list[Event]:
    return [event for event in cluster.events if isinstance(event, kind)]


def lose_acknowledged(cluster: IdealCluster) -> bool:
    transactional = {e.record for e in cluster.events if isinstance(e, Sent) and e.transaction}
    for event in cluster.events:
        if isinstance(event, Acknowledged) and event.record not in transactional:
            for log in cluster.log.values():
                if log.get(event.offset) == event.record:
                    del log[event.offset]
                    return True
    return False


def lose_one_of_a_transaction(cluster: IdealCluster) -> bool:
    committed = {event.transaction for event in cluster.events if isinstance(event, Committed)}
    for event in cluster.events:
        if isinstance(event, Sent) and event.transaction in committed:
            log = cluster.log[event.partition]
            offset = next(offset for offset, record in log.items() if record == event.record)
            del log[offset]
            return True
    return False


def double(cluster: IdealCluster) -> bool:
    log = cluster.log[FIRST]
    if not log:
        return False
    log[max(log) + 1] = next(iter(log.values()))
    return True


def swap_two_of_a_producer(cluster: IdealCluster) -> bool:
    log = cluster.log[FIRST]
    offsets = sorted(log)
    for first, second in pairwise(offsets):
        if log[first].producer == log[second].producer:
            log[first], log[second] = log[second], log[first]
            return True
    return False


def skip_a_read(cluster: IdealCluster) -> bool:
    """Removes all reads of an offset that some member has passed."""
    reads = [event for event in cluster.events if isinstance(event, Read)]
    for read in reads:
        is_last = all(
            other.offset <= read.offset for other in reads if other.partition == read.partition
        )
        if not is_last:
            cluster.events = [
                event
                for event in cluster.events
                if not isinstance(event, Read)
                or (event.partition, event.offset) != (read.partition, read.offset)
            ]
            return True
    return False


def skip_in_an_assignment(cluster: IdealCluster) -> bool:
    """A member skips a record that another member has read."""
    reads = [event for event in cluster.events if isinstance(event, Read)]
    for read in reads:
        own = [
            other.offset
            for other in reads
            if (other.consumer, other.partition) == (read.consumer, read.partition)
        ]
        others = [
            other
            for other in reads
            if other.consumer != read.consumer
            and (other.partition, other.offset) == (read.partition, read.offset)
        ]
        if others and min(own) < read.offset < max(own):
            cluster.events.remove(read)
            return True
    return False


def read_an_aborted_record(cluster: IdealCluster) -> bool:
    aborted = {event.transaction for event in cluster.events if isinstance(event, Aborted)}
    for event in list(cluster.events):
        if isinstance(event, Sent) and event.transaction in aborted:
            cluster.events.append(Read("other", None, event.partition, 1000, event.record))
            return True
    return False


def read_an_unfinished_transaction(cluster: IdealCluster) -> bool:
    cluster.events.append(Sent(RecordId("p", 1), FIRST, "unfinished"))
    cluster.log[FIRST][1000] = RecordId("p", 1)
    return True


def read_twice(cluster: IdealCluster) -> bool:
    reads = events_of(cluster, Read)
    if not reads:
        return False
    cluster.events.insert(cluster.events.index(reads[-1]), reads[-1])
    return True


def forget_committed_offsets(cluster: IdealCluster) -> bool:
    """A new member starts from the beginning, although offsets were committed."""
    first = min(cluster.log[FIRST], default=None)
    if first is None or cluster.committed[FIRST] <= first:
        return False
    cluster.events.append(Assigned("late", "group", PARTITIONS))
    cluster.events.append(Read("late", "group", FIRST, first, cluster.log[FIRST][first]))
    return True


def acknowledge_another_offset(cluster: IdealCluster) -> bool:
    for number, event in enumerate(cluster.events):
        if isinstance(event, Acknowledged) and any(
            log.get(event.offset) == event.record for log in cluster.log.values()
        ):
            cluster.events[number] = Acknowledged(event.record, event.offset + 1)
            return True
    return False


def read_another_record(cluster: IdealCluster) -> bool:
    for number, event in enumerate(cluster.events):
        if isinstance(event, Read):
            cluster.events[number] = Read(
                event.consumer, None, event.partition, event.offset, RecordId("another", 1)
            )
            return True
    return False


def read_what_vanishes(cluster: IdealCluster) -> bool:
    end = cluster.ends[FIRST]
    cluster.events += [Sent(RecordId("p", 1), FIRST), Read("c", None, FIRST, end, RecordId("p", 1))]
    return True


def invent(cluster: IdealCluster) -> bool:
    cluster.log[FIRST][1000] = RecordId("nobody", 1)
    return True


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_acknowledged, Kind.LOST),
        (lose_one_of_a_transaction, Kind.LOST),
        (lose_one_of_a_transaction, Kind.PARTIAL),
        (read_what_vanishes, Kind.LOST),
        (double, Kind.DOUBLED),
        (swap_two_of_a_producer, Kind.REORDERED),
        (skip_a_read, Kind.UNSEEN),
        (skip_in_an_assignment, Kind.UNSEEN),
        (read_an_aborted_record, Kind.ABORTED_READ),
        (read_an_unfinished_transaction, Kind.ABORTED_READ),
        (read_twice, Kind.NON_MONOTONIC),
        (forget_committed_offsets, Kind.NON_MONOTONIC),
        (acknowledge_another_offset, Kind.DIVERGED),
        (read_another_record, Kind.DIVERGED),
        (invent, Kind.PHANTOM),
    ],
)
def test_planted_faults_are_reported(plant: Callable[[IdealCluster], bool], kind: Kind) -> None:
    planted = 0
    for seed in range(40):
        cluster = ideal_cluster(seed)
        if plant(cluster):
            planted += 1
            kinds = {violation.kind for violation in check(cluster.history())}
            assert kind in kinds, f"seed {seed} has {kinds}"
    assert planted >= 5


# --- copies


def copied(*numbers: int) -> History:
    """A history in which records 1, 2 and 3 of a partition were copied in this order."""
    originals = [RecordId("p", number) for number in (1, 2, 3)]
    events: list[Event] = [Sent(record, FIRST) for record in originals]
    copies = [RecordId("p", number) for number in numbers]
    log = {FIRST: dict(enumerate(originals)), COPIES: dict(enumerate(copies))}
    return History(events, log, {"copies": "t"})


def test_correct_copies_pass() -> None:
    assert check(copied(1, 2, 3)) == []


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ((1, 3), Kind.LOST),
        ((1, 2, 2, 3), Kind.DOUBLED),
        ((1, 3, 2), Kind.REORDERED),
        ((1, 2, 3, 4), Kind.PHANTOM),
    ],
)
def test_wrong_copies_are_reported(numbers: tuple[int, ...], kind: Kind) -> None:
    assert {violation.kind for violation in check(copied(*numbers))} == {kind}


def test_a_report_counts_by_kind() -> None:
    text = report(check(copied(1, 1, 3)))
    assert "1 lost" in text
    assert "1 doubled" in text
    assert report([]) == "no violations"
