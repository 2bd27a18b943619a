"""What the tests ask of a client that stays in a group, in words that fit all of them."""

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
"""What the server settles for those of the consumer protocol."""


class MemberDescription(NamedTuple):
    """A member as administrators see it."""

    client_id: str
    instance_id: str | None
    assignment: frozenset[Partition]
    target: frozenset[Partition] | None
    """What it is to have; only in groups of the consumer protocol."""


@dataclass(frozen=True)
class GroupDescription:
    """A group as administrators see it: type and state as Kafka's tools print them."""

    type: str
    state: str
    assignor: str
    members: list[MemberDescription] = field(default_factory=list)


class PolledMember(ABC):
    """A consumer that subscribed. It does what is to be done whenever it is polled."""

    def __init__(self) -> None:
        self.assignment: frozenset[Partition] = frozenset()
        """At the time of the last poll."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.leave()

    @abstractmethod
    def poll(self, seconds: float) -> None:
        """Reads for so long; what the client is refused is a ClientError."""

    @abstractmethod
    def leave(self) -> None:
        """Closes the consumer. One that left already stays so."""


class GroupMember(PolledMember):
    """A consumer that also keeps what it read, and commits it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        """What it read, without the topic."""

    @abstractmethod
    def commit(self) -> None:
        """Commits what was read."""


class GroupClient(ABC):
    """A Kafka client whose consumers know both protocols of groups."""

    name: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends whatever the client keeps running between two operations, as a crash would."""
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
        """A member of the consumer protocol in a process of its own: `leave` kills it."""

    @abstractmethod
    def groups(self, bootstrap: str, of_type: str | None = None) -> dict[str, tuple[str, str]]:
        """The type and the state of each group, or of each that has the type."""

    @abstractmethod
    def describe(self, bootstrap: str, group: str) -> GroupDescription: ...


def settings_of(protocol: GroupProtocol, settings: dict[str, str]) -> dict[str, str]:
    """The settings of a consumer, by their names."""
    return {
        "group.protocol": protocol,
        **(CLASSIC_SETTINGS if protocol == "classic" else {}),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def settle(members: Iterable[PolledMember], ready: Callable[[], bool], what: str) -> None:
    """Polls all members in turn until `ready`."""
    everyone = list(members)
    deadline = time.monotonic() + SECONDS
    while not ready():
        if time.monotonic() > deadline:
            assignments = [sorted(member.assignment) for member in everyone]
            raise AssertionError(f"{what}: not within {SECONDS} s; the members have {assignments}")
        for member in everyone:
            member.poll(POLL_SECONDS)


def share(members: Sequence[PolledMember], partitions: Iterable[Partition], *counts: int) -> None:
    """Polls until the members have so many of the partitions each, every one of them once.

    Without counts, as evenly as can be.
    """
    expected = sorted(partitions)
    many = sorted(counts) or sorted(
        len(expected[index :: len(members)]) for index in range(len(members))
    )

    def shared() -> bool:
        owned = sorted(item for member in members for item in member.assignment)
        return owned == expected and sorted(len(member.assignment) for member in members) == many

    settle(members, shared, f"{len(members)} members share {expected}")
