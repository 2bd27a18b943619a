"""The history of a run against a cluster: what every client requested, and the result.

Clients record events as they happen, from any thread or process; all have the same monotonic clock.
An event that requests something is recorded before the call, one that reports a result after it.
So a request without a result may or may not have had an effect.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.core.ids import TopicPartition


class RecordId(NamedTuple):
    """Identifies a record: its value is `producer:number`. Numbers of a producer only grow."""

    producer: str
    number: int

    def value(self, padding: int = 0) -> bytes:
        """Returns the value of the record, with so many bytes that mean nothing."""
        return f"{self.producer}:{self.number}{' ' * padding}".encode()

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
        self._entries: list[tuple[float, Event | str]] = []
        """Events, and notes of faults and errors, with the monotonic time."""

    def add(self, event: Event, at: float | None = None) -> None:
        """`at` is the time of an event that another process has recorded."""
        with self._lock:
            self._entries.append((time.monotonic() if at is None else at, event))

    def note(self, text: str) -> None:
        """Adds a text for people; the checker ignores it."""
        with self._lock:
            self._entries.append((time.monotonic(), text))

    def events(self) -> list[Event]:
        """Returns the events in the order of their times."""
        return [entry for _, entry in self._sorted() if not isinstance(entry, str)]

    def notes(self) -> list[str]:
        return [entry for _, entry in self._sorted() if isinstance(entry, str)]

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(entry, kind) for _, entry in tuple(self._entries))

    def write(self, path: Path) -> None:
        """Writes events and notes as text, for a person who looks into a violation."""
        lines = [f"{at:.3f} {entry}\n" for at, entry in self._sorted()]
        path.write_text("".join(lines))

    def _sorted(self) -> list[tuple[float, Event | str]]:
        with self._lock:
            return sorted(self._entries, key=lambda entry: entry[0])
