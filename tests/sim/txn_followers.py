"""Observers of the logs, which read all appended batches and check them at once.

Their information comes from the logs' bytes and from the clients, never from the broker's state,
which they verify.
"""

from collections.abc import Callable

from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.records import decode_record as decode_group_record
from penstock.coordinator.machine import Skipped
from penstock.coordinator.txn.records import decode_record
from penstock.coordinator.txn.state import VALID_PREVIOUS_STATES, TransactionState
from penstock.core.ids import TopicPartition
from penstock.protocol.stored.transaction_log import TransactionLogValue
from penstock.records.batch import BatchHeader, split
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation


class Attempt:
    """One transaction from the view of its client."""

    def __init__(self, tag: str, name: str) -> None:
        self.tag = tag
        self.name = name
        self.sent: dict[TopicPartition, int] = {}
        """The number of records sent to each partition, acknowledged or not."""
        self.acked: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        """The offsets that it commits for its group."""
        self.commit_sent = False
        self.commit_acked = False
        self.commit_refused = False
        """Whether the first request for the commit was rejected."""
        self.abort_acked = False
        self.outcome: bool | None = None
        """The result in the first marker of any partition."""
        self.lost = False
        """Whether a power cut happened since it began; then only a part may remain."""

    def __repr__(self) -> str:
        return f"{self.tag} of {self.name}"

    @property
    def ended(self) -> bool:
        return self.commit_acked or self.abort_acked or self.outcome is not None

    def decide(self, where: TopicPartition, commit: bool) -> None:
        """Records that a marker ends it in a partition."""
        if self.lost:
            return
        if self.outcome is None:
            self.outcome = commit
        names = {True: "committed", False: "aborted"}
        assert self.outcome == commit, f"{self} is {names[commit]} in {where} and not elsewhere"
        if commit:
            assert self.commit_sent, f"{self} is committed in {where}: no client requested that"
            assert not self.commit_refused, f"{self} is committed in {where}, and was refused"
            assert not self.abort_acked, f"{self} is committed in {where}, and was aborted"
        else:
            assert not self.commit_acked, f"{self} is aborted in {where}, and was committed"


