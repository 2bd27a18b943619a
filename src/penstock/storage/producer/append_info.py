"""The state of one producer in a partition, and the checks of its next batches (P3).

This module only decides. A `ProducerAppendInfo` starts from a producer's state and checks each
batch before it is written. It raises an error for a batch that must be refused, and collects the
state that replaces the old one once the batches are in the log.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TopicPartition,
)
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader
from penstock.records.control import EndTxnMarker

BATCHES_TO_RETAIN = 5
"""How many batches of a producer are remembered: as many as it may have in flight."""

MAX_SEQUENCE = 0x7FFFFFFF
MAX_PRODUCER_EPOCH = 0x7FFF
NO_COORDINATOR_EPOCH = -1
UNKNOWN_TRANSACTION_VERSION = -1
EPOCH_BUMP_TRANSACTION_VERSION = 2
"""From this version on (KIP-890) every transaction has its own producer epoch."""


class BatchMetadata(NamedTuple):
    """The offsets and sequences of a batch, to recognise it when it is sent again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class TxnMetadata:
    """A transaction in this partition; `last_offset` is set when it has ended."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset: int | None = None

    def __repr__(self) -> str:
        last = "" if self.last_offset is None else f"..{self.last_offset}"
        return f"TxnMetadata(producer {self.producer_id}, {self.first_offset}{last})"


class CompletedTxn(NamedTuple):
    """A transaction that ends with the batch being appended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class VerificationGuard:
    """Identifies one attempt to verify a transaction. Compared by identity."""

    __slots__ = ()


class VerificationStateEntry:
    """A transaction that the coordinator must confirm before its first append (KIP-890).

    It is kept until the append, so that a marker written in between is noticed. Sequences above
    the lowest one received are refused: otherwise a lower one that is retried could never be
    written.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(
        self, timestamp: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> None:
        self.timestamp = timestamp
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def maybe_update_lowest_sequence_and_epoch(self, sequence: int, epoch: int) -> None:
        """Updates the lowest sequence for a batch that needs verification."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence


