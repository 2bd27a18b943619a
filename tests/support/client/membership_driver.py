"""A driver for a membership machine in tests: it has a clock and processes single actions."""

from typing import TypeVar

from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    RebalanceEvent,
    ReportError,
    Send,
)
from penstock.client.consumer.group.member import Member
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message

A = TypeVar("A", bound=Action)
M = TypeVar("M", bound=Message)


class MachineDriver:
    """Takes actions in their order; those that a test does not take stay in `actions`."""

    def __init__(self, machine: Member) -> None:
        self.machine = machine
        self.now = 1_000
        self.sent: Send | None = None

    def take(self, kind: type[A]) -> A:
        """Returns the next action, which must be of this kind."""
        action = self.machine.actions.pop(0)
        assert isinstance(action, kind), action
        return action

    def request(self, kind: type[M]) -> M:
        """Returns the request of the next action, which must be of this kind."""
        self.sent = self.take(Send)
        assert isinstance(self.sent.request, kind)
        return self.sent.request

    def respond(self, response: Message, sent: Send | None = None) -> None:
        """Responds to the last request that was taken, or to `sent`."""
        request = sent or self.sent
        assert request is not None
        self.machine.handle_response(request.number, response, self.now)

    def event(self) -> RebalanceEvent:
        return self.take(CallListener).event

    def done(self, event: RebalanceEvent, error: Exception | None = None) -> None:
        self.machine.callback_done(event, error, self.now)

    def assigned(self) -> frozenset[TopicPartition]:
        return self.take(Assign).partitions

    def report(self) -> ReportError:
        return self.take(ReportError)

    def is_idle(self) -> bool:
        return not self.machine.actions

    def poll(self) -> None:
        self.machine.polled(self.now, self.now)

    def advance(self, milliseconds: int, *, polls: bool = True) -> None:
        """Advances the clock until the machine has an action, for at most this time."""
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
