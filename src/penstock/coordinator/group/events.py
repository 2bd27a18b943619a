"""What goes into a group shard and what comes out, as values."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.coordinator.group.classic.model import ClassicGroup
from penstock.coordinator.group.consumer.model import ConsumerGroup, ConsumerGroupSoftState
from penstock.coordinator.group.records import OffsetRecord, Record
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message

Group = ClassicGroup | ConsumerGroup


class Context(Struct, frozen=True, gc=False):
    """Who sends a request, and what the machine may need to decide about it."""

    waiter: int
    """The number under which the reply will come. The host never uses it for another request."""
    version: int
    client_id: str
    client_host: str
    """As Kafka's tools show it: `/127.0.0.1`."""
    uuid: str
    """A fresh random UUID: the end of the member id, where the request makes a member."""
    topics: Topics
    session: object = None
    """The client's session, which effects of the request need for its rights. Opaque here: only
    the host knows its type."""
    guard: object = None
    """Under which the producer's transaction was verified, for TxnOffsetCommit. Opaque here."""


# --- timers: what can be due


class SessionTimer(Struct, frozen=True, gc=False):
    """A member has not been heard of for its session timeout."""

    group_id: str
    member_id: str


class JoinTimer(Struct, frozen=True, gc=False):
    """A group has waited long enough for its members to join."""

    group_id: str


class SyncTimer(Struct, frozen=True, gc=False):
    """A group has waited long enough for its members to fetch their assignments."""

    group_id: str


class ExpiryTimer(Struct, frozen=True, gc=False):
    """It is time to look for offsets that have expired."""


class RevocationTimer(Struct, frozen=True, gc=False):
    """A member of a consumer group has had time enough to let go of partitions."""

    group_id: str
    member_id: str


class RejoinTimer(Struct, frozen=True, gc=False):
    """A member of a consumer group that speaks the classic protocol should have joined again."""

    group_id: str
    member_id: str


class ResyncTimer(Struct, frozen=True, gc=False):
    """A member that speaks the classic protocol should have fetched its new assignment."""

    group_id: str
    member_id: str


Timer = (
    SessionTimer | JoinTimer | SyncTimer | ExpiryTimer | RevocationTimer | RejoinTimer | ResyncTimer
)


# --- events


class Requested(Struct, frozen=True, gc=False):
    """A request for a group of this shard; see `fan_out` for those that name several groups."""

    request: Message
    context: Context


class PartitionsDeleted(Struct, frozen=True, gc=False):
    """Partitions of topics are gone, and with them what groups have committed there."""

    partitions: frozenset[TopicPartition]


class TopicsChanged(Struct, frozen=True, gc=False):
    """Topics are new, have more partitions, or are gone: groups that read them assign anew."""

    names: frozenset[str]
    created: bool
    """Whether one of them is new: then patterns are resolved again."""


class RegexResolved(Struct, frozen=True, gc=False):
    """What `ResolveRegexes` asked for has been found, or could not be."""

    group_id: str
    topics: Mapping[str, frozenset[str]] | None
    """By pattern: the names that match as a whole, and that the client may DESCRIBE. None where
    the search failed: it is tried again."""
    version: int
    """Of the metadata that was searched. It is stored, and shown by tools."""
    started_ms: int
    """When the search began."""


Event = Requested | TimerFired[Timer] | PartitionsDeleted | TopicsChanged | RegexResolved


# --- results


class ResolveRegexes(Struct, frozen=True, gc=False):
    """An effect: find the topics that match these patterns; `RegexResolved` returns them.

    As in Kafka, all patterns of the group are resolved with the rights of the client whose request
    was the reason to resolve them.
    """

    group_id: str
    patterns: frozenset[str]
    session: object
    """The client's session, from the `Context` of its request."""


class TransactionalProducer(Struct, frozen=True, gc=False):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int
    guard: object = None
    """Under which the transaction was verified, from the `Context` of the request."""


class PendingOffset(Struct, frozen=True, gc=False):
    """An offset that a producer has committed in its transaction."""

    producer_id: int
    record: OffsetRecord


class TransactionEnded(Struct, frozen=True, gc=False):
    """A marker in the partition: what a producer has committed counts from now on, or not."""

    producer_id: int
    commit: bool


Change = Record | ClassicGroup | ConsumerGroupSoftState | PendingOffset | TransactionEnded
"""What `apply` takes."""


class Result(Struct, frozen=True):
    """What was decided. Nothing has changed yet; `shard` says what a host does with it."""

    event: Event | None = None
    """What it answers; None for a result of `loaded` or `failed`."""
    records: Sequence[Record] = ()
    """To append, in one batch where `atomic`."""
    groups: Sequence[ClassicGroup] = ()
    """The live groups as they are from now on: with what no record keeps, such as who waits."""
    responses: Sequence[Response] = ()
    timers: Sequence[SetTimer[Timer] | CancelTimer[Timer]] = ()
    atomic: bool = True
    news: Sequence[ConsumerGroupSoftState] = ()
    """Of consumer groups: what no record keeps."""
    regexes: Sequence[ResolveRegexes] = ()
    producer: TransactionalProducer | None = None
    """Where the records are offsets in a transaction: whose. They are appended as its batch."""

    @property
    def changes(self) -> list[Change]:
        """What `apply` takes, in order."""
        if self.producer is not None:
            producer_id = self.producer.producer_id
            return [
                PendingOffset(producer_id, record)
                for record in self.records
                if isinstance(record, OffsetRecord)
            ]
        return [*self.records, *self.groups, *self.news]
