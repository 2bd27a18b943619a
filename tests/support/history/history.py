"""The history of a run against a cluster: what every client requested, and what it was told.

Clients record events as they happen, from any thread; the order of the list is the order in time.
An event that requests something is recorded before the call, one that reports a result after it.
So a request without a result may or may not have had an effect.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.core.ids import TopicPartition


class RecordId(NamedTuple):
    """Identifies a record: its value is `producer:number`. Numbers of a producer only grow."""

    producer: str
    number: int

    @property
    def value(self) -> bytes:
        return f"{self.producer}:{self.number}".encode()

    @classmethod
    def of(cls, value: bytes | None) -> "RecordId":
        producer, _, number = (value or b"?:0").decode().rpartition(":")
        return cls(producer, int(number))


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer was given a record."""

    record: RecordId
    partition: TopicPartition
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The record was written with acks=all; `offset` is -1 if the client does not know it."""

    record: RecordId
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Failed:
    """The producer reported an error for a record. It may have been written all the same."""

    record: RecordId
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommitRequested:
    transaction: str


@dataclass(frozen=True, slots=True)
class Committed:
    transaction: str


@dataclass(frozen=True, slots=True)
class Aborted:
    transaction: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member of a group was assigned partitions, and has read none of them yet."""

    consumer: str
    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A consumer has received a record. Consumers read only committed transactions."""

    consumer: str
    group: str | None
    partition: TopicPartition
    offset: int
    record: RecordId


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """The coordinator has confirmed committed offsets."""

    consumer: str
    group: str
    offsets: tuple[tuple[TopicPartition, int], ...]


Event: TypeAlias = (
    Sent
    | Acknowledged
    | Failed
    | CommitRequested
    | Committed
    | Aborted
    | Assigned
    | Read
    | OffsetsCommitted
)

FinalLog: TypeAlias = Mapping[TopicPartition, Mapping[int, RecordId]]
"""The committed records of each partition by offset, read when all faults had ended."""


@dataclass(frozen=True, slots=True)
class History:
    """What a run has recorded, and the records that exist at its end."""

    events: list[Event]
    final_log: FinalLog
    copies: Mapping[str, str] = field(default_factory=dict)
    """Topics to which transactions copied each record of another topic, exactly once."""


class HistoryRecorder:
    """Collects the events of all clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.events: list[Event] = []
        self.notes: list[tuple[int, str]] = []
        """Faults and errors, with the number of events before them; the checker ignores them."""

    def add(self, *events: Event) -> None:
        with self._lock:
            self.events += events

    def note(self, text: str) -> None:
        with self._lock:
            self.notes.append((len(self.events), text))

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in tuple(self.events))

    def write(self, path: Path) -> None:
        """Writes events and notes as text, for a person who looks into a violation."""
        with self._lock:
            events, notes = list(self.events), list(self.notes)
        lines: list[str] = []
        position = 0
        for number, text in [*notes, (len(events), "end")]:
            lines += map(str, events[position:number])
            lines.append(f"--- {text}")
            position = number
        path.write_text("".join(f"{line}\n" for line in lines))
