"""Values of the admin client: transactions and producers."""

from typing import NamedTuple

from penstock.client.admin.model_groups import NamedEnum
from penstock.core.ids import TopicPartition


class TransactionState(NamedEnum):
    UNKNOWN = "Unknown"
    ONGOING = "Ongoing"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_COMMIT = "PrepareCommit"
    COMPLETE_ABORT = "CompleteAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    EMPTY = "Empty"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    """None if no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    """Sorted."""


class ProducerState(NamedTuple):
    """A producer that has written to a partition with a producer id."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None
    """The first offset of its open transaction in the partition, or None."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int
