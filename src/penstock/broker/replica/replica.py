"""One partition that this broker hosts: its replication state, its log and its delayed fetches."""

from penstock.broker.config.topic_config import TopicConfig
from penstock.core.buffers import WritableBuffer
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.records.prepare import PreparedAppend
from penstock.records.validate import AppendOrigin
from penstock.replication.partition import Partition
from penstock.replication.purgatory import Watchers
from penstock.storage.log.log import Log
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard


class Replica:
    """A partition hosted here, with its log and the fetches that wait in the purgatory."""

    __slots__ = (
        "_error",
        "_log",
        "config",
        "delayed_committed_fetches",
        "delayed_fetches",
        "partition",
    )

    def __init__(
        self, partition: Partition, log: Log | KafkaStorageError, config: TopicConfig
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

    @property
    def log(self) -> Log:
        log = self._log
        if log is None or log.failure is not None:
            if log is not None and log.failure is not None:
                raise KafkaStorageError(log.failure.message)
            if self._error is not None:
                raise KafkaStorageError(self._error.message)
            raise KafkaStorageError(
                f"the log directory of {self.partition.key} is offline",
                remedy="see the broker's log, fix the disk and restart the broker",
            )
        return log

    def replace_log(self, log: Log | None) -> None:
        """Replaces the log after a move, or with None if its directory is offline."""
        self._log = log
        self._error = None
        self.complete_delayed_fetches()

    def leader_log(self, current_leader_epoch: int = -1) -> Log:
        """Returns the log; raises KafkaError unless this broker leads, in the client's epoch."""
        code = self.partition.check_leader(current_leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{self.partition.key}: {_LEADER_ERRORS[code]}")
        return self.log

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
        if log is None or log.failure is not None or not partition.is_leader:
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
            self._advance(log, len(records))
        return info

    def _require_in_sync(self, partition: Partition) -> None:
        """Raises KafkaError if too few replicas are in sync; needs at most all replicas."""
        needed = min(self.config.min_insync_replicas, len(partition.replicas))
        if len(partition.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{partition.key} has {len(partition.isr)} in-sync replicas and "
                f"needs {needed} for acks=all "
                f"(min.insync.replicas={self.config.min_insync_replicas})",
                remedy=("bring brokers back, lower min.insync.replicas, or produce with acks=1"),
            )

    def advance(self, size: int) -> None:
        """Advances the high watermark after an append and completes delayed fetches."""
        self._advance(self.log, size)

    def _advance(self, log: Log, size: int) -> None:
        committed = self.delayed_committed_fetches
        stable, high_watermark = (
            (log.last_stable_offset, log.high_watermark) if committed else (0, 0)
        )
        log.update_high_watermark(self.partition.high_watermark(log.log_end_offset))
        if self.delayed_fetches:
            self.delayed_fetches.add_bytes(size)
        if committed and log.last_stable_offset > stable:
            if stable == high_watermark:
                committed.add_bytes(size)
            else:
                # A transaction has ended: its records, and others after it, can be read now.
                committed.recount()

    def complete_delayed_fetches(self) -> None:
        self.delayed_fetches.complete_all()
        self.delayed_committed_fetches.complete_all()


_LEADER_ERRORS = {
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is old; refresh its metadata",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer than this broker's; retry",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads it; refresh the client's metadata",
}