class Follower:
    """Follows one log."""

    def __init__(self, partition: TopicPartition, attempts: dict[str, Attempt]) -> None:
        self.partition = partition
        self.attempts = attempts
        self.end = 0
        self.stable = 0
        self.crcs: dict[int, int] = {}
        """The CRCs by base offset of each batch."""
        self.first_open: dict[int, int] = {}
        """The start offset of each producer's open transaction."""
        self.open_tags: dict[int, str] = {}
        """Each producer's open attempt in this partition."""
        self.closed: set[str] = set()
        """The attempts that have ended in this partition."""
        self.epochs: dict[int, int] = {}
        self.rebuilding = False
        """Whether it is rereading the log after a power cut."""

    def follow(self, log: Log) -> bool:
        """Reads new batches; returns whether there were any."""
        end = log.log_end_offset
        assert end >= self.end, f"{self.partition} ended at {self.end}, now at {end}"
        news = self.end < end
        while self.end < end:
            records = log.read(self.end, 1 << 20, FetchIsolation.LOG_END).records
            assert records is not None, f"{self.partition} has no records at {self.end}"
            data = records.read()
            for position, header in split(data):
                if header.base_offset >= self.end:
                    self._batch(data, position, header)
                    self.crcs[header.base_offset] = header.crc
                    self.end = header.next_offset
        if news or log.last_stable_offset != self.stable:
            self._check_stable(log)
        return news

    def _check_stable(self, log: Log) -> None:
        assert log.high_watermark == self.end, f"{self.partition} has a low high watermark"
        stable = log.last_stable_offset
        expected = min(self.first_open.values(), default=self.end)
        assert stable == expected, f"{self.partition} is stable to {stable}, not to {expected}"
        assert stable >= self.stable, f"{self.partition}: stable to {stable} after {self.stable}"
        self.stable = stable

    def survived(self, log: Log, flushed: int, compacted: bool) -> "Follower":
        """Checks, after a power cut, that the log is a prefix of the old one with all flushed data.

        Returns a follower that rereads the log from its start.
        """
        assert flushed <= log.log_end_offset <= self.end, f"{log} of {self.end}, {flushed} flushed"
        restarted = type(self)(self.partition, self.attempts)
        restarted.rebuilding = True
        if not compacted:
            restarted.follow(log)
            for offset, crc in restarted.crcs.items():
                assert self.crcs.get(offset) == crc, f"{self.partition} has another batch {offset}"
        else:
            restarted.end, restarted.stable = log.log_end_offset, log.last_stable_offset
            restarted.continue_from(self, log)
        restarted.rebuilding = False
        return restarted

    def continue_from(self, before: "Follower", log: Log) -> None:
        """Starts at the other follower's position, with its open transactions."""
        for producer_id, entry in log.producers.active_producers().items():
            if entry.current_txn_first_offset is not None:
                self.first_open[producer_id] = entry.current_txn_first_offset

    def _batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        producer_id = header.producer_id
        if producer_id >= 0:
            epoch = self.epochs.get(producer_id, -1)
            assert header.producer_epoch >= epoch, (
                f"{self.partition} {header.base_offset}: producer {producer_id} goes back from "
                f"epoch {epoch} to {header.producer_epoch}"
            )
            self.epochs[producer_id] = header.producer_epoch
        if header.is_control:
            marker = read_end_txn_marker(data, position, header)
            assert marker.ends_transaction
            self.first_open.pop(producer_id, None)
            self.closed.add(self.open_tags.pop(producer_id, ""))
            self._ended(producer_id, marker.commits)
            return
        if header.is_transactional:
            self.first_open.setdefault(producer_id, header.base_offset)
        self._records(header, read_records(data, position, header))

    def _records(self, header: BatchHeader, records: list[Record]) -> None:
        raise NotImplementedError

    def _ended(self, producer_id: int, commit: bool) -> None:
        """Ends this producer's transaction in the partition, if one has begun."""

    def _joins(self, tag: str, header: BatchHeader) -> Attempt | None:
        """Returns the attempt of the records, which must not have ended in this partition.

        In another partition it may be aborted already: then a marker is in flight.
        """
        attempt = self.attempts[tag]
        if self.rebuilding:
            self.open_tags[header.producer_id] = tag
        if self.rebuilding or attempt.lost:
            return None
        over = tag in self.closed or attempt.commit_acked or attempt.outcome is True
        assert not over, (
            f"{attempt} has ended, and {self.partition} gets records of it at {header.base_offset}"
        )
        before = self.open_tags.setdefault(header.producer_id, tag)
        if not self.attempts[before].lost:
            assert before == tag, f"{self.partition}: {before} goes on as {tag}"
        return attempt


