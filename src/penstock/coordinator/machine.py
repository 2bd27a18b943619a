"""What every coordinator's machine takes and gives, as values.

A machine is a shard: the state of one partition of a coordinator's topic. `handle` decides and
changes nothing, what is applied alone changes state; `group.shard` says how a host drives it.
"""

from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message

T_co = TypeVar("T_co", bound=Hashable, covariant=True)
"""The timers of a machine: values that say what is due."""


class SetTimer(Struct, Generic[T_co], frozen=True, gc=False):
    """Call back at this time. It replaces a deadline that the same timer had."""

    timer: T_co
    deadline_ms: int


class CancelTimer(Struct, Generic[T_co], frozen=True, gc=False):
    timer: T_co


class TimerFired(Struct, Generic[T_co], frozen=True, gc=False):
    """An event: a timer is due, and is no longer set."""

    timer: T_co


class Response(Struct, frozen=True, gc=False):
    """The response to the request that waits under this number."""

    waiter: int
    message: Message


class Decision(Protocol[T_co]):
    """What the results of all machines have."""

    @property
    def records(self) -> Sequence[object]: ...

    @property
    def responses(self) -> Sequence[Response]: ...

    @property
    def timers(self) -> Sequence[SetTimer[T_co] | CancelTimer[T_co]]: ...


E_contra = TypeVar("E_contra", contravariant=True)
R = TypeVar("R")


class Shard(Protocol[E_contra, R]):
    """The machine of one partition: events go in, results come out."""

    def loaded(self, now: int) -> R: ...

    def unload(self) -> Sequence[Response]: ...

    def handle(self, event: E_contra, now: int) -> R: ...

    def failed(self, result: R, error: ErrorCode, now: int, *, applied: bool) -> R: ...