class ProducerStateEntry:
    """The state of one producer: its epoch, its last batches, its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: deque[BatchMetadata] = deque(batches, BATCHES_TO_RETAIN)

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(id={self.producer_id}, epoch={self.producer_epoch}, "
            f"coordinator_epoch={self.coordinator_epoch}, last_timestamp={self.last_timestamp}, "
            f"txn_from={self.current_txn_first_offset}, batches={list(self.batches)})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStateEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    @property
    def first_sequence(self) -> int:
        return self.batches[0].first_sequence if self.batches else NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def set_epoch(self, producer_epoch: int) -> None:
        """Sets the epoch. A new epoch restarts the sequences, so the old batches are dropped."""
        if self.producer_epoch != producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        self.set_epoch(producer_epoch)
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp

    def update(self, newer: "ProducerStateEntry") -> None:
        """Applies an append: `newer` has only the batches of that append."""
        self.set_epoch(newer.producer_epoch)
        self.batches.extend(newer.batches)
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp = newer.last_timestamp

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the remembered batch with the same epoch and sequences, or None."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if (
                batch.last_sequence == last_sequence
                and batch.first_sequence == header.base_sequence
            ):
                return batch
        return None


class ProducerAppendInfo:
    """Checks the batches that one producer appends, and collects the changes of its state."""

    __slots__ = (
        "_current",
        "_origin",
        "_partition",
        "_verification",
        "entry",
        "producer_id",
        "started_transactions",
    )

    def __init__(
        self,
        partition: TopicPartition,
        producer_id: int,
        current: ProducerStateEntry,
        origin: AppendOrigin,
        verification: VerificationStateEntry | None = None,
    ) -> None:
        self._partition = partition
        self.producer_id = producer_id
        self._current = current
        self._origin = origin
        self._verification = verification
        self.started_transactions: list[TxnMetadata] = []
        self.entry = ProducerStateEntry(
            producer_id,
            current.producer_epoch,
            current.coordinator_epoch,
            current.last_timestamp,
            current.current_txn_first_offset,
        )

    def append(
        self,
        header: BatchHeader,
        *,
        marker: EndTxnMarker | None = None,
        transaction_version: int = UNKNOWN_TRANSACTION_VERSION,
    ) -> CompletedTxn | None:
        """Checks the next batch; returns the transaction that it ends, or None.

        A control batch comes with its `marker`; a batch that compaction has emptied has none and
        changes nothing. The transaction version matters for markers only; an unknown one means 0.
        Raises a KafkaError when the producer is fenced or the batch is out of order.
        """
        if not header.is_control:
            self._append_data(header)
            return None
        if marker is None or not marker.ends_transaction:
            return None
        return self._append_marker(header, marker, transaction_version)

    def _append_data(self, header: BatchHeader) -> None:
        offset = header.base_offset
        self._check_producer_epoch(header.producer_epoch, offset, UNKNOWN_TRANSACTION_VERSION)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(header.producer_epoch, header.base_sequence, offset)
        entry = self.entry
        delta = header.last_offset_delta
        entry.add_batch(
            header.producer_epoch,
            BatchMetadata(header.last_sequence, offset + delta, delta, header.max_timestamp),
        )
        if header.is_transactional:
            if entry.current_txn_first_offset is None:
                entry.current_txn_first_offset = offset
                self.started_transactions.append(TxnMetadata(self.producer_id, offset))
        elif (
            entry.current_txn_first_offset is not None
            and self._origin is not AppendOrigin.REPLICATION
        ):
            # A leader that was restarted may have forgotten a transaction whose first records are
            # deleted; a follower that refused its batches would stop replicating.
            self._refuse(
                ErrorCode.INVALID_TXN_STATE,
                offset,
                f"a batch outside a transaction, while its transaction from offset "
                f"{entry.current_txn_first_offset} is open: commit or abort it first",
            )

    def _append_marker(
        self, header: BatchHeader, marker: EndTxnMarker, transaction_version: int
    ) -> CompletedTxn | None:
        """Ends the open transaction; None if the producer wrote nothing to this partition."""
        epoch, offset = header.producer_epoch, header.base_offset
        self._check_producer_epoch(epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker.coordinator_epoch, offset)
        entry = self.entry
        first_offset = entry.current_txn_first_offset
        entry.set_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.current_txn_first_offset = None
        entry.last_timestamp = header.max_timestamp
        if first_offset is None:
            return None
        return CompletedTxn(self.producer_id, first_offset, offset, not marker.commits)

    def _check_producer_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        current = self.entry.producer_epoch
        if transaction_version < EPOCH_BUMP_TRANSACTION_VERSION:
            if epoch >= current:
                return
        elif epoch > current or (epoch == current and self._is_repeated_marker(epoch)):
            return
        if self._origin is not AppendOrigin.REPLICATION:
            self._refuse(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                offset,
                f"epoch {epoch}, which is older than {current}: a newer producer has taken over "
                f"or the transaction has ended; abort the transaction and start again",
            )

    def _is_repeated_marker(self, epoch: int) -> bool:
        """Returns whether a marker with the current epoch may be appended.

        The end of a transaction increments the epoch, so a marker of the current epoch is late,
        unless it repeats the marker of a transaction that has ended, or the epoch is at its limit.
        """
        return self.entry.current_txn_first_offset is None or epoch == MAX_PRODUCER_EPOCH

    def _check_sequence(self, epoch: int, sequence: int, offset: int) -> None:
        verification = self._verification
        current = self._current
        if verification is not None:
            if verification.supports_epoch_bump and sequence != 0 and not current.batches:
                self._refuse_sequence(offset, f"sequence {sequence} as its first, 0 is expected")
            if sequence > verification.lowest_sequence:
                self._refuse_sequence(
                    offset,
                    f"sequence {sequence}, but {verification.lowest_sequence} has to come first",
                )
        entry = self.entry
        if epoch != entry.producer_epoch:
            # An unknown producer, whose records retention may have deleted, may continue with any
            # sequence.
            if sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                self._refuse_sequence(
                    offset,
                    f"sequence {sequence} with the new epoch {epoch} (last one: "
                    f"{entry.producer_epoch}), which has to start with 0",
                )
            return
        if entry.batches:
            last = entry.last_sequence
        elif epoch == current.producer_epoch:
            last = current.last_sequence
        else:
            last = NO_SEQUENCE
        in_sequence = sequence == last + 1 or (sequence == 0 and last == MAX_SEQUENCE)
        if not in_sequence and current.producer_epoch != NO_PRODUCER_EPOCH:
            self._refuse_sequence(offset, f"sequence {sequence} after {last}")

    def _check_coordinator_epoch(self, epoch: int, offset: int) -> None:
        latest = self.entry.coordinator_epoch
        if epoch < latest and self._origin is not AppendOrigin.REPLICATION:
            self._refuse(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                offset,
                f"a marker of coordinator epoch {epoch}, which is older than {latest}: another "
                f"broker has become the coordinator",
            )

    def _refuse_sequence(self, offset: int, what: str) -> NoReturn:
        self._refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, offset, what)

    def _refuse(self, code: ErrorCode, offset: int, what: str) -> NoReturn:
        raise KafkaError(
            code, f"producer {self.producer_id} sent {what} (offset {offset} of {self._partition})"
        )
