"""What a membership machine asks to be done, as values; and the settings it works by."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.client.consumer.assignors import TopicRacks
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message


class MemberSettings(NamedTuple):
    """What of a consumer's settings matters to its membership."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the time that a member has for a rebalance."""
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    rack_id: str | None = None
    remote_assignor: str | None = None


class RebalanceKind(StrEnum):
    REVOKED = "revoked"
    """They go to another member once the listener has returned."""
    LOST = "lost"
    """This is no member any more: another one may have them already."""
    ASSIGNED = "assigned"
    """They are new here."""


class RebalanceEvent:
    """Partitions come or go: the consumer calls its listener, and says when that is done."""

    __slots__ = ("kind", "partitions")

    def __init__(self, kind: RebalanceKind, partitions: Iterable[TopicPartition]) -> None:
        self.kind = kind
        self.partitions: tuple[TopicPartition, ...] = tuple(sorted(partitions))

    def __repr__(self) -> str:
        return f"RebalanceEvent({self.kind}, [{', '.join(map(str, self.partitions))}])"


class Identity(NamedTuple):
    """Who commits: a member of a generation, or, with KIP-848, of an epoch."""

    generation_or_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Send(NamedTuple):
    """A request to the coordinator; `answered` or `failed` follows, with its number."""

    number: int
    request: Message
    answer: type[Message]
    timeout_ms: int


class CallListener(NamedTuple):
    """`callback_done` follows, once the listener was called within a poll."""

    event: RebalanceEvent


class Assign(NamedTuple):
    """From now on these are this consumer's; `added` are read once the listener knows of them."""

    partitions: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class FetchTopics(NamedTuple):
    """A leader needs fresh metadata of these topics, and watches them; `topics_fetched` follows."""

    number: int
    topics: frozenset[str]


class ResolveTopics(NamedTuple):
    """The names of these topics are not known yet; `topics_resolved` follows."""

    topic_ids: frozenset[UUID]


class ForgetCoordinator(NamedTuple):
    """It does not answer, or is another one now."""


class Report(NamedTuple):
    """An error for the next poll. A fatal one comes again with every poll."""

    error: KafkaError
    is_fatal: bool


Action = Send | CallListener | Assign | FetchTopics | ResolveTopics | ForgetCoordinator | Report


class TopicMatcher(Protocol):
    def __call__(self, topic: str, /) -> bool: ...


class GroupMachine(Protocol):
    """A membership without I/O. `now` is a monotonic time in milliseconds.

    After every call, whoever drives it takes what is in `actions`, in order, and does it.
    """

    actions: list[Action]
    owned: frozenset[TopicPartition]

    @property
    def is_member(self) -> bool:
        """Whether the coordinator knows of it, as far as is known here."""

    @property
    def is_settled(self) -> bool:
        """A member, with all that it was assigned, and nothing to do."""

    @property
    def needs_poll(self) -> bool:
        """Whether the next poll should be told of at once."""

    def subscribe(
        self, topics: frozenset[str], now: int, matches: TopicMatcher | None = None
    ) -> None:
        """The subscription, as names; `matches` tells for a pattern which others would do."""

    def subscribe_regex(self, regex: str, now: int) -> None:
        """The subscription, as a pattern that the broker resolves."""

    def polled(self, at: int, now: int) -> None:
        """The consumer called poll, at that time; a membership begins with the first one."""

    def answered(self, number: int, response: Message, now: int) -> None: ...

    def failed(self, number: int, error: KafkaError, now: int) -> None: ...

    def callback_done(self, event: RebalanceEvent, error: Exception | None, now: int) -> None: ...

    def topics_fetched(self, number: int, topics: TopicRacks, now: int) -> None: ...

    def metadata_changed(self, topics: TopicRacks, names: Mapping[UUID, str], now: int) -> None: ...

    def topics_resolved(self, names: Mapping[UUID, str], now: int) -> None: ...

    def tick(self, now: int) -> None:
        """Time has passed; to be called at `wake_at` at the latest."""

    def wake_at(self) -> int | None: ...

    def release(self) -> RebalanceEvent | None:
        """What a listener must hear before the member leaves; the caller calls it at once."""

    def leave(self, reason: str, now: int) -> None:
        """Out of the group, and of the subscription. What it owned is given up."""

    def identity(self) -> Identity:
        """Who commits now; raises where it makes no sense: CommitFailedError and others."""

    def commit_refused(self, code: int, identity: Identity, now: int) -> KafkaError | None:
        """A commit failed with a code that tells of the membership: what to raise, or None to
        try again."""

    def metadata_identity(self) -> Identity:
        """For transactions: who this is, member or not."""
