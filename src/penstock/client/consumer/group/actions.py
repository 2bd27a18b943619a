"""The values that membership machines take and return: settings, events and actions."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message


class MemberSettings(NamedTuple):
    """The settings of a consumer that its membership depends on."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the rebalance timeout."""
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    rack_id: str | None = None
    remote_assignor: str | None = None


class RebalanceKind(StrEnum):
    """The kind of a change of the assignment."""

    REVOKED = "revoked"
    """The partitions go to other members once the listener has returned."""
    LOST = "lost"
    """The consumer is not a member any more: others may own the partitions already."""
    ASSIGNED = "assigned"
    """The partitions are new."""


class RebalanceEvent:
    """A change of the assignment, of which the consumer notifies its listener."""

    __slots__ = ("kind", "partitions")

    def __init__(self, kind: RebalanceKind, partitions: Iterable[TopicPartition]) -> None:
        self.kind = kind
        self.partitions: tuple[TopicPartition, ...] = tuple(sorted(partitions))

    def __repr__(self) -> str:
        return f"RebalanceEvent({self.kind}, [{', '.join(map(str, self.partitions))}])"


class Identity(NamedTuple):
    """The member that commits, with its generation or, with KIP-848, its epoch."""

    generation_or_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Send(NamedTuple):
    """Send a request to the coordinator.

    `handle_response` or `handle_failure` follows, with its number.
    """

    number: int
    request: Message
    response_type: type[Message]
    timeout_ms: int


class CallListener(NamedTuple):
    """Have a poll call the listener; `callback_done` follows."""

    event: RebalanceEvent


class Assign(NamedTuple):
    """Set the assignment; `added` are read once the listener has been called."""

    partitions: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class FetchTopics(NamedTuple):
    """Fetch the metadata of the topics that a leader assigns; `topics_fetched` follows."""

    number: int
    topics: frozenset[str]


class ResolveTopics(NamedTuple):
    """Look up the names of topics; `topics_resolved` follows."""

    topic_ids: frozenset[UUID]


class ForgetCoordinator(NamedTuple):
    """Look up the coordinator again: it does not respond, or has changed."""


class ReportError(NamedTuple):
    """Have the next poll raise an error; a fatal one is raised by every poll."""

    error: KafkaError
    is_fatal: bool


Action = (
    Send | CallListener | Assign | FetchTopics | ResolveTopics | ForgetCoordinator | ReportError
)


class TopicMatcher(Protocol):
    def __call__(self, topic: str, /) -> bool: ...
