"""The replicas that this broker hosts: partition state, log and delayed fetches of each.

The controller decides which replicas there are and who leads: `apply_updates` and `stop` carry it
out, on the event loop. Blocking disk work runs on threads: new logs are created before their
replicas, deletions end after them (`wait_for_deletions` waits for them), each within a limited time
(`log_lifecycle`).
"""

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.broker.config.topic_config import TopicConfig
from penstock.broker.pacer import Pacer, chunks
from penstock.broker.replica.log_lifecycle import Deletion, LogLifecycle
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.topic_traffic import TopicTraffic
from penstock.broker.workers import Workers
from penstock.controller.broker_updates import PartitionUpdate, ReplicaStop
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    ConfigKey,
    ConfigRecord,
    PartitionRecord,
    Put,
    TopicRecord,
)
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.replication.partition import NO_FOLLOWERS, IsrRules, Partition
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.log.log import Log
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)


_UPDATES_AT_ONCE = 100

Undo = Callable[[], Coroutine[Any, Any, None]]
"""Removes logs that were created for a change that is not committed after all."""
LeadershipListener = Callable[[Sequence[TopicPartition], Sequence[TopicPartition]], None]


class ReplicaFetchers(Protocol):
    """Fetches the records of partitions that other brokers lead."""

    def add(self, replicas: Sequence[Replica]) -> None:
        """Starts to fetch from the leaders of these replicas, in their leader epochs."""

    async def remove(self, keys: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
        """Stops fetching: nothing is appended to these replicas once it has returned.

        Returns those whose logs are still being truncated, on a disk that does not respond.
        """
        ...

    def restart(self, key: TopicPartition) -> None:
        """Continues to fetch a partition whose log has failed and was replaced."""

    def lag(self, key: TopicPartition) -> int | None:
        """Returns how far a replica is behind the leader's high watermark; None if unknown."""


class ReplicaManager:
    """Finds replicas, and updates them when the cluster's metadata changes."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        image: ClusterImage,
        workers: Workers,
        pacer: Pacer,
        config_of: Callable[[Mapping[str, str]], TopicConfig],
        isr_rules: IsrRules = NO_FOLLOWERS,
    ) -> None:
        """`config_of` returns the effective settings of a topic from its own configs."""
        self._isr_rules = isr_rules
        self._broker_id = broker_id
        self._logs = logs
        self._image = image
        self._workers = workers
        self._pacer = pacer
        self._config_of = config_of
        self.leadership_listeners: list[LeadershipListener] = []
        """Called with the partitions that this broker leads now, and those that it does not."""
        self.fetchers: ReplicaFetchers | None = None
        """The fetchers of followed partitions; none if the broker has no cluster to fetch from."""
        self.by_topic: dict[str, dict[int, Replica]] = {}
        self.traffic: dict[str, TopicTraffic] = {}
        """The counters of the topics in `by_topic`."""
        self.past_traffic = TopicTraffic()
        """The sum of topics that this broker no longer has."""
        self._lifecycle = LogLifecycle(logs, workers)
        self._without_room: dict[TopicPartition, Replica] = {}
        """Replicas whose logs could not be created for lack of room."""

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

    async def require_logs(self, changes: Sequence[Change]) -> Undo:
        """Creates the logs of new partitions before the change is committed.

        Raises LogCreationError, with none of them created, if there is no room for all. Otherwise
        returns a function that removes them, for a change that is not committed after all.
        """
        created_logs, failure = await self._lifecycle.create(self._new_logs(changes))

        async def remove_logs() -> None:
            if created_logs:
                deletions = self._lifecycle.begin_deletion(created_logs)
                await self._lifecycle.failed_deletions(deletions)

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
                case Put(PartitionRecord() as record) if record.partition_epoch == 0:
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

    def _missing_logs(self, updates: Iterable[PartitionUpdate], *, is_new: bool) -> list[NewLog]:
        """Returns the logs of replicas that are new on this broker, or of others without a log.

        A broker whose disk was replaced has no logs of replicas that are not new.
        """
        new_logs: list[NewLog] = []
        for update in updates:
            record = update.record
            is_hosted = record.partition in self.by_topic.get(record.topic, {})
            if (
                update.is_new == is_new
                and not is_hosted
                and (is_new or not self._logs.has(record.key))
            ):
                epoch = record.leader_epoch if record.leader == self._broker_id else None
                config = self._config_of(self._image.config("topics", record.topic)).log
                new_logs.append(NewLog(record.key, config, update.topic_id, epoch))
        return new_logs

    async def wait_for_deletions(self, topics: Collection[str]) -> None:
        """Waits until the deletions of these topics that have begun are durable.

        Does not wait longer than `log_lifecycle.DELETION_S`, because a disk may hang.
        """
        await self._lifecycle.wait_for_deletions(topics)

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows the settings of topics, which the image contains already."""
        for change in changes:
            match change.key:
                case ConfigKey(entity=(("topics", topic),)):
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
            log = self._logs.get(key)
            if log is not None:
                log.config = replica.config.log
            replica.replace_log(log)
            if self.fetchers is not None:
                self.fetchers.restart(key)

    async def on_dir_failed(self, log_dir: LogDir) -> list[TopicPartition]:
        """Stops the replicas whose log directory has failed; returns their partitions.

        Followers stop fetching, and requests that wait for watermarks or records get an error.
        """
        replicas = [replica for replica in self if replica.partition.key in log_dir.logs]
        keys = [replica.partition.key for replica in replicas]
        if self.fetchers is not None:
            await self.fetchers.remove(keys)
        async for part in self._pacer.each(chunks(replicas, _UPDATES_AT_ONCE)):
            for replica in part:
                replica.fail_delayed_operations(ErrorCode.KAFKA_STORAGE_ERROR)
                replica.complete_delayed_fetches()
        return keys

    # --- updates from the controller

    async def apply_updates(
        self, updates: Sequence[PartitionUpdate]
    ) -> dict[TopicPartition, ErrorCode]:
        """Creates and updates replicas as the controller says (LeaderAndIsr).

        Returns the error of each partition. An update that is older than what the replica knows
        is ignored. Listeners are notified of the leaderships that have begun and ended.
        """
        for is_new in (True, False):
            missing_logs = self._missing_logs(updates, is_new=is_new)
            _, failure = await self._lifecycle.create(missing_logs, is_new=is_new)
            if failure is not None:
                # The error of one log shows when its replica is created.
                logger.error("%s", failure.message)
        errors: dict[TopicPartition, ErrorCode] = {}
        async for part in self._pacer.each(chunks(updates, _UPDATES_AT_ONCE)):
            await self._apply_updates(part, errors)
        return errors

    async def _apply_updates(
        self, updates: Sequence[PartitionUpdate], errors: dict[TopicPartition, ErrorCode]
    ) -> None:
        if self.fetchers is not None:
            # Nothing may be appended from the old leader once the new epoch is known.
            hanging = await self.fetchers.remove(
                [update.record.key for update in updates if self._is_newer(update)]
            )
            errors.update(dict.fromkeys(hanging, ErrorCode.KAFKA_STORAGE_ERROR))
            updates = [update for update in updates if update.record.key not in hanging]
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []
        followers: list[Replica] = []
        for update in updates:
            key = update.record.key
            try:
                errors[key] = self._apply_update(update)
            except Exception:
                logger.exception("an update of partition %s could not be applied", key)
                errors[key] = ErrorCode.UNKNOWN_SERVER_ERROR
            # Not what the update says: it may be older than the state of the replica.
            replica = self.by_topic.get(key.topic, {}).get(key.partition)
            if replica is not None and replica.partition.is_leader:
                led.append(key)
                continue
            followed.append(key)
            if replica is not None:
                followers.append(replica)
        for listener in self.leadership_listeners:
            listener(led, followed)
        if self.fetchers is not None:
            self.fetchers.add(followers)

    def _is_newer(self, update: PartitionUpdate) -> bool:
        hosted = self.by_topic.get(update.record.topic, {}).get(update.record.partition)
        return hosted is not None and hosted.partition.leader_epoch < update.record.leader_epoch

    def _apply_update(self, update: PartitionUpdate) -> ErrorCode:
        record = update.record
        hosted = self.by_topic.get(record.topic, {}).get(record.partition)
        if hosted is not None and hosted.partition.topic_id != update.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if hosted is None:
            hosted = self._create(update)
        if len(update.assignment.replicas) > 1:
            self._logs.maintenance.has_replicas = True
        hosted.apply_state(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=record.isr,
            replicas=update.assignment.replicas,
            adding=update.assignment.adding,
            removing=update.assignment.removing,
        )
        try:
            _ = hosted.log
        except KafkaStorageError as error:
            logger.error("%s", error.message)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def create_missing_logs(self) -> list[TopicPartition]:
        """Creates the logs for which there was no room when the controller assigned their replicas.

        Returns their partitions; the caller then calls `on_log_replaced`. If there is still no room
        for one of them, it leaves the others for later.
        """
        created_logs: list[TopicPartition] = []
        for key, replica in list(self._without_room.items()):
            if self.by_topic.get(key.topic, {}).get(key.partition) is replica:
                new_log = NewLog(key, replica.config.log, replica.partition.topic_id)
                _, failure = await self._lifecycle.create([new_log])
                if failure is not None:
                    break
                created_logs.append(key)
            del self._without_room[key]
        return created_logs

    async def stop(self, stops: Sequence[ReplicaStop]) -> dict[TopicPartition, ErrorCode]:
        """Stops replicas, and deletes the logs of those that are removed (StopReplica).

        Returns the error of each partition once the deletions are durable.
        """
        keys = [stop.key for stop in stops]
        errors = dict.fromkeys(keys, ErrorCode.NONE)
        if self.fetchers is not None:
            hanging = await self.fetchers.remove(keys)
            errors.update(dict.fromkeys(hanging, ErrorCode.KAFKA_STORAGE_ERROR))
            stops = [stop for stop in stops if stop.key not in hanging]
            keys = [stop.key for stop in stops]
        removed = [stop.key for stop in stops if stop.delete]
        for stop in stops:
            hosted = self.by_topic.get(stop.key.topic, {}).get(stop.key.partition)
            if hosted is not None and stop.leader_epoch > hosted.partition.leader_epoch:
                # Another broker leads, in an epoch that this replica does not get.
                hosted.resign()
        for listener in self.leadership_listeners:
            listener([], keys)
        failed = await self._lifecycle.failed_deletions(self._remove(removed))
        errors.update(dict.fromkeys(failed, ErrorCode.KAFKA_STORAGE_ERROR))
        return errors

    async def keep_only(self, assigned: Collection[TopicPartition]) -> None:
        """Stops all replicas but those that the controller has assigned to this broker.

        Others have been removed while the broker had no session. Their logs are not deleted.
        """
        removed = [
            key
            for topic, replicas in self.by_topic.items()
            for number in replicas
            if (key := TopicPartition(topic, number)) not in assigned
        ]
        if not removed:
            return
        logger.warning("%d replicas are no longer assigned to this broker", len(removed))
        if self.fetchers is not None:
            await self.fetchers.remove(removed)
        for listener in self.leadership_listeners:
            listener([], removed)
        for key in removed:
            replicas = self.by_topic.get(key.topic, {})
            replica = replicas.pop(key.partition, None)
            if replica is not None:
                replica.resign()
            if not replicas:
                self._remove_topic(key.topic)

    def _create(self, update: PartitionUpdate) -> Replica:
        record, topic_id = update.record, update.topic_id
        config = self._config_of(self._image.config("topics", record.topic))
        log: Log | KafkaStorageError
        lacks_room = False
        try:
            log = self._logs.get_or_create(record.key, config.log, topic_id, is_new=update.is_new)
        except KafkaError as error:
            # Only this partition is offline.
            logger.error("%s cannot be opened: %s", record.key, error.message)
            log = KafkaStorageError(error.message)
            lacks_room = is_lack_of_room(error.__cause__)
        partition = Partition(record.key, topic_id, self._broker_id)
        traffic = self.traffic.setdefault(record.topic, TopicTraffic())
        replica = Replica(partition, log, config, self._isr_rules, traffic)
        if lacks_room:
            self._without_room[record.key] = replica
        self.by_topic.setdefault(record.topic, {})[record.partition] = replica
        return replica

    def _remove_topic(self, topic: str) -> None:
        """Forgets a topic that has no replicas here any more."""
        self.by_topic.pop(topic, None)
        traffic = self.traffic.pop(topic, None)
        if traffic is not None:
            self.past_traffic.add(traffic)

    def _remove(self, keys: Iterable[TopicPartition]) -> list[Deletion]:
        """Deletes replicas, and logs whose replicas a broker that has restarted does not host."""
        removed_replicas: list[Replica] = []
        removed_keys: list[TopicPartition] = []
        for key in keys:
            replicas = self.by_topic.get(key.topic, {})
            replica = replicas.pop(key.partition, None)
            if replica is not None:
                replica.count_messages()
                removed_replicas.append(replica)
                if not replicas:
                    self._remove_topic(key.topic)
            if replica is not None or self._logs.get(key) is not None:
                removed_keys.append(key)
        deletions = self._lifecycle.begin_deletion(removed_keys)
        for replica in removed_replicas:
            replica.resign()
        return deletions
