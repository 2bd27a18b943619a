"""One partition that this broker hosts: its replication state, its log and its delayed requests."""

from penstock.broker.config.topic_config import TopicConfig
from penstock.broker.replica.topic_traffic import TopicTraffic
from penstock.core.buffers import WritableBuffer
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.records.append_policy import AppendOrigin
from penstock.records.prepare import PreparedAppend
from penstock.replication.partition import NO_FOLLOWERS, IsrRules, Partition
from penstock.replication.purgatory import FollowerWatch, OffsetWatchers, Watchers
from penstock.storage.log.log import Log
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard


class Replica:
    """A partition hosted here, with its log and the requests that wait in its purgatories."""

    __slots__ = (
        "_committing",
        "_counted_offset",
        "_deleting",
        "_error",
        "_log",
        "_rules",
        "config",
        "delayed_committed_fetches",
        "delayed_fetches",
        "delayed_follower_fetches",
        "follower_watches",
        "partition",
        "traffic",
    )

    def __init__(
        self,
        partition: Partition,
        log: Log | KafkaStorageError,
        config: TopicConfig,
        rules: IsrRules = NO_FOLLOWERS,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """An error in place of the log says why the partition is offline."""
        self.partition = partition
        self._log: Log | None = None if isinstance(log, KafkaStorageError) else log
        self._error = log if isinstance(log, KafkaStorageError) else None
        self.config = config
        self.delayed_fetches = Watchers()
        """Delayed fetches that may read up to the high watermark."""
        self.delayed_committed_fetches = Watchers()
        """Delayed fetches that may read up to the last stable offset (`read_committed`)."""
        self.delayed_follower_fetches = Watchers()
        """Delayed fetches of followers without a session, which read up to the log end offset."""
        self.follower_watches: tuple[FollowerWatch, ...] = ()
        """The sessions of followers that fetch this partition."""
        self.traffic = traffic or TopicTraffic()
        """The counters of the topic. What they say of messages is exact after `count_messages`."""
        self._counted_offset = 0
        """The offset up to which this leader has counted the messages of clients."""
        self._rules = rules
        self._committing: OffsetWatchers | None = None
        self._deleting: OffsetWatchers | None = None

    @property
    def commit_watchers(self) -> OffsetWatchers:
        """The waits for the high watermark, of produces with acks=all."""
        if self._committing is None:
            self._committing = OffsetWatchers()
        return self._committing

    @property
    def low_watermark_watchers(self) -> OffsetWatchers:
        """The waits for the low watermark, of DeleteRecords."""
        if self._deleting is None:
            self._deleting = OffsetWatchers()
        return self._deleting

    @property
    def log(self) -> Log:
        log = self._log
        if log is None or log.guard.failure is not None:
            if log is not None and log.failure is not None:
                raise KafkaStorageError(log.failure.message)
            if self._error is not None:
                raise KafkaStorageError(self._error.message)
            raise KafkaStorageError(
                f"the log directory of {self.partition.key} is offline",
                remedy="see the broker's log, fix the disk and restart the broker",
            )
        return log

    @property
    def log_to_read(self) -> Log:
        """The log, also one that has stopped for lack of room: it is readable until its reload."""
        log = self._log
        return log if log is not None and log.guard.is_reloadable else self.log

    def replace_log(self, log: Log | None) -> None:
        """Replaces the log after a move, or with None if its directory is offline."""
        self._log = log
        self._error = None
        if log is None:
            self.fail_delayed_operations(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.advance_high_watermark()
        self.complete_delayed_fetches()

    def apply_state(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        adding: tuple[int, ...] = (),
        removing: tuple[int, ...] = (),
    ) -> bool:
        """Becomes leader or follower by a state from the controller; returns False for an old one.

        Requests that wait for a leader get NOT_LEADER_OR_FOLLOWER when another broker leads.
        """
        partition, log = self.partition, self._log
        previous = (partition.leader_epoch, partition.replicas)
        was_leader = partition.is_leader
        self.count_messages()
        is_newer = partition.update(
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=isr,
            replicas=replicas,
            adding=adding,
            removing=removing,
            log_end_offset=0 if log is None else log.log_end_offset,
            now_ms=0 if log is None else log.clock.monotonic_ms(),
        )
        if not is_newer:
            return False
        if not was_leader and log is not None:
            self._counted_offset = log.local.next_offset
        if partition.is_leader and log is not None and log.failure is None:
            if partition.followers and leader_epoch != previous[0]:
                # Followers may have records of later epochs than the last one in this log: with
                # this entry they find where to truncate.
                log.epochs.assign_unsynced(leader_epoch, log.log_end_offset)
            self.advance_high_watermark()
        if was_leader and not partition.is_leader:
            self.fail_delayed_operations(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if previous != (leader_epoch, replicas):
            self.complete_delayed_fetches()
        return True

    def resign(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stops serving: the replica is removed, and waiting requests get this error."""
        self.count_messages()
        self.partition.resign()
        self.fail_delayed_operations(code)
        self.complete_delayed_fetches()

    def leader_log(self, current_leader_epoch: int = -1, *, to_read: bool = False) -> Log:
        """Returns the log; raises KafkaError unless this broker leads, in the client's epoch.

        With `to_read` the log may have stopped: see `log_to_read`.
        """
        code = self.partition.check_leader(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{self.partition.key}: {_LEADER_ERRORS[code]}")
        return self.log_to_read if to_read else self.log

    def readable_log(self, current_leader_epoch: int) -> Log:
        """Returns the log for a consumer, which may read from followers too (KIP-392)."""
        code = self.partition.check_epoch(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{self.partition.key}: {_LEADER_ERRORS[code]}")
        return self.log_to_read

    # --- appends

    def append(
        self,
        records: WritableBuffer,
        *,
        acks: int = -1,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        prepared: PreparedAppend | None = None,
        guard: VerificationGuard | None = None,
        transaction_version: int = -1,
    ) -> LogAppendInfo:
        """Appends as the leader, advances the high watermark, completes delayed fetches (P2, E7).

        `prepared` is what `Log.begin_append` returned for these records, after it has run. `guard`
        belongs to a transaction whose first batch in the partition this may be;
        `transaction_version` is used for markers only.
        """
        log = self._log
        partition = self.partition
        if log is None or log.guard.failure is not None or not partition.is_leader:
            log = self.leader_log()
        if acks == -1 and len(partition.isr) < self.config.min_insync_replicas:
            self._require_in_sync(partition)
        if prepared is None:
            info = log.append_as_leader(
                records,
                partition.leader_epoch,
                origin=origin,
                verification_guard=guard,
                transaction_version=transaction_version,
            )
        else:
            info = log.finish_append(prepared, partition.leader_epoch, verification_guard=guard)
        if not info.is_duplicate:
            size = len(records)
            self.traffic.bytes_in += size
            if partition.followers:
                if self.delayed_follower_fetches:
                    self.delayed_follower_fetches.add_bytes(size)
                for watch in self.follower_watches:
                    watch.on_append(size)
                if len(partition.maximal_isr) < 2:
                    # Otherwise the high watermark waits for a follower that has not fetched yet.
                    self.advance_high_watermark()
            else:
                self._commit_at_once(log, size)
        return info

    def count_messages(self) -> None:
        """Counts what was appended as a leader since the last call.

        The log knows it: counting it in every append would take 1 % of a small Produce.
        """
        log = self._log
        if self.partition.is_leader and log is not None:
            self.traffic.messages_in += max(0, log.local.next_offset - self._counted_offset)
            self._counted_offset = log.local.next_offset

    def _require_in_sync(self, partition: Partition) -> None:
        """Raises KafkaError if too few replicas are in sync; needs at most all replicas."""
        needed = partition.needed_in_sync(self.config.min_insync_replicas)
        if len(partition.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{partition.key} has {len(partition.isr)} in-sync replicas and "
                f"needs {needed} for acks=all "
                f"(min.insync.replicas={self.config.min_insync_replicas})",
                remedy=("bring brokers back, lower min.insync.replicas, or produce with acks=1"),
            )

    # --- watermarks

    def _commit_at_once(self, log: Log, size: int) -> None:
        """Advances the high watermark of a partition with one replica to the log end offset."""
        committed = self.delayed_committed_fetches
        stable, high_watermark = (
            (log.last_stable_offset, log.high_watermark) if committed else (0, 0)
        )
        log.update_high_watermark(log.local.next_offset)
        if self.delayed_fetches:
            self.delayed_fetches.add_bytes(size)
        if committed and log.last_stable_offset > stable:
            if stable == high_watermark:
                committed.add_bytes(size)
            else:
                # A transaction has ended: its records, and others after it, can be read now.
                committed.recount()

    def advance_high_watermark(self) -> None:
        """Raises the high watermark as far as the replicas allow, and completes what waited for it.

        Call it after every change of the log end offset, of a follower or of the ISR. As in Kafka
        3.9, it stays as it is while fewer replicas than `min.insync.replicas` are in sync.
        """
        partition, log = self.partition, self._log
        if not partition.is_leader or log is None or log.guard.failure is not None:
            return
        needed = partition.needed_in_sync(self.config.min_insync_replicas)
        if len(partition.isr) < needed:
            return
        offset = partition.high_watermark(
            log.local.next_offset, log.clock.monotonic_ms(), self._rules
        )
        if offset > log.high_watermark:
            self.update_high_watermark(offset)
            if self._committing:
                self._committing.reach(offset, self._commit_code())

    def update_high_watermark(self, offset: int) -> None:
        """Sets the high watermark, as a follower to that of the leader; completes fetches."""
        log = self.log
        committed = self.delayed_committed_fetches
        high_watermark = log.high_watermark
        stable = log.last_stable_offset if committed else 0
        if log.update_high_watermark(offset) > high_watermark:
            if self.delayed_fetches:
                self.delayed_fetches.recount()
            for watch in self.follower_watches:
                watch.on_offsets_changed()
            if committed and log.last_stable_offset > stable:
                committed.recount()

    def commit_result(self, offset: int) -> ErrorCode | None:
        """Returns the result of an append with acks=all whose records end before `offset`.

        None means that the high watermark has not reached it yet: wait with `commit_watchers`.
        """
        partition, log = self.partition, self._log
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log is None or log.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None if log.high_watermark < offset else self._commit_code()

    def _commit_code(self) -> ErrorCode:
        """The ISR may have shrunk since the append, so that too few replicas have the records."""
        partition = self.partition
        needed = partition.needed_in_sync(self.config.min_insync_replicas)
        if len(partition.maximal_isr) < needed:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    @property
    def low_watermark(self) -> int:
        """The offset below which all replicas on brokers that are up have deleted the records."""
        return self.partition.low_watermark(self.log.log_start_offset, self._rules)

    def on_low_watermark_changed(self) -> None:
        """Completes the DeleteRecords that waited for a follower to delete records."""
        if self._deleting and self.partition.is_leader:
            self._deleting.reach(self.low_watermark)

    # --- delayed requests

    def complete_delayed_fetches(self) -> None:
        self.delayed_fetches.complete_all()
        self.delayed_committed_fetches.complete_all()
        self.wake_followers()

    def wake_followers(self) -> None:
        """Completes the fetches of followers, so that they fetch again."""
        self.delayed_follower_fetches.complete_all()
        for watch in self.follower_watches:
            watch.on_state_changed()

    def fail_delayed_operations(self, code: ErrorCode) -> None:
        """Ends the waits for the watermarks: this broker does not lead any more, or is stopping."""
        for watchers in (self._committing, self._deleting):
            if watchers:
                watchers.fail(code)


_LEADER_ERRORS = {
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is old; refresh its metadata",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer than this broker's; retry",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads it; refresh the client's metadata",
}
