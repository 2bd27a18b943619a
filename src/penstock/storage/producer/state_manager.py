"""The producers of a partition: their last batches and their open transactions (P3, P4).

The state can be derived from the log. It is kept in memory and written to `.snapshot` files, so
that a start replays the log from the last snapshot only. Appends are checked first and applied
later::

    info = state.prepare_update(header.producer_id, AppendOrigin.CLIENT)
    completed = info.append(header)      # raises if the batch must be refused
    ...                                  # the batch is written
    state.update(info)
    state.map_end_offset = header.next_offset

A completed transaction is unstable until the high watermark has passed its marker.
"""

import logging
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import NO_PRODUCER_ID, TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader
from penstock.storage.disk import Disk, write_file
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.file_names import SNAPSHOT_SUFFIX, base_offset_of, segment_path
from penstock.storage.producer.append_info import (
    BatchMetadata,
    CompletedTxn,
    ProducerAppendInfo,
    ProducerStateEntry,
    TxnMetadata,
    VerificationGuard,
    VerificationStateEntry,
)
from penstock.storage.producer.snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)

logger = logging.getLogger(__name__)


class _Transactions:
    """Transactions, sorted by first offset."""

    __slots__ = ("_by_offset", "_offsets")

    def __init__(self) -> None:
        self._by_offset: dict[int, TxnMetadata] = {}
        self._offsets: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def __iter__(self) -> Iterator[TxnMetadata]:
        for offset in self._offsets:
            yield self._by_offset[offset]

    def first(self) -> TxnMetadata | None:
        return self._by_offset[self._offsets[0]] if self._offsets else None

    def put(self, txn: TxnMetadata) -> None:
        offset = txn.first_offset
        if offset not in self._by_offset:
            insort(self._offsets, offset)
        self._by_offset[offset] = txn

    def pop(self, offset: int) -> TxnMetadata | None:
        txn = self._by_offset.pop(offset, None)
        if txn is not None:
            del self._offsets[bisect_left(self._offsets, offset)]
        return txn

    def remove_ended_before(self, offset: int) -> None:
        for txn in list(self):
            if txn.last_offset is not None and txn.last_offset < offset:
                self.pop(txn.first_offset)

    def clear(self) -> None:
        self._by_offset.clear()
        self._offsets.clear()


