"""What goes into a group shard and what comes out, as values."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from penstock.coordinator.group.classic import ClassicGroup
from penstock.coordinator.group.records import Record
from penstock.coordinator.machine import CancelTimer, Reply, SetTimer, TimerFired
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message


class Topics(Protocol):
    """What the machine asks about topics while it decides."""

    def topic_id(self, name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def has_partition(self, name: str, partition: int) -> bool: ...


class Context(Struct, frozen=True, gc=False):
    """Who sends a request, and what the machine may need to decide about it."""

    waiter: int
    """The number under which the reply will come. The host never uses it for another request."""
    version: int
    client_id: str
    client_host: str
    """As Kafka's tools show it: `/127.0.0.1`."""
    uuid: str
    """A fresh random UUID: the end of the member id, where the request makes a member."""
    topics: Topics


# --- timers: what can be due


class SessionTimer(Struct, frozen=True, gc=False):
    """A member has not been heard of for its session timeout."""

    group_id: str
    member_id: str


class JoinTimer(Struct, frozen=True, gc=False):
    """A group has waited long enough for its members to join."""

    group_id: str


class SyncTimer(Struct, frozen=True, gc=False):
    """A group has waited long enough for its members to fetch their assignments."""

    group_id: str


class ExpiryTimer(Struct, frozen=True, gc=False):
    """It is time to look for offsets that have expired."""


Timer = SessionTimer | JoinTimer | SyncTimer | ExpiryTimer


# --- events


class Requested(Struct, frozen=True, gc=False):
    """A request for a group of this shard; see `fan_out` for those that name several groups."""

    request: Message
    context: Context


class PartitionsDeleted(Struct, frozen=True, gc=False):
    """Partitions of topics are gone, and with them what groups have committed there."""

    partitions: frozenset[TopicPartition]


Event = Requested | TimerFired[Timer] | PartitionsDeleted


# --- results


class Result(Struct, frozen=True):
    """What was decided. Nothing has changed yet; `shard` says what a host does with it."""

    event: Event | None = None
    """What it answers; None for a result of `loaded` or `failed`."""
    records: Sequence[Record] = ()
    """To append, in one batch where `atomic`."""
    groups: Sequence[ClassicGroup] = ()
    """The live groups as they are from now on: with what no record keeps, such as who waits."""
    replies: Sequence[Reply] = ()
    timers: Sequence[SetTimer[Timer] | CancelTimer[Timer]] = ()
    atomic: bool = True

    @property
    def changes(self) -> list[Record | ClassicGroup]:
        """What `apply` takes, in order."""
        return [*self.records, *self.groups]
