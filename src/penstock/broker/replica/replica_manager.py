"""The partitions that this broker hosts: each is a replica, its log, and who waits for it.

`apply` follows the cluster's changes: it makes and deletes logs and takes over leaderships. All of
it runs on the event loop; what waits for the disk runs on threads: `create_logs` before a change is
told, deletions after it (`deleted` waits for them).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from penstock.broker.config.topic_config import TopicConfig
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
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_manager import LogManager
from penstock.storage.producer.append_info import VerificationGuard

logger = logging.getLogger(__name__)


class Replica:
    """A partition hosted here. `log` is None while its folder is offline."""

    __slots__ = ("_log", "config", "delayed_committed_fetches", "delayed_fetches", "partition")

    def __init__(self, partition: Partition, log: Log | None, config: TopicConfig) -> None:
        self.partition = partition
        self._log = log
        self.config = config
        self.delayed_fetches = Watchers()
        """Fetches that may read up to the high watermark."""
        self.delayed_committed_fetches = Watchers()
        """Fetches that may read up to the last stable offset (`read_committed`)."""

    @property
    def log(self) -> Log:
        log = self._log
        if log is None or log.failure is not None:
            raise KafkaStorageError(
                f"the folder of {self.partition.key} is offline: see the broker's log, mend the "
                f"disk and restart the broker"
            )
        return log

    def use(self, log: Log | None) -> None:
        """Goes on with another log of the same partition; who waits looks again."""
        self._log = log
        self.complete_delayed_fetches()

    def leader_log(self, current_leader_epoch: int = -1) -> Log:
        """The log, for a client that needs the leader; KafkaError where this is not it."""
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
        """Appends as the leader, moves the high watermark and wakes who waited (P2, E7).

        `prepared` is what `Log.begin_append` gave for these records, once it has run. `guard` is
        that of a transaction whose first batch here this may be; `transaction_version` counts for
        markers.
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
        """KafkaError where replicas are missing; more than there are is never asked for."""
        needed = min(self.config.min_insync_replicas, len(partition.replicas))
        if len(partition.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{partition.key} has {len(partition.isr)} in-sync replicas and needs {needed} for "
                f"acks=all (min.insync.replicas={self.config.min_insync_replicas}): bring brokers "
                f"back, lower min.insync.replicas, or produce with acks=1",
            )

    def advance(self, size: int) -> None:
        """The log has `size` bytes more: moves the high watermark and tells who waits."""
        self._advance(self.log, size)

    def _advance(self, log: Log, size: int) -> None:
        committed = self.delayed_committed_fetches
        stable = log.last_stable_offset if committed else 0
        log.update_high_watermark(self.partition.high_watermark(log.log_end_offset))
        if self.delayed_fetches:
            self.delayed_fetches.add_bytes(size)
        if committed:
            moved = log.last_stable_offset - stable
            if moved:
                committed.add_bytes(max(size, moved))

    def complete_delayed_fetches(self) -> None:
        self.delayed_fetches.complete_all()
        self.delayed_committed_fetches.complete_all()


_LEADER_ERRORS = {
    ErrorCode.FENCED_LEADER_EPOCH: "the client's leader epoch is old; refresh its metadata",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer than this broker's; retry",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "another broker leads it; refresh the client's metadata",
}