class ProducerStateManager:
    """The state of the producers of one partition, whose files are in `directory`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        *,
        producer_id_expiration_ms: int,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        self._verifications: dict[int, VerificationStateEntry] = {}
        self._ongoing = _Transactions()
        self._unreplicated = _Transactions()
        self._snapshots = self._list_snapshots()
        self.map_end_offset = 0
        """The state covers the log below this offset; the caller advances it after an append."""
        self._last_snapshot_offset = 0

    # --- appends

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Returns the object that checks a producer's next batches."""
        current = self._producers.get(producer_id)
        if current is None:
            current = ProducerStateEntry(producer_id)
        return ProducerAppendInfo(
            self.topic_partition,
            producer_id,
            current,
            origin,
            self._verifications.get(producer_id) if self._verifications else None,
        )

    def update(self, info: ProducerAppendInfo) -> None:
        """Applies an append."""
        if info.producer_id == NO_PRODUCER_ID:
            raise ValueError(f"batches without producer id have no state: {self.topic_partition}")
        entry = self._producers.get(info.producer_id)
        if entry is None:
            self._producers[info.producer_id] = info.entry
        else:
            entry.update(info.entry)
        for txn in info.started_transactions:
            self._ongoing.put(txn)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the batch that this one repeats, if it is among its producer's last five."""
        entry = self._producers.get(header.producer_id)
        return None if entry is None else entry.find_duplicate(header)

    def load_producer_entry(self, entry: ProducerStateEntry) -> None:
        """Adds a producer from a snapshot."""
        self._producers[entry.producer_id] = entry
        if entry.current_txn_first_offset is not None:
            self._ongoing.put(TxnMetadata(entry.producer_id, entry.current_txn_first_offset))

    # --- queries and expiration

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """Returns a view of the producers by id."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def remove_expired(self, now_ms: int) -> None:
        """Removes the producers that have been idle for `producer.id.expiration.ms`."""
        for producer_id, producer in list(self._producers.items()):
            if self._is_expired(producer, now_ms):
                del self._producers[producer_id]
        oldest_ms = now_ms - self.producer_id_expiration_ms
        for producer_id, entry in list(self._verifications.items()):
            if entry.timestamp <= oldest_ms:
                del self._verifications[producer_id]

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return (
            entry.current_txn_first_offset is None
            and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms
        )

    # --- transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not yet below the
        high watermark: `read_committed` ends there."""
        open_txn = self._ongoing.first()
        ended = self._unreplicated.first()
        if open_txn is None:
            return None if ended is None else ended.first_offset
        if ended is None:
            return open_txn.first_offset
        return min(open_txn.first_offset, ended.first_offset)

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Returns the last stable offset after this transaction, for the transaction index.

        A follower appends several batches at once: transactions that begin after the marker do not
        count. Otherwise readers would take the index for complete up to their start, and would not
        learn of the transactions that were aborted in between.
        """
        for txn in self._ongoing:
            if txn.first_offset > completed.last_offset:
                break
            if txn.producer_id != completed.producer_id:
                return txn.first_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """Ends a transaction; to be called after it was added to the transaction index."""
        txn = self._ongoing.pop(completed.first_offset)
        if txn is None:
            raise ValueError(f"{completed} was never started in {self.topic_partition}")
        txn.last_offset = completed.last_offset
        self._unreplicated.put(txn)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Makes the transactions stable whose markers are below the high watermark."""
        if self._unreplicated:
            self._unreplicated.remove_ended_before(high_watermark)

    # --- verification of transactions

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Returns whether the producer's transaction of this epoch has records in the partition.

        A transaction of an older epoch has ended, even if its marker is not here yet.
        """
        entry = self.last_entry(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset is not None
            and entry.producer_epoch == epoch
        )

    def refuse_old_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises INVALID_PRODUCER_EPOCH if a newer epoch of the producer is known."""
        entry = self.last_entry(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is older than {entry.producer_epoch}, "
                f"which is known in {self.topic_partition}: a newer producer has taken over or "
                "the transaction has ended",
                remedy="abort the transaction and start again",
            )

    def start_verification(
        self,
        producer_id: int,
        sequence: int,
        epoch: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool = False,
    ) -> VerificationGuard | None:
        """Returns the guard for a transaction that the coordinator must verify before an append.

        Returns None if the transaction has records in the partition already. Raises a KafkaError
        if the producer is fenced.
        """
        self.refuse_old_epoch(producer_id, epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        return self.maybe_create_verification_state_entry(
            producer_id, sequence, epoch, now_ms, supports_epoch_bump=supports_epoch_bump
        ).guard

    def maybe_create_verification_state_entry(
        self,
        producer_id: int,
        sequence: int,
        epoch: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool = False,
    ) -> VerificationStateEntry:
        """Starts or continues the verification of a producer's transaction."""
        entry = self._verifications.get(producer_id)
        if entry is None:
            entry = self._verifications[producer_id] = VerificationStateEntry(
                now_ms, sequence, epoch, supports_epoch_bump=supports_epoch_bump
            )
        entry.maybe_update_lowest_sequence_and_epoch(sequence, epoch)
        return entry

    def verification_state_entry(self, producer_id: int) -> VerificationStateEntry | None:
        return self._verifications.get(producer_id)

    def clear_verification_state_entry(self, producer_id: int) -> None:
        self._verifications.pop(producer_id, None)

    def copy_state_from(self, source: "ProducerStateManager") -> None:
        """Shares the state of a log that has the same records in another directory.

        The source may know more than the records tell: producers whose records were deleted.
        """
        self._producers = source._producers
        self._verifications = source._verifications
        self._ongoing = source._ongoing
        self._unreplicated = source._unreplicated
        self.map_end_offset = source.map_end_offset
        self.producer_id_expiration_ms = source.producer_id_expiration_ms

    # --- truncation

    def truncate_and_reload(self, log_start: int, log_end: int, now_ms: int) -> None:
        """Resets the state to the last snapshot between `log_start` and `log_end`.

        The log must then be replayed from `map_end_offset`. A state that already ends at `log_end`
        is kept. Snapshots outside the range are deleted. `log_end` is at or below the high
        watermark, so that no transaction stays unreplicated.
        """
        for offset in list(self._snapshots):
            if not log_start < offset <= log_end:
                self.delete_snapshot(offset)
        if log_end == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start)
            return
        self._clear()
        self._load_from_snapshot(log_start, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops the whole state, including the snapshots."""
        self._clear()
        for snapshot in list(self._snapshots):
            self.delete_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_log_start_offset_incremented(self, log_start: int) -> None:
        """Updates the state after the log start offset has risen.

        Producers stay known, even if all their records are deleted.
        """
        self._unreplicated.remove_ended_before(log_start)
        self.map_end_offset = max(self.map_end_offset, log_start)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start if latest is None else latest

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_from_snapshot(self, log_start: int, now_ms: int) -> None:
        while self._snapshots:
            offset = self._snapshots[-1]
            path = self._snapshot_path(offset)
            try:
                entries = decode_snapshot(self._disk.read_file(path))
            except CorruptSnapshotError as error:
                logger.warning(
                    "%s is invalid and will be deleted; an older snapshot is used: %s", path, error
                )
                self.delete_snapshot(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self.load_producer_entry(entry)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start

    # --- snapshot files

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Writes a snapshot at `map_end_offset`; returns its path, or None if it exists.

        The file is written in place: its CRC reveals a torn write, and an older snapshot is used
        then. Without `sync` it is durable after `flush_snapshot`. Returns None, too, without room
        on the disk: the next load of the log then reads more of it.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self._snapshot_path(offset)
        try:
            write_file(self._disk, path, encode_snapshot(self._producers.values()), sync=sync)
            if sync:
                self._disk.sync_directory(self.directory)
        except OSError as error:
            if not is_lack_of_room(error):
                raise
            self._disk.remove(path)
            logger.warning("%s has no snapshot of its producers: %s", self.topic_partition, error)
            return None
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        self._last_snapshot_offset = offset
        return path

    def flush_snapshot(self, offset: int) -> None:
        """Makes a snapshot durable, if it exists. May run on another thread."""
        try:
            file = self._disk.open(self._snapshot_path(offset))
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots[-1] if self._snapshots else None

    def remove_straggling_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Lists the directory again and deletes snapshots that belong to no segment.

        The last of them is kept if it is above all segments: a clean shutdown wrote it.
        """
        self._snapshots = self._list_snapshots()
        stray = [offset for offset in self._snapshots if offset not in segment_base_offsets]
        if stray and (not segment_base_offsets or stray[-1] >= max(segment_base_offsets)):
            stray.pop()
        for offset in stray:
            self.delete_snapshot(offset)

    def delete_snapshot(self, offset: int) -> None:
        """Removes the snapshot at this offset, if it exists."""
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            self._disk.remove(self._snapshot_path(offset))

    def delete_snapshots(self, offsets: Iterable[int]) -> None:
        """Removes the snapshots at these offsets, for segments that are removed."""
        for offset in offsets:
            self.delete_snapshot(offset)

    def _snapshot_path(self, offset: int) -> str:
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    def _list_snapshots(self) -> list[int]:
        if not self._disk.exists(self.directory):
            return []
        offsets = (
            base_offset_of(name)
            for name in self._disk.names(self.directory)
            if name.endswith(SNAPSHOT_SUFFIX)
        )
        return sorted(offset for offset in offsets if offset is not None)
