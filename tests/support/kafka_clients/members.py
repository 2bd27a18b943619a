"""The interface of clients whose consumers stay in a group, as the tests use it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

from tests.support.kafka_clients.model import Record

SECONDS = 20.0
POLL_SECONDS = 0.02

Partition = tuple[str, int]
GroupProtocol = Literal["classic", "consumer"]

CLASSIC_SETTINGS = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "100"}
"""The server decides these for consumers of the consumer protocol."""


class MemberDescription(NamedTuple):
    """A member as administrators see it."""

    client_id: str
    instance_id: str | None
    assignment: frozenset[Partition]
    target: frozenset[Partition] | None
    """Its target assignment; only in groups of the consumer protocol."""


@dataclass(frozen=True)
class GroupDescription:
    """A group as administrators see it: type and state as Kafka's tools print them."""

    type: str
    state: str
    assignor: str
    members: list[MemberDescription] = field(default_factory=list)


class PolledMember(ABC):
    """A subscribed consumer. It makes progress only while it is polled."""

    def __init__(self) -> None:
        self.assignment: frozenset[Partition] = frozenset()
        """At the time of the last poll."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.leave()

    @abstractmethod
    def poll(self, seconds: float) -> None:
        """Polls for so long; raises ClientError if the broker refuses a request."""

    @abstractmethod
    def leave(self) -> None:
        """Closes the consumer; does nothing if it is closed."""


class GroupMember(PolledMember):
    """A consumer that also stores and commits the records that it read."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        """The records that it read, without the topic."""

    @abstractmethod
    def commit(self) -> None:
        """Commits the positions."""


class GroupClient(ABC):
    """A Kafka client whose consumers support both group protocols."""

    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills the processes that the client runs between operations."""
        return

    @abstractmethod
    def member(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        protocol: GroupProtocol = "consumer",
        **settings: str,
    ) -> GroupMember:
        """Subscribes to the topics, or to those that match the pattern.

        Settings have underscores for the dots of their names.
        """

    @abstractmethod
    def doomed_member(self, bootstrap: str, group: str, topics: Sequence[str]) -> PolledMember:
        """Returns a member of the consumer protocol in its own process: `leave` kills it."""

    @abstractmethod
    def groups(self, bootstrap: str, of_type: str | None = None) -> dict[str, tuple[str, str]]:
        """Returns the type and the state of all groups, or of those of the type."""

    @abstractmethod
    def describe(self, bootstrap: str, group: str) -> GroupDescription: ...


def settings_of(protocol: GroupProtocol, settings: dict[str, str]) -> dict[str, str]:
    """Returns the settings of a consumer by their names."""
    return {
        "group.protocol": protocol,
        **(CLASSIC_SETTINGS if protocol == "classic" else {}),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def poll_until(members: Iterable[PolledMember], ready: Callable[[], bool], what: str) -> None:
    """Polls all members, one after the other, until `ready` returns true."""
    polled_members = list(members)
    deadline = time.monotonic() + SECONDS
    while not ready():
        if time.monotonic() > deadline:
            assignments = [sorted(member.assignment) for member in polled_members]
            raise AssertionError(f"{what}: not within {SECONDS} s; the members own {assignments}")
        for member in polled_members:
            member.poll(POLL_SECONDS)


def share(members: Sequence[PolledMember], partitions: Iterable[Partition], *counts: int) -> None:
    """Polls until the members own all partitions, each once, with these counts per member.

    Without counts, the partitions must be distributed evenly.
    """
    expected = sorted(partitions)
    many = sorted(counts) or sorted(
        len(expected[index :: len(members)]) for index in range(len(members))
    )

    def shared() -> bool:
        owned = sorted(partition for member in members for partition in member.assignment)
        return owned == expected and sorted(len(member.assignment) for member in members) == many

    poll_until(members, shared, f"{len(members)} members share {expected}")
