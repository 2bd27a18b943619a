"""What goes into a transaction shard and what comes out, as values: events, results, effects."""

from collections.abc import Sequence

from msgspec import Struct

from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.coordinator.txn.records import TransactionRecord
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message


class Context(Struct, frozen=True, gc=False):
    """The client that sent a request, and what a decision about the request may need."""

    waiter: int
    """The number that identifies the response. The host never uses it for another request."""
    version: int
    client_id: str
    new_producer_id: int | None = None
    """A new producer id, after a result with `needs_producer_id`."""


# --- timers


class AbortTimer(Struct, frozen=True, gc=False):
    """The search for transactions that exceed their timeout is due."""


class ExpiryTimer(Struct, frozen=True, gc=False):
    """The search for unused transactional ids is due."""


class CompletionTimer(Struct, frozen=True, gc=False):
    """A transaction that needs no more markers must be completed."""

    transactional_id: str


Timer = AbortTimer | ExpiryTimer | CompletionTimer


# --- events


class Requested(Struct, frozen=True, gc=False):
    """A request for a transactional id of this shard.

    AddPartitionsToTxn has one transaction, in the form of version 4 and above; DescribeTransactions
    has ids of this shard.
    """

    request: Message
    context: Context


class MarkersWritten(Struct, frozen=True, gc=False):
    """Partitions that have the marker of a `WriteMarkers`, or no longer exist.

    Ids and epoch are those of the `WriteMarkers`. A duplicate or late event changes nothing. But
    the next transaction of versions 0 and 1 has the same epoch: after a new `WriteMarkers` the host
    must send no event for an older one.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


Event = Requested | TimerFired[Timer] | MarkersWritten


# --- results


class WriteMarkers(Struct, frozen=True, gc=False):
    """An effect: write the end of a transaction to these partitions.

    The host retries until every partition has its marker or no longer exists, and sends one or more
    `MarkersWritten`. It stops when the shard is unloaded.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int
    """0 or 1: the marker has the epoch of the transaction; 2: an epoch higher than that."""


class Result(Struct, frozen=True):
    """A decision. Nothing has changed yet; `shard` describes what the host does with it."""

    event: Event | None = None
    """The event that led to it; None for a result of `start` or `write_failed`."""
    records: Sequence[TransactionRecord] = ()
    """The records to append. They are independent and need not be in one batch."""
    marked: MarkersWritten | None = None
    """Partitions that have their marker while others do not. No record holds this."""
    responses: Sequence[Response] = ()
    timers: Sequence[SetTimer[Timer] | CancelTimer[Timer]] = ()
    markers: Sequence[WriteMarkers] = ()
    needs_producer_id: bool = False
    """Nothing is decided: the host handles the event again with `Context.new_producer_id`."""

    @property
    def changes(self) -> list[TransactionRecord | MarkersWritten]:
        """What `TransactionShard.apply` takes, in order."""
        return [*self.records] if self.marked is None else [*self.records, self.marked]
