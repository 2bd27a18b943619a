"""The interface between a coordinator's state machine and its host, as values.

A state machine is a shard: the state of one partition of a coordinator's topic. Its `handle`
decides and changes nothing; only applying records changes state. `group.shard` describes how a host
runs it.
"""

from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message

TimerT_co = TypeVar("TimerT_co", bound=Hashable, covariant=True)
"""The timers of a shard: values that name what is due."""
EventT_contra = TypeVar("EventT_contra", contravariant=True)
"""The events that a shard handles."""
ChangeT_contra = TypeVar("ChangeT_contra", contravariant=True)
"""What a shard applies: records, and changes that no record holds."""
ChangeT_co = TypeVar("ChangeT_co", covariant=True)
ResultT = TypeVar("ResultT")
"""The results of a shard, see `CoordinatorResult`."""


class SetTimer(Struct, Generic[TimerT_co], frozen=True, gc=False):
    """Sets a timer. It replaces a deadline that the same timer had."""

    timer: TimerT_co
    deadline_ms: int


class CancelTimer(Struct, Generic[TimerT_co], frozen=True, gc=False):
    timer: TimerT_co


class TimerFired(Struct, Generic[TimerT_co], frozen=True, gc=False):
    """An event: a timer is due, and is no longer set."""

    timer: TimerT_co


class Response(Struct, frozen=True, gc=False):
    """The response to the request that waits under this number."""

    waiter: int
    message: Message


class Skipped(Struct, frozen=True):
    """A record of a coordinator's log that is not applied. The note says why, for the log."""

    note: str


class Damaged(Struct, frozen=True):
    """A batch of a coordinator's log that cannot be read: what it stated is lost."""

    note: str


class CoordinatorResult(Protocol[TimerT_co, ChangeT_co]):
    """What the results of all shards have in common."""

    @property
    def records(self) -> Sequence[object]: ...

    @property
    def changes(self) -> Sequence[ChangeT_co]: ...

    @property
    def responses(self) -> Sequence[Response]: ...

    @property
    def timers(self) -> Sequence[SetTimer[TimerT_co] | CancelTimer[TimerT_co]]: ...


class Shard(Protocol[EventT_contra, ResultT, ChangeT_contra]):
    """The state machine of one partition: events in, results out."""

    def apply(self, change: ChangeT_contra) -> None:
        """Applies a record or another change; nothing else changes the state."""
        ...

    def on_damage(self) -> None:
        """Notes, while the log is loaded, that a batch between the records cannot be read."""
        ...

    def start(self, now: int) -> ResultT:
        """Returns what follows once all records of the partition have been applied."""
        ...

    def unload(self) -> Sequence[Response]:
        """Returns error responses to the requests that wait inside the shard."""
        ...

    def handle(self, event: EventT_contra, now: int) -> ResultT: ...

    def write_failed(
        self, result: ResultT, error: ErrorCode, now: int, *, applied: bool
    ) -> ResultT:
        """Returns what follows when the records of a result are not written or not committed.

        `applied` says whether the changes of the result have been applied.
        """
        ...
