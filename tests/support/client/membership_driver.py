"""A membership machine by hand: a clock, and the actions that it asked for, one after the other."""

from typing import TypeVar

from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    GroupMachine,
    RebalanceEvent,
    Report,
    Send,
)
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message

A = TypeVar("A", bound=Action)
M = TypeVar("M", bound=Message)


class Play:
    """Takes the actions as they come; what is not asked for stays in `actions`."""

    def __init__(self, machine: GroupMachine) -> None:
        self.machine = machine
        self.now = 1_000
        self.sent: Send | None = None

    def take(self, kind: type[A]) -> A:
        """The next action, which must be of this kind."""
        action = self.machine.actions.pop(0)
        assert isinstance(action, kind), action
        return action

    def request(self, kind: type[M]) -> M:
        """The next action, which must send such a request."""
        self.sent = self.take(Send)
        assert isinstance(self.sent.request, kind)
        return self.sent.request

    def answer(self, response: Message, sent: Send | None = None) -> None:
        """To the last request that was taken, or to another one."""
        to = sent or self.sent
        assert to is not None
        self.machine.answered(to.number, response, self.now)

    def event(self) -> RebalanceEvent:
        return self.take(CallListener).event

    def done(self, event: RebalanceEvent, error: Exception | None = None) -> None:
        self.machine.callback_done(event, error, self.now)

    def assigned(self) -> frozenset[TopicPartition]:
        return self.take(Assign).partitions

    def report(self) -> Report:
        return self.take(Report)

    def is_idle(self) -> bool:
        return not self.machine.actions

    def poll(self) -> None:
        self.machine.polled(self.now, self.now)

    def later(self, milliseconds: int, *, polls: bool = True) -> None:
        """Time passes, up to where something is to be done."""
        end = self.now + milliseconds
        while not self.machine.actions:
            wake_at = self.machine.wake_at()
            if wake_at is None or wake_at > end:
                break
            self.now = max(self.now, wake_at)
            if polls:
                self.poll()
            self.machine.tick(self.now)
        else:
            return
        self.now = end
