"""Checks a history: nothing is lost, doubled, reordered, unseen, or read although it was aborted.

    violations = check(history)
    assert not violations, report(violations)

It is a pure function of the history. A request without a result may have had an effect or not: the
record of a failed send may exist, once and in its place; a transaction whose commit failed exists
as a whole or not at all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from penstock.core.ids import TopicPartition
from tests.support.history.history import (
    Aborted,
    Acknowledged,
    Assigned,
    CommitRequested,
    Committed,
    Failed,
    History,
    OffsetsCommitted,
    Read,
    RecordId,
    Sent,
)


class Kind(StrEnum):
    """What may be wrong."""

    LOST = "lost"
    """A record that was acknowledged, committed or read is not in the log."""
    DOUBLED = "doubled"
    """A record is in the log twice."""
    REORDERED = "reordered"
    """Two records of a producer are in a partition in another order than they were sent."""
    UNSEEN = "unseen"
    """A consumer, or all members of a group together, passed a record and did not receive it."""
    ABORTED_READ = "aborted but read"
    """A record of a transaction that was aborted, or never committed, was read."""
    PARTIAL = "partial transaction"
    """Some records of a transaction are in the log, others are not."""
    NON_MONOTONIC = "non-monotonic"
    """A position went back: within an assignment, or below an offset that was committed."""
    DIVERGED = "diverged"
    """An offset has another record than a producer or a consumer received for it."""
    PHANTOM = "phantom"
    """A record exists that nobody has sent to this partition."""


class Violation(NamedTuple):
    kind: Kind
    partition: TopicPartition | None
    text: str

    def __str__(self) -> str:
        location = "" if self.partition is None else f"{self.partition}: "
        return f"{self.kind}: {location}{self.text}"


def check(history: History) -> list[Violation]:
    """Returns everything that is wrong in a history; empty after a correct run."""
    facts = _Facts(history)
    return [
        *_check_log(history, facts),
        *_check_acknowledged(facts),
        *_check_transactions(facts),
        *_check_reads(history, facts),
        *_check_positions(history),
        *_check_groups(history),
        *_check_copies(history),
    ]


def report(violations: Sequence[Violation], shown: int = 5) -> str:
    """Returns the number of violations of each kind, and the first few of each."""
    lines = []
    for kind in Kind:
        selected = [violation for violation in violations if violation.kind is kind]
        if selected:
            lines.append(f"{len(selected)} {kind}")
            lines += [f"  {violation}" for violation in selected[:shown]]
    return "\n".join(lines) or "no violations"


class _Facts:
    """The events by subject."""

    def __init__(self, history: History) -> None:
        self.sent: dict[RecordId, Sent] = {}
        self.acknowledged: dict[RecordId, int] = {}
        self.reads: list[Read] = []
        self.transactions: dict[str, list[RecordId]] = defaultdict(list)
        self.commit_requested: set[str] = set()
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.offsets: dict[RecordId, list[tuple[TopicPartition, int]]] = defaultdict(list)
        """Where each record is in the final log, copies excluded."""
        for partition, records in history.final_log.items():
            if partition.topic not in history.copies:
                for offset, record in sorted(records.items()):
                    self.offsets[record].append((partition, offset))
        for event in history.events:
            match event:
                case Sent(record, _, transaction):
                    self.sent[record] = event
                    if transaction is not None:
                        self.transactions[transaction].append(record)
                case Acknowledged(record, offset):
                    self.acknowledged[record] = offset
                case CommitRequested(transaction):
                    self.commit_requested.add(transaction)
                case Committed(transaction):
                    self.committed.add(transaction)
                case Aborted(transaction):
                    self.aborted.add(transaction)
                case Read():
                    self.reads.append(event)
                case Failed() | Assigned() | OffsetsCommitted():
                    pass

    def must_not_exist(self, record: RecordId) -> bool:
        """Whether the record belongs to a transaction that cannot have been committed."""
        sent = self.sent.get(record)
        if sent is None or sent.transaction is None:
            return False
        transaction = sent.transaction
        return transaction in self.aborted or transaction not in self.commit_requested


def _check_log(history: History, facts: _Facts) -> Iterator[Violation]:
    """The final log has each record once, in its partition and in the order it was sent."""
    for record, places in facts.offsets.items():
        if len(places) > 1:
            yield Violation(Kind.DOUBLED, places[0][0], f"{record} is at {places}")
    for partition, records in history.final_log.items():
        if partition.topic in history.copies:
            continue
        last: dict[str, int] = {}
        for offset, record in sorted(records.items()):
            sent = facts.sent.get(record)
            if sent is None or sent.partition != partition:
                yield Violation(Kind.PHANTOM, partition, f"{record} at {offset} was not sent")
            if facts.must_not_exist(record):
                yield Violation(Kind.ABORTED_READ, partition, f"{record} is in the final log")
            if record.number < last.get(record.producer, -1):
                text = f"{record} at {offset} is behind number {last[record.producer]}"
                yield Violation(Kind.REORDERED, partition, text)
            last[record.producer] = max(record.number, last.get(record.producer, -1))


def _check_acknowledged(facts: _Facts) -> Iterator[Violation]:
    """Records acknowledged outside of transactions exist; all are at the offset of the response."""
    for record, offset in facts.acknowledged.items():
        sent = facts.sent[record]
        places = facts.offsets.get(record, [])
        if not places:
            if sent.transaction is None:
                yield Violation(Kind.LOST, sent.partition, f"{record}, acknowledged at {offset}")
        elif offset >= 0 and (sent.partition, offset) not in places:
            text = f"{record} was acknowledged at {offset} and is at {places}"
            yield Violation(Kind.DIVERGED, sent.partition, text)


def _check_transactions(facts: _Facts) -> Iterator[Violation]:
    """The records of a transaction exist all or not at all; those of a committed one exist."""
    for transaction, records in facts.transactions.items():
        missing = [record for record in records if record not in facts.offsets]
        if missing and transaction in facts.committed:
            partition = facts.sent[missing[0]].partition
            text = f"{missing} of the committed transaction {transaction}"
            yield Violation(Kind.LOST, partition, text)
        if missing and len(missing) < len(records) and transaction in facts.commit_requested:
            text = f"{len(missing)} of {len(records)} records of {transaction} are missing"
            yield Violation(Kind.PARTIAL, facts.sent[missing[0]].partition, text)


def _check_reads(history: History, facts: _Facts) -> Iterator[Violation]:
    """What consumers read is in the final log, at the same offset."""
    for read in facts.reads:
        final = history.final_log.get(read.partition, {}).get(read.offset)
        if facts.must_not_exist(read.record) and read.partition.topic not in history.copies:
            text = f"{read.record} at {read.offset} by {read.consumer}"
            yield Violation(Kind.ABORTED_READ, read.partition, text)
        elif final is None:
            text = f"{read.record} at {read.offset} was read by {read.consumer}"
            yield Violation(Kind.LOST, read.partition, text)
        elif final != read.record:
            text = f"{read.offset} was {read.record} for {read.consumer} and is {final}"
            yield Violation(Kind.DIVERGED, read.partition, text)


def _check_positions(history: History) -> Iterator[Violation]:
    """Within an assignment a consumer reads on without a gap, from the committed offset or later.

    An offset that was confirmed before the assignment is visible to the new member.
    """
    offsets = {partition: sorted(log) for partition, log in history.final_log.items()}
    visible = {partition: _Positions(log) for partition, log in offsets.items()}
    committed: dict[tuple[str, TopicPartition], int] = {}
    minimum: dict[tuple[str, TopicPartition], int] = {}
    last: dict[tuple[str, TopicPartition], int] = {}
    for event in history.events:
        match event:
            case OffsetsCommitted(_, group, positions):
                for partition, offset in positions:
                    key = (group, partition)
                    committed[key] = max(offset, committed.get(key, 0))
            case Assigned(consumer, group, partitions):
                for partition in partitions:
                    last.pop((consumer, partition), None)
                    minimum[consumer, partition] = committed.get((group, partition), 0)
            case Read(consumer, _, partition, offset, record):
                key = (consumer, partition)
                if offset < minimum.get(key, 0):
                    text = f"{consumer} reads {offset}, the group had committed {minimum[key]}"
                    yield Violation(Kind.NON_MONOTONIC, partition, text)
                    minimum[key] = 0  # once for each assignment
                previous = last.get(key)
                if previous is not None and offset <= previous:
                    text = f"{consumer} reads {record} at {offset} after {previous}"
                    yield Violation(Kind.NON_MONOTONIC, partition, text)
                elif previous is not None and partition in visible:
                    for skipped in visible[partition].between(previous, offset):
                        text = f"{consumer} reads {offset} after {previous}, without {skipped}"
                        yield Violation(Kind.UNSEEN, partition, text)
                last[key] = offset
            case _:
                pass


class _Positions:
    """The offsets of a partition that have a record, and the one that follows each."""

    def __init__(self, offsets: Sequence[int]) -> None:
        self._offsets = offsets
        self._numbers = {offset: number for number, offset in enumerate(offsets)}

    def between(self, first: int, last: int) -> Iterable[int]:
        """Returns the offsets after `first` and before `last`."""
        number = self._numbers.get(first)
        if number is None:  # reported as lost already
            return
        for following in range(number + 1, len(self._offsets)):
            if self._offsets[following] >= last:
                return
            yield self._offsets[following]


def _check_groups(history: History) -> Iterator[Violation]:
    """Some member of a group has received each record before the group's position."""
    received: dict[str, dict[TopicPartition, set[int]]] = defaultdict(lambda: defaultdict(set))
    ends: dict[str, Counter[TopicPartition]] = defaultdict(Counter)
    for event in history.events:
        match event:
            case Read(_, str(group), partition, offset, _):
                received[group][partition].add(offset)
                ends[group][partition] = max(offset + 1, ends[group][partition])
            case OffsetsCommitted(_, group, positions):
                for partition, offset in positions:
                    ends[group][partition] = max(offset, ends[group][partition])
            case _:
                pass
    for group, positions_of_group in ends.items():
        for partition, end in positions_of_group.items():
            for offset, record in sorted(history.final_log.get(partition, {}).items()):
                if offset < end and offset not in received[group][partition]:
                    text = f"no member of {group} has received {record} at {offset}"
                    yield Violation(Kind.UNSEEN, partition, text)


def _check_copies(history: History) -> Iterator[Violation]:
    """Each record of a source is in the topic of its copies once, in the order of its partition."""
    for target, source in history.copies.items():
        partitions = {partition for partition in history.final_log if partition.topic == source}
        for partition in sorted(partitions):
            copy = TopicPartition(target, partition.partition)
            originals = [record for _, record in sorted(history.final_log[partition].items())]
            copies = [record for _, record in sorted(history.final_log.get(copy, {}).items())]
            counts = Counter(copies)
            for record, count in counts.items():
                if count > 1:
                    yield Violation(Kind.DOUBLED, copy, f"{count} copies of {record}")
            for record in originals:
                if record not in counts:
                    yield Violation(Kind.LOST, copy, f"the copy of {record}")
            expected = [record for record in originals if record in counts]
            unique = list(dict.fromkeys(copies))
            known_values = set(originals)
            for record in unique:
                if record not in known_values:
                    yield Violation(Kind.PHANTOM, copy, f"a copy of {record}, which is not there")
            if [record for record in unique if record in known_values] != expected:
                yield Violation(Kind.REORDERED, copy, "the copies have another order")