class DataFollower(Follower):
    """A log of records `tag|number of it in this partition|…`."""

    def __init__(self, partition: TopicPartition, attempts: dict[str, Attempt]) -> None:
        super().__init__(partition, attempts)
        self.values: dict[int, bytes] = {}
        self.shown: dict[int, bool | None] = {}
        """Whether the record at an offset is committed; None: undecided."""
        self.counts: dict[str, int] = {}
        """The number of records of each attempt."""
        self._open: dict[int, list[tuple[int, str]]] = {}
        self.on_commit: Callable[[bytes], None] = lambda value: None

    def _records(self, header: BatchHeader, records: list[Record]) -> None:
        for record in records:
            assert record.value is not None
            self.values[record.offset] = record.value
            if not header.is_transactional:
                self.shown[record.offset] = True
                continue
            tag, number, *_ = record.value.decode().split("|")
            attempt = self._joins(tag, header)
            count = self.counts.get(tag, 0)
            if attempt is not None:
                assert int(number) == count, f"{self.partition} has {record.value!r} after {count}"
            self.counts[tag] = count + 1
            self.shown[record.offset] = None
            self._open.setdefault(header.producer_id, []).append((record.offset, tag))

    def _ended(self, producer_id: int, commit: bool) -> None:
        for offset, tag in self._open.pop(producer_id, ()):
            self.shown[offset] = commit
            if not self.rebuilding:
                self.attempts[tag].decide(self.partition, commit)
                if commit:
                    self.on_commit(self.values[offset])

    def read(self, start: int, end: int, records_read: list[tuple[int, bytes]]) -> None:
        """Checks the records that a `read_committed` reader read from `start` to `end`."""
        for offset in range(start, end):
            assert self.shown.get(offset, True) is not None, (
                f"{self.partition} {offset} was read, and is not decided"
            )
        expected = [(o, self.values[o]) for o in range(start, end) if self.shown.get(o)]
        assert records_read == expected, f"{self.partition} shows {records_read}, not {expected}"


class OffsetsFollower(Follower):
    """A partition of `__consumer_offsets`: committed offsets never decrease."""

    def __init__(self, partition: TopicPartition, attempts: dict[str, Attempt]) -> None:
        super().__init__(partition, attempts)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.tags: set[str] = set()
        """The attempts with offsets in this partition."""
        self._open: dict[int, list[tuple[tuple[str, str, int], int, str]]] = {}

    def continue_from(self, before: Follower, log: Log) -> None:
        super().continue_from(before, log)
        assert isinstance(before, OffsetsFollower)
        self.tags = before.tags

    def _records(self, header: BatchHeader, records: list[Record]) -> None:
        for record in records:
            decoded = decode_group_record(record.key, record.value)
            if not isinstance(decoded, OffsetRecord) or decoded.value is None:
                continue
            key = (decoded.key.group, decoded.key.topic, decoded.key.partition)
            offset, tag = decoded.value.offset, decoded.value.metadata
            if header.is_transactional:
                self._joins(tag, header)
                self._open.setdefault(header.producer_id, []).append((key, offset, tag))
                self.tags.add(tag)
            else:
                self._count(key, offset)

    def _ended(self, producer_id: int, commit: bool) -> None:
        for key, offset, tag in self._open.pop(producer_id, ()):
            self.attempts[tag].decide(self.partition, commit)
            if commit:
                self._count(key, offset)

    def _count(self, key: tuple[str, str, int], offset: int) -> None:
        before = self.committed.get(key, -1)
        assert offset >= before, f"{key} goes back from {before} to {offset}"
        self.committed[key] = offset


class TxnStateFollower(Follower):
    """A partition of `__transaction_state`: all state transitions are valid."""

    def __init__(self, partition: TopicPartition, attempts: dict[str, Attempt]) -> None:
        super().__init__(partition, attempts)
        self.last: dict[str, TransactionLogValue] = {}

    def _records(self, header: BatchHeader, records: list[Record]) -> None:
        for record in records:
            decoded = decode_record(record.key, record.value)
            assert not isinstance(decoded, Skipped), decoded
            name, value = decoded.key.transactional_id, decoded.value
            before = self.last.pop(name, None)
            if value is None:
                continue
            self.last[name] = value
            if before is not None:
                self._follows(name, before, value)

    def _follows(self, name: str, before: TransactionLogValue, now: TransactionLogValue) -> None:
        was, state = (TransactionState(item.transaction_status) for item in (before, now))
        assert was in VALID_PREVIOUS_STATES[state], f"{name} goes from {was.name} to {state.name}"
        if now.producer_id == before.producer_id:
            assert now.producer_epoch >= before.producer_epoch, f"{name}: {before}, then {now}"
        else:
            assert now.producer_id > before.producer_id, f"{name}: {before}, then {now}"
