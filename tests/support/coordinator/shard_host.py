"""A host of one shard in memory: a log of bytes, a manual clock, responses by number.

`groups.GroupHost` and `transactions.TxnHost` run their shards with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

from penstock.coordinator.machine import (
    CoordinatorResult,
    Response,
    SetTimer,
    Shard,
    Skipped,
    TimerFired,
)
from penstock.coordinator.timers import TimerQueue
from penstock.core.errors import ErrorCode
from penstock.protocol.codec import encode
from penstock.protocol.fields import Message

START_MS = 1_000_000_000

MessageT = TypeVar("MessageT", bound=Message)
ShardT = TypeVar("ShardT", bound=Shard[Any, Any, Any])
EventT = TypeVar("EventT")
ResultT = TypeVar("ResultT", bound=CoordinatorResult[Any, Any])
RecordT = TypeVar("RecordT")


class ShardHost(ABC, Generic[ShardT, EventT, ResultT, RecordT]):
    """Runs a shard as its docstring describes. `check_pure` compares the state around `handle`."""

    def __init__(self, *, check_pure: bool) -> None:
        self.check_pure = check_pure
        self.now = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self.new_shard()
        self.timers = self.new_timers()
        self.waiters: dict[int, int] = {}
        """The version of each request that waits, by its number."""
        self.responses: dict[int, Message] = {}
        self.held: list[ResultT] = []
        self.commits = True
        """False: the high watermark stands still, and responses and effects are held back."""
        self.append_error: ErrorCode | None = None
        """The error of the next append."""
        self._count = 0
        self._perform(self.shard.start(self.now))

    @abstractmethod
    def new_shard(self) -> ShardT: ...

    def new_timers(self) -> TimerQueue[Any]:
        return TimerQueue()

    @abstractmethod
    def _state(self) -> str:
        """Returns the state that only `apply` may change."""

    @abstractmethod
    def _encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    @abstractmethod
    def _decode(self, key: bytes, value: bytes | None) -> RecordT | Skipped: ...

    @abstractmethod
    def _has_bytes(self, message: Message, version: int) -> bool:
        """Returns whether a response has the form of its version, and can be encoded."""

    def _start_effects(self, result: ResultT) -> None:
        """Starts the effects of a result that is committed."""

    # --- requests and time

    def _new_waiter(self, request: Message, version: int | None) -> tuple[int, int]:
        """Returns a new number and the version of the request, which is the highest by default."""
        self._count += 1
        if version is None:
            version = type(request).INFO.max_stable_version
        self.waiters[self._count] = version
        return self._count, version

    @abstractmethod
    def send(self, request: Message, version: int | None = None) -> int:
        """Sends a request; returns its number. The response may come at once, or later."""

    def request(
        self, request: Message, expected: type[MessageT], version: int | None = None
    ) -> MessageT:
        """Sends a request whose response must come at once."""
        return self.response(self.send(request, version), expected)

    def response(self, waiter: int, expected: type[MessageT]) -> MessageT:
        """Returns the response to a request, which must have been sent."""
        response = self.responses[waiter]
        assert isinstance(response, expected)
        return response

    def advance(self, milliseconds: int) -> None:
        """Lets time pass, with every timer at its time."""
        end = self.now + milliseconds
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            while (timer := self.timers.pop_due(self.now)) is not None:
                self.event(cast("EventT", TimerFired(timer)))
        self.now = end

    def event(self, event: EventT) -> ResultT:
        result = self._handle(event)
        self._perform(result)
        return result

    def _handle(self, event: EventT) -> ResultT:
        before = self._state() if self.check_pure else ""
        result = cast("ResultT", self.shard.handle(event, self.now))
        assert not self.check_pure or self._state() == before, "handle changed state"
        return result

    # --- results

    def _perform(self, result: ResultT) -> None:
        if result.records and self.append_error is not None:
            error, self.append_error = self.append_error, None
            self._perform(self.shard.write_failed(result, error, self.now, applied=False))
            return
        self.log.extend(self._encode(record) for record in result.records)
        for change in result.changes:
            self.shard.apply(change)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self.timers.set(timer.timer, timer.deadline_ms)
            else:
                self.timers.cancel(timer.timer)
        if self.commits:
            self._deliver(result.responses)
            self._start_effects(result)
        else:
            self.held.append(result)

    def _deliver(self, responses: Sequence[Response]) -> None:
        for response in responses:
            assert response.waiter in self.waiters, f"{response} is for nobody, or comes twice"
            version = self.waiters.pop(response.waiter)
            if self._has_bytes(response.message, version):
                assert encode(response.message, version)
            self.responses[response.waiter] = response.message

    def commit(self) -> None:
        """The high watermark reaches the end."""
        held, self.held, self.commits = self.held, [], True
        for result in held:
            self._deliver(result.responses)
            self._start_effects(result)

    def records(self, since: int = 0) -> list[RecordT]:
        decoded = [self._decode(key, value) for key, value in self.log[since:]]
        assert not any(isinstance(record, Skipped) for record in decoded)
        return [record for record in decoded if not isinstance(record, Skipped)]

    def restart(self) -> None:
        """Loads a new shard from the bytes of the log; waiting requests get no response."""
        self.shard = self.new_shard()
        for record in self.records():
            self.shard.apply(record)
        self.timers = self.new_timers()
        self.held.clear()
        self.waiters.clear()
        self._perform(self.shard.start(self.now))