class ReplicaManager:
    """Finds replicas, and keeps them as the cluster's image says."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        image: ClusterImage,
        workers: Workers,
        config_of: Callable[[Mapping[str, str]], TopicConfig],
    ) -> None:
        """`config_of` gives the settings in force for a topic that has these of its own."""
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
        """The replica; KafkaError where this broker has none."""
        try:
            return self.by_topic[topic][index]
        except KeyError:
            pass
        if TopicPartition(topic, index) in self._image.partitions:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker has no replica of {topic}-{index}: refresh the client's metadata",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {index} of a topic {topic!r}: create it, or check the name",
        )

    async def create_logs(self, changes: Sequence[Change]) -> None:
        """Makes the logs of new partitions on a thread, before anybody is told of them.

        What goes wrong with one shows when `apply` asks for its log.
        """
        # A partition of the same name may be on its way out.
        await self.wait_for_deletions()
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
        new: list[NewLog] = []
        for record in records:
            owner = topics.get(record.topic) or self._image.topics[record.topic]
            if self._broker_id in owner.assignments[record.partition].replicas:
                own = values.get(record.topic, self._image.config("topics", record.topic))
                epoch = record.leader_epoch if record.leader == self._broker_id else None
                new.append(NewLog(record.key, self._config_of(own).log, owner.topic_id, epoch))
        while new:
            try:
                creation = self._logs.begin_create(new, is_new=True)
            except KafkaError as error:
                logger.error("logs of new partitions cannot be made: %s", error.message)
                return
            await self._workers.run(self._workers.flush, creation.run)
            made = self._logs.finish_create(creation)
            # Where that took a folder offline, they go to another one.
            new = [each for each in new if isinstance(made.get(each.partition), KafkaStorageError)]

    async def wait_for_deletions(self) -> None:
        """Returns when the deletions of which `apply` has heard are durable."""
        if self._deletions:
            await asyncio.wait(self._deletions)

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows changes that the image has taken over already."""
        gone: list[TopicPartition] = []
        for change in changes:
            match change:
                case Put(PartitionRecord() as record):
                    self._host(record)
                case Put(ConfigRecord(entity=(("topics", topic),))):
                    self.reconfigure([topic])
                case Delete(TopicPartition() as key):
                    gone.append(key)
                case Delete(ConfigKey(entity=(("topics", topic),))):
                    self.reconfigure([topic])
        if gone:
            self._drop(gone)

    def reconfigure(self, topics: Iterable[str] | None = None) -> None:
        """Settings have changed, of these topics or of the broker: all its logs take them over."""
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

    def on_log_moved(self, key: TopicPartition) -> None:
        """A partition lives in another folder now: its replica goes on with the log there."""
        replica = self.by_topic.get(key.topic, {}).get(key.partition)
        if replica is not None:
            replica.use(self._logs.get(key))

    def _host(self, record: PartitionRecord) -> None:
        topic = self._image.topics.get(record.topic)
        if topic is None:
            return
        replicas = topic.assignments[record.partition].replicas
        hosted = self.by_topic.get(record.topic, {}).get(record.partition)
        if self._broker_id not in replicas:
            if hosted is not None:
                self._drop([record.key])
            return
        if hosted is None:
            hosted = self._create(record)
        took_over = hosted.partition.update(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=record.isr,
            replicas=replicas,
        )
        if took_over and hosted.partition.is_leader:
            try:
                hosted.advance(0)
            except KafkaStorageError as error:
                logger.error("%s", error.message)
        hosted.complete_delayed_fetches()

    def _create(self, record: PartitionRecord) -> Replica:
        topic_id = self._image.topics[record.topic].topic_id
        config = self._config_of(self._image.config("topics", record.topic))
        log: Log | None = None
        try:
            log = self._logs.get_or_create(
                record.key, config.log, topic_id, is_new=record.leader_epoch == 0
            )
        except KafkaError as error:
            # The partition is offline; the others must not suffer.
            logger.error("%s cannot be opened: %s", record.key, error.message)
        partition = Partition(record.key, topic_id, self._broker_id)
        replica = Replica(partition, log, config)
        self.by_topic.setdefault(record.topic, {})[record.partition] = replica
        return replica

    def _drop(self, keys: Iterable[TopicPartition]) -> None:
        dropped: dict[TopicPartition, Replica] = {}
        for key in keys:
            replicas = self.by_topic.get(key.topic)
            replica = None if replicas is None else replicas.pop(key.partition, None)
            if replicas is None or replica is None:
                continue
            if not replicas:
                del self.by_topic[key.topic]
            replica.partition.resign()
            dropped[key] = replica
        if not dropped:
            return
        deletion = self._workers.start(self._workers.flush, self._logs.begin_deletion(dropped))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._dropped)
        for replica in dropped.values():
            replica.complete_delayed_fetches()

    def _dropped(self, deletion: "asyncio.Task[list[KafkaError]]") -> None:
        self._deletions.discard(deletion)
        for error in deletion.result():
            logger.error("a log could not be deleted: %s", error.message)
