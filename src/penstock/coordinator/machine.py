"""What every coordinator's machine takes and gives, as values.

A machine is a shard: the state of one partition of a coordinator's topic. `handle` decides and
changes nothing, `apply` alone changes state; a host drives it (`group.shard` says how).
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

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


class Reply(Struct, frozen=True, gc=False):
    """The answer to the request that waits under this number."""

    waiter: int
    response: Message
