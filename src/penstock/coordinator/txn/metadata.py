"""The metadata of a transactional id, and its transitions.

A transition is a pure function from metadata to the next metadata, which becomes the state once its
record is applied.
"""

from msgspec import Struct
from msgspec.structs import replace

from penstock.coordinator.txn.java_order import by_topic
from penstock.coordinator.txn.records import NO_EPOCH, TransactionRecord
from penstock.coordinator.txn.state import VALID_PREVIOUS_STATES, TransactionState
from penstock.core.ids import TopicPartition
from penstock.protocol.stored.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

NO_ID = -1
MAX_EPOCH = 32_767
"""The highest epoch. It is never given to a producer, so that every producer can be fenced."""
NO_TIMEOUT_MS = 2_147_483_647
"""The timeout of a transaction in a two-phase commit: it never expires."""


class TransactionMetadata(Struct, frozen=True, gc=False):
    """The state of a transactional id."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_ms: int
    previous_producer_id: int = NO_ID
    """The producer id before the last transition, usually the same."""
    next_producer_id: int = NO_ID
    """The id with which a producer without further epochs continues after its transaction ends."""
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    """The epoch of the producer before it requested this one; -1 if it did not request it."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions in the transaction; while it ends, those that still need a marker."""
    start_ms: int = -1
    client_transaction_version: int = 0
    """The transaction version of the client of the last transition, by its requests: 0 or 2."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def bumps_epoch(self) -> bool:
        return self.client_transaction_version >= 2


def is_exhausted(epoch: int) -> bool:
    """Returns whether there is no next epoch for a producer with this one."""
    return epoch >= MAX_EPOCH - 1


# --- records


def record_of(metadata: TransactionMetadata, transaction_version: int) -> TransactionRecord:
    """Returns the record, for a cluster with this level of `transaction.version`."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        grouped = by_topic(metadata.partitions)
        partitions = [PartitionsSchema(topic, numbers) for topic, numbers in grouped.items()]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_transaction_version,
    )
    return TransactionRecord(
        TransactionLogKey(metadata.transactional_id),
        value,
        1 if transaction_version >= 1 else 0,
        metadata.last_producer_epoch,
    )


def metadata_of(record: TransactionRecord, value: TransactionLogValue) -> TransactionMetadata:
    """Returns the metadata that a record with this value holds."""
    state = TransactionState(value.transaction_status)
    topics = value.transaction_partitions if state is not TransactionState.EMPTY else None
    return TransactionMetadata(
        transactional_id=record.key.transactional_id,
        producer_id=value.producer_id,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=record.last_producer_epoch,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in topics or ()
            for number in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


# --- transitions


def _to(metadata: TransactionMetadata, state: TransactionState, now: int) -> TransactionMetadata:
    if metadata.state not in VALID_PREVIOUS_STATES[state]:
        raise ValueError(
            f"{metadata.transactional_id} cannot change from {metadata.state.state_name} "
            f"to {state.state_name}"
        )
    return replace(
        metadata, state=state, previous_producer_id=metadata.producer_id, last_update_ms=now
    )


def prepare_epoch(
    metadata: TransactionMetadata, timeout_ms: int, now: int, *, epoch: int, last_epoch: int
) -> TransactionMetadata:
    """Initializes a producer with this epoch."""
    return replace(
        _to(metadata, TransactionState.EMPTY, now),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
    )


def prepare_producer_id_rotation(
    metadata: TransactionMetadata, producer_id: int, timeout_ms: int, now: int, *, last_epoch: int
) -> TransactionMetadata:
    """Initializes a producer with a new id, because the old id has no further epochs."""
    empty = prepare_epoch(metadata, timeout_ms, now, epoch=0, last_epoch=last_epoch)
    return replace(empty, producer_id=producer_id)


def prepare_add_partitions(
    metadata: TransactionMetadata,
    partitions: frozenset[TopicPartition],
    client_transaction_version: int,
    now: int,
) -> TransactionMetadata:
    started = metadata.start_ms if metadata.state is TransactionState.ONGOING else now
    return replace(
        _to(metadata, TransactionState.ONGOING, now),
        partitions=metadata.partitions | partitions,
        start_ms=started,
        client_transaction_version=client_transaction_version,
    )


def prepare_end(
    metadata: TransactionMetadata,
    state: TransactionState,
    client_transaction_version: int,
    now: int,
    *,
    next_producer_id: int = NO_ID,
) -> TransactionMetadata:
    """Decides how the transaction ends. From version 2 on this bumps the producer's epoch.

    After the last epoch the producer continues with `next_producer_id`, once this is complete.
    """
    epoch, last_epoch = metadata.producer_epoch, metadata.last_producer_epoch
    if client_transaction_version >= 2:
        epoch, last_epoch = min(epoch + 1, MAX_EPOCH), epoch
    # An abort without a known transaction has no start time.
    ongoing = metadata.state is TransactionState.ONGOING
    return replace(
        _to(metadata, state, now),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        next_producer_id=next_producer_id,
        start_ms=metadata.start_ms if ongoing else now,
        client_transaction_version=client_transaction_version,
    )


def prepare_fence(
    metadata: TransactionMetadata, transaction_version: int, next_producer_id: int, now: int
) -> TransactionMetadata:
    """Aborts the transaction on behalf of another client, which fences the producer."""
    abort = TransactionState.PREPARE_ABORT
    if transaction_version >= 2:
        return prepare_end(
            metadata, abort, transaction_version, now, next_producer_id=next_producer_id
        )
    bumped = min(metadata.producer_epoch + 1, MAX_EPOCH)
    fenced = replace(metadata, producer_epoch=bumped, last_producer_epoch=NO_EPOCH)
    return prepare_end(fenced, abort, 0, now)


def prepare_complete(metadata: TransactionMetadata, now: int) -> TransactionMetadata:
    """Completes a transaction whose partitions all have their markers."""
    committed = metadata.state is TransactionState.PREPARE_COMMIT
    complete = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    completed = replace(
        _to(metadata, complete, now), next_producer_id=NO_ID, partitions=frozenset()
    )
    if metadata.bumps_epoch and metadata.next_producer_id != NO_ID:
        return replace(completed, producer_id=metadata.next_producer_id, producer_epoch=0)
    return completed
