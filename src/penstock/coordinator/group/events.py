"""What goes into a group shard and what comes out, as values: events, timers, results, effects."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.coordinator.group.group import StateUpdate
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message


class Context(Struct, frozen=True, gc=False):
    """The client that sent a request, and what a decision about the request may need."""

    waiter: int
    """The number of the response. The host never uses it for another request."""
    version: int
    client_id: str
    client_host: str
    """As Kafka's tools show it: `/127.0.0.1`."""
    uuid: str
    """A new random UUID: the end of the member id if the request creates a member."""
    topics: Topics
    session: object = None
    """The client's session: effects of the request run with its rights. Opaque to the shard, only
    the host knows its type."""
    guard: object = None
    """For TxnOffsetCommit: the guard under which the transaction was verified. Opaque too."""


# --- timers


class SessionTimer(Struct, frozen=True, gc=False):
    """A member has sent nothing for its session timeout."""

    group_id: str
    member_id: str


class JoinTimer(Struct, frozen=True, gc=False):
    """The time in which the members of a classic group must join is over."""

    group_id: str


class SyncTimer(Struct, frozen=True, gc=False):
    """The time in which the members of a classic group must fetch their assignments is over."""

    group_id: str


class ExpiryTimer(Struct, frozen=True, gc=False):
    """The search for expired offsets is due."""


class RevocationTimer(Struct, frozen=True, gc=False):
    """The time in which a member of a consumer group must give up revoked partitions is over."""

    group_id: str
    member_id: str


class RejoinTimer(Struct, frozen=True, gc=False):
    """A member of a consumer group that uses the classic protocol should have joined again."""

    group_id: str
    member_id: str


class ResyncTimer(Struct, frozen=True, gc=False):
    """A member that uses the classic protocol should have fetched its new assignment."""

    group_id: str
    member_id: str


Timer = (
    SessionTimer | JoinTimer | SyncTimer | ExpiryTimer | RevocationTimer | RejoinTimer | ResyncTimer
)
Timers = Sequence[SetTimer[Timer] | CancelTimer[Timer]]


# --- events


class Requested(Struct, frozen=True, gc=False):
    """A request about groups of this shard; `multi_group_requests` splits those of several."""

    request: Message
    context: Context


class PartitionsDeleted(Struct, frozen=True, gc=False):
    """Partitions of topics have been deleted: offsets that are committed there are deleted too."""

    partitions: frozenset[TopicPartition]


class TopicsChanged(Struct, frozen=True, gc=False):
    """Topics were created, extended or deleted: groups that read them need a new assignment."""

    names: frozenset[str]
    created: bool
    """Whether one of them is new: then patterns are resolved again."""


class RegexResolved(Struct, frozen=True, gc=False):
    """The outcome of `ResolveRegexes`."""

    group_id: str
    topics: Mapping[str, frozenset[str]] | None
    """By pattern: the names that match as a whole and that the client may DESCRIBE. None if the
    search failed; it is repeated then."""
    version: int
    """The version of the metadata that was searched. It is stored, and shown by tools."""
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
    """The guard under which the transaction was verified, from the `Context` of the request."""


class PendingOffset(Struct, frozen=True, gc=False):
    """An offset that a producer has committed in its open transaction."""

    producer_id: int
    record: OffsetRecord


class TransactionEnded(Struct, frozen=True, gc=False):
    """A marker in the partition: the producer's pending offsets become valid, or are dropped."""

    producer_id: int
    commit: bool


Change = Record | StateUpdate | PendingOffset | TransactionEnded
"""What `GroupShard.apply` takes."""


class Result(Struct, frozen=True):
    """A decision. Nothing has changed yet; `shard` describes what the host does with it."""

    event: Event | None = None
    """The event that led to it; None for a result of `start` or `write_failed`."""
    records: Sequence[Record] = ()
    """The records to append, in one batch if `atomic`."""
    state_updates: Sequence[StateUpdate] = ()
    """Changes to groups that no record holds; they are applied after the records."""
    responses: Sequence[Response] = ()
    timers: Timers = ()
    atomic: bool = True
    regexes: Sequence[ResolveRegexes] = ()
    producer: TransactionalProducer | None = None
    """Set if the records are offsets in a transaction. They are appended as its batch."""

    @property
    def changes(self) -> list[Change]:
        """What `GroupShard.apply` takes, in order."""
        if self.producer is not None:
            producer_id = self.producer.producer_id
            return [
                PendingOffset(producer_id, record)
                for record in self.records
                if isinstance(record, OffsetRecord)
            ]
        return [*self.records, *self.state_updates]


def respond(
    event: Requested, message: Message, records: Sequence[Record] = (), timers: Timers = ()
) -> Result:
    """Returns a result that responds to the request of the event."""
    responses = (Response(event.context.waiter, message),)
    return Result(event, records, responses=responses, timers=timers)
