"""What goes into a transaction shard and what comes out, as values."""

from collections.abc import Sequence

from msgspec import Struct

from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.coordinator.txn.records import TransactionRecord
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message


class Context(Struct, frozen=True, gc=False):
    """Who sends a request, and what the machine may need to decide about it."""

    waiter: int
    """The number under which the reply will come. The host never uses it for another request."""
    version: int
    client_id: str
    new_producer_id: int | None = None
    """An id that nobody had before, for a result that asked for it with `needs_producer_id`."""


# --- timers: what can be due


class AbortTimer(Struct, frozen=True, gc=False):
    """It is time to look for transactions that took longer than their timeout."""


class ExpiryTimer(Struct, frozen=True, gc=False):
    """It is time to look for transactional ids that nobody has used for long."""


class CompletionTimer(Struct, frozen=True, gc=False):
    """It is time to write that a transaction is complete, which has no partition left to mark."""

    transactional_id: str


Timer = AbortTimer | ExpiryTimer | CompletionTimer


# --- events


class Requested(Struct, frozen=True, gc=False):
    """A request for a transactional id of this shard.

    AddPartitionsToTxn comes with one transaction, in the form of version 4 and above;
    ListTransactions and DescribeTransactions come with the ids of this shard.
    """

    request: Message
    context: Context


class MarkersWritten(Struct, frozen=True, gc=False):
    """Partitions that have the marker that `WriteMarkers` asked for, or do not exist any more.

    Ids and epoch are those of the `WriteMarkers`. One that comes twice, or late, changes nothing.
    But the next transaction of versions 0 and 1 has the same epoch: once a new `WriteMarkers` has
    come, nothing must be said of an older one.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


Event = Requested | TimerFired[Timer] | MarkersWritten


# --- results


class WriteMarkers(Struct, frozen=True, gc=False):
    """An effect: have the end of a transaction written into these partitions.

    The host goes on trying until every partition has its marker or is gone, and says so with
    `MarkersWritten`, of all at once or of some at a time. It stops when the shard is unloaded.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """0 or 1: the marker has the epoch of the transaction; 2: an epoch higher than that."""


class Result(Struct, frozen=True):
    """What was decided. Nothing has changed yet; `shard` says what a host does with it."""

    event: Event | None = None
    """What it answers; None for a result of `loaded` or `failed`."""
    records: Sequence[TransactionRecord] = ()
    """To append. Each stands for itself: they need not be in one batch."""
    marked: MarkersWritten | None = None
    """Partitions that need no marker any more, while others still do. No record keeps it."""
    responses: Sequence[Response] = ()
    timers: Sequence[SetTimer[Timer] | CancelTimer[Timer]] = ()
    markers: Sequence[WriteMarkers] = ()
    needs_producer_id: bool = False
    """Nothing was decided: handle the event again with `Context.new_producer_id`."""

    @property
    def changes(self) -> list[TransactionRecord | MarkersWritten]:
        """What `apply` takes, in order."""
        return [*self.records] if self.marked is None else [*self.records, self.marked]
