"""The replicas that this broker hosts: partition state, log and delayed fetches of each.

`apply` follows the cluster's metadata: it creates and deletes logs and updates leaderships. All of
it runs on the event loop. Blocking disk work runs on threads: `create_logs` before a change is
published, deletions after it (`wait_for_deletions` waits for them).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from penstock.broker.config.topic_config import TopicConfig
from penstock.broker.metadata.controller_host import Undo
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    PartitionRecord,
    Put,
    TopicRecord,
)
from penstock.core.buffers import WritableBuffer
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.records.prepare import PreparedAppend
from penstock.records.validate import AppendOrigin
from penstock.replication.partition import Partition
from penstock.replication.purgatory import Watchers
from penstock.storage.log.log import Log
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.manager.log_creation import LogCreationError, NewLog
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager
from penstock.storage.producer.append_info import VerificationGuard

logger = logging.getLogger(__name__)


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


class ReplicaManager:
    """Finds replicas, and updates them when the cluster's metadata changes."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        image: ClusterImage,
        workers: Workers,
        config_of: Callable[[Mapping[str, str]], TopicConfig],
    ) -> None:
        """`config_of` returns the effective settings of a topic from its own configs."""
        self._broker_id = broker_id
        self._logs = logs
        self._image = image
        self._workers = workers
        self._config_of = config_of
        self.by_topic: dict[str, dict[int, Replica]] = {}
        self._deletions: set[asyncio.Task[list[KafkaError]]] = set()

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self.by_topic.values():
            yield from replicas.values()

    def find(self, topic: str, index: int) -> Replica:
        """Returns the replica of a partition; raises KafkaError if this broker has none."""
        try:
            return self.by_topic[topic][index]
        except KeyError:
            pass
        if TopicPartition(topic, index) in self._image.partitions:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker has no replica of {topic}-{index}",
                remedy="refresh the client's metadata",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {index} of topic {topic!r}",
            remedy="create it, or check the name",
        )

    async def create_logs(self, changes: Sequence[Change]) -> None:
        """Creates the logs of new partitions on a thread, before the change is published.

        The error of one log shows when `apply` opens it.
        """
        _, failure = await self._create_logs(self._new_logs(changes))
        if failure is not None:
            logger.error("%s", failure.message)

    async def require_logs(self, changes: Sequence[Change]) -> Undo:
        """Creates the logs of new partitions before the change is committed.

        Raises LogCreationError, with none of them created, if there is no room for all. Otherwise
        returns a function that removes them, for a change that is not committed after all.
        """
        created_logs, failure = await self._create_logs(self._new_logs(changes))

        async def remove_logs() -> None:
            if created_logs:
                await self._delete_logs(created_logs)

        if failure is not None:
            await remove_logs()
            raise failure
        return remove_logs

    def _new_logs(self, changes: Sequence[Change]) -> list[NewLog]:
        topics: dict[str, TopicRecord] = {}
        values: dict[str, Mapping[str, str]] = {}
        records: list[PartitionRecord] = []
        for change in changes:
            match change:
                case Put(TopicRecord() as topic):
                    topics[topic.topic] = topic
                case Put(ConfigRecord(entity=(("topics", name),), values=own)):
                    values[name] = own
                case Put(PartitionRecord() as record) if record.leader_epoch == 0:
                    records.append(record)
        new_logs: list[NewLog] = []
        for record in records:
            owner = topics.get(record.topic) or self._image.topics[record.topic]
            if self._broker_id in owner.assignments[record.partition].replicas:
                own = values.get(record.topic, self._image.config("topics", record.topic))
                epoch = record.leader_epoch if record.leader == self._broker_id else None
                config = self._config_of(own).log
                new_logs.append(NewLog(record.key, config, owner.topic_id, epoch))
        return new_logs

    async def _create_logs(
        self, new_logs: list[NewLog]
    ) -> tuple[list[TopicPartition], LogCreationError | None]:
        """Returns the partitions whose logs were created, and the error of the others."""
        # A partition of the same name may still be deleted.
        await self.wait_for_deletions()
        created_logs: list[TopicPartition] = []
        full_dirs: set[LogDir] = set()
        failure: KafkaError | None = None
        failed_topics: frozenset[str] = frozenset()
        while new_logs:
            try:
                creation = self._logs.begin_create(new_logs, is_new=True, excluded_dirs=full_dirs)
            except KafkaError as error:
                failure = failure or error
                topics = frozenset(new_log.partition.topic for new_log in new_logs)
                return created_logs, LogCreationError(failed_topics & topics or topics, failure)
            await self._workers.run(self._workers.flush, creation.run)
            results = self._logs.finish_create(creation)
            created_logs += [key for key in creation.created_logs if isinstance(results[key], Log)]
            # If a directory is full or went offline, they are created in another one.
            full_dirs |= creation.errors.keys()
            failed_topics = frozenset(partition.topic for partition in creation.first_failures)
            for result in results.values():
                if isinstance(result, KafkaStorageError):
                    failure = result
            new_logs = [
                new_log
                for new_log in new_logs
                if isinstance(results.get(new_log.partition), KafkaStorageError)
            ]
        return created_logs, None

    async def wait_for_deletions(self) -> None:
        """Waits until the deletions that `apply` has started are durable."""
        if self._deletions:
            await asyncio.wait(self._deletions)

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows changes that the image contains already."""
        removed: list[TopicPartition] = []
        for change in changes:
            try:
                self._apply(change, removed)
            except Exception:
                logger.exception("one of several metadata changes could not be applied: %s", change)
        if removed:
            self._remove(removed)

    def _apply(self, change: Change, removed: list[TopicPartition]) -> None:
        match change:
            case Put(PartitionRecord() as record):
                self._host(record)
            case Put(ConfigRecord(entity=(("topics", topic),))):
                self.reconfigure([topic])
            case Delete(TopicPartition() as key):
                removed.append(key)
            case Delete(ConfigKey(entity=(("topics", topic),))):
                self.reconfigure([topic])

    def reconfigure(self, topics: Iterable[str] | None = None) -> None:
        """Applies changed settings to the logs of these topics, or of all topics for None."""
        for topic in self.by_topic if topics is None else topics:
            replicas = self.by_topic.get(topic)
            if not replicas:
                continue
            config = self._config_of(self._image.config("topics", topic))
            for replica in replicas.values():
                replica.config = config
                log = self._logs.get(replica.partition.key)
                if log is not None:
                    log.config = config.log

    def on_log_replaced(self, key: TopicPartition) -> None:
        """Continues with another log, after a move or a reload."""
        replica = self.by_topic.get(key.topic, {}).get(key.partition)
        if replica is not None:
            replica.replace_log(self._logs.get(key))

    def _host(self, record: PartitionRecord) -> None:
        topic = self._image.topics.get(record.topic)
        if topic is None:
            return
        replicas = topic.assignments[record.partition].replicas
        hosted = self.by_topic.get(record.topic, {}).get(record.partition)
        if self._broker_id not in replicas:
            if hosted is not None:
                self._remove([record.key])
            return
        if hosted is None:
            hosted = self._create(record)
        is_new_leader = hosted.partition.update(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=record.isr,
            replicas=replicas,
        )
        if is_new_leader and hosted.partition.is_leader:
            try:
                hosted.advance(0)
            except KafkaStorageError as error:
                logger.error("%s", error.message)
        hosted.complete_delayed_fetches()

    def _create(self, record: PartitionRecord) -> Replica:
        topic_id = self._image.topics[record.topic].topic_id
        config = self._config_of(self._image.config("topics", record.topic))
        log: Log | KafkaStorageError
        try:
            log = self._logs.get_or_create(
                record.key, config.log, topic_id, is_new=record.leader_epoch == 0
            )
        except KafkaError as error:
            # Only this partition is offline.
            logger.error("%s cannot be opened: %s", record.key, error.message)
            log = KafkaStorageError(error.message)
        partition = Partition(record.key, topic_id, self._broker_id)
        replica = Replica(partition, log, config)
        self.by_topic.setdefault(record.topic, {})[record.partition] = replica
        return replica

    def _remove(self, keys: Iterable[TopicPartition]) -> None:
        removed_replicas: dict[TopicPartition, Replica] = {}
        for key in keys:
            replicas = self.by_topic.get(key.topic)
            replica = None if replicas is None else replicas.pop(key.partition, None)
            if replicas is None or replica is None:
                continue
            if not replicas:
                del self.by_topic[key.topic]
            replica.partition.resign()
            removed_replicas[key] = replica
        if not removed_replicas:
            return
        self._delete_logs(removed_replicas)
        for replica in removed_replicas.values():
            replica.complete_delayed_fetches()

    def _delete_logs(self, keys: Iterable[TopicPartition]) -> "asyncio.Task[list[KafkaError]]":
        deletion = self._workers.start(self._workers.flush, self._logs.begin_deletion(keys))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._on_deleted)
        return deletion

    def _on_deleted(self, deletion: "asyncio.Task[list[KafkaError]]") -> None:
        self._deletions.discard(deletion)
        for error in deletion.result():
            logger.error("a log could not be deleted: %s", error.message)
