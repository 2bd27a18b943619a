"""Hosts the group coordinator: a `GroupShard` for each partition of `__consumer_offsets` (C3)."""

import asyncio
import logging
import uuid
from collections.abc import Iterable
from functools import partial
from uuid import UUID

from penstock.broker.coordinator.group_settings import group_config
from penstock.broker.coordinator.host import CoordinatorContext, CoordinatorHost
from penstock.broker.coordinator.log import BatchReader, Producer, append_records
from penstock.broker.coordinator.topic_patterns import matcher
from penstock.broker.metadata.features import GROUP_VERSION
from penstock.broker.replica.replica_manager import Replica
from penstock.broker.request import Request, Session
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    Put,
    TopicKey,
    TopicRecord,
)
from penstock.coordinator.group.events import (
    Context,
    Event,
    PartitionsDeleted,
    PendingOffset,
    RegexResolved,
    Requested,
    ResolveRegexes,
    Result,
    Timer,
    TopicsChanged,
    TransactionEnded,
)
from penstock.coordinator.group.multi_group_requests import merge, split
from penstock.coordinator.group.offsets.reader import OffsetReader
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.records import Skipped, decode_record, encode_record
from penstock.coordinator.group.responses import error_response
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import TimerFired
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.fields import Message
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.records.batch import BatchHeader, verify
from penstock.records.compress import Compression
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.records.validate import AppendOrigin
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard

logger = logging.getLogger("penstock.groups")


Loaded = Record | PendingOffset | TransactionEnded | Skipped


class _Topics:
    """What the machine asks about topics."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def topic_id(self, name: str) -> UUID | None:
        record = self._image.topics.get(name)
        return None if record is None else record.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._image.topic_names.get(topic_id)

    def has_partition(self, name: str, partition: int) -> bool:
        return TopicPartition(name, partition) in self._image.partitions

    def partition_count(self, name: str) -> int:
        record = self._image.topics.get(name)
        return 0 if record is None else len(record.assignments)

    def partition_racks(self, name: str, partition: int) -> list[str]:
        record = self._image.topics.get(name)
        replicas = () if record is None else record.assignments[partition].replicas
        brokers = (self._image.brokers.get(replica) for replica in replicas)
        return [each.rack for each in brokers if each is not None and each.rack is not None]


class GroupCoordinator(CoordinatorHost[GroupShard, Event, Result, Timer, Loaded]):
    """Groups and their offsets, for the handlers."""

    topic = GROUP_METADATA_TOPIC

    def __init__(self, surroundings: CoordinatorContext, authorizer: RequestAuthorizer) -> None:
        super().__init__(surroundings)
        self._authorizer = authorizer
        self._topics = _Topics(self._image)
        self._known_topics: set[str] = set()
        self._topic_changes = 0
        self._deleted_meanwhile: dict[int, set[TopicPartition]] = {}
        """By partition that is being loaded: what is gone since then, with its offsets."""
        self._group_config = group_config(self._config, self._image)
        self._config.subscribe("", lambda _: self._reconfigure())

    # --- for the handlers

    def require_consumer_groups(self) -> None:
        """Raises UNSUPPORTED_VERSION where the cluster has no groups of KIP-848."""
        if "consumer" not in self._config.list("group.coordinator.rebalance.protocols"):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "group.coordinator.rebalance.protocols lacks consumer: consume with "
                "group.protocol=classic, or add it",
            )
        features = self._image.features
        if features is None or not features.levels.get(GROUP_VERSION):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the cluster has group.version 0: consume with group.protocol=classic, or raise "
                "the level with kafka-features.sh",
            )

    async def ensure_topic(self) -> None:
        """Makes `__consumer_offsets`, with the first group that needs it."""
        if GROUP_METADATA_TOPIC not in self._image.topics:
            await self._create_topic(
                GROUP_METADATA_TOPIC,
                self._config.int("offsets.topic.num.partitions"),
                self._config.int("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self._config.int("offsets.topic.segment.bytes")),
                },
            )

    def send(self, request: Request, body: Message, group_id: str) -> "asyncio.Future[Message]":
        """Puts a request that names one group to its coordinator."""
        return self._send(self.partition_for(group_id), request, body)

    def commit_in_transaction(
        self, request: Request, body: TxnOffsetCommitRequest, guard: VerificationGuard | None
    ) -> "asyncio.Future[Message]":
        """Sends a TxnOffsetCommit to its coordinator, once the transaction has been verified."""
        return self._send(self.partition_for(body.group_id), request, body, guard)

    async def send_split(self, request: Request, body: Message) -> Message:
        """Puts a request that names several groups to their coordinators."""
        topic = self._image.topics.get(GROUP_METADATA_TOPIC)
        partitions = len(topic.assignments) if topic is not None else 1
        parts = split(body, request.version, partitions)
        if isinstance(body, ListGroupsRequest):
            parts = [part for part in parts if part.partition in self._shards]
        answers = await asyncio.gather(
            *(self._send(part.partition, request, part.request) for part in parts)
        )
        return merge(body, request.version, answers)

    def _send(
        self,
        partition: int | None,
        request: Request,
        body: Message,
        guard: VerificationGuard | None = None,
    ) -> "asyncio.Future[Message]":
        def event(number: int) -> Event:
            context = Context(
                number,
                request.version,
                request.client_id,
                f"/{request.session.host}",
                str(uuid.uuid4()),
                self._topics,
                request.session,
                guard,
            )
            return Requested(body, context)

        return self.submit(partition, body, request.version, event)

    def end_transaction(
        self,
        partition: int,
        marker: bytearray,
        producer_id: int,
        *,
        commit: bool,
        transaction_version: int,
    ) -> LogAppendInfo:
        """Appends the end of a transaction; the offsets that were committed in it count, or not."""
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{GROUP_METADATA_TOPIC}-{partition} is not loaded yet: retry",
            )
        info = self._replicas.find(GROUP_METADATA_TOPIC, partition).append(
            marker, origin=AppendOrigin.COORDINATOR, transaction_version=transaction_version
        )
        shard.apply(TransactionEnded(producer_id, commit))
        return info

    # --- the machine

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._group_config, self._topics)

    def _configure(self, shard: GroupShard) -> None:
        shard.config = self._group_config

    def _reader(self) -> BatchReader[Loaded]:
        offsets = OffsetReader()

        def read(data: bytes, position: int, header: BatchHeader) -> list[Loaded]:
            try:
                verify(data, position, header)
                return _read_batch(data, position, header, offsets)
            except KafkaError as error:
                # One batch is lost. Without the others every group of the partition would be.
                return [Skipped(f"{error.message}: the batch is left out")]

        return read

    def _load_item(self, partition: int, shard: GroupShard, item: Loaded) -> None:
        if isinstance(item, Skipped):
            logger.warning("%s-%d: %s", GROUP_METADATA_TOPIC, partition, item.note)
        else:
            shard.apply(item)

    def _timer_event(self, fired: TimerFired[Timer]) -> Event:
        return fired

    def _append(self, replica: Replica, result: Result) -> LogAppendInfo:
        records = [encode_record(record) for record in result.records]
        producer = None
        if result.producer is not None:
            guard = result.producer.guard
            assert guard is None or isinstance(guard, VerificationGuard)
            producer = Producer(result.producer.producer_id, result.producer.producer_epoch, guard)
        return append_records(
            replica,
            records,
            self._clock.now_ms(),
            atomic=result.atomic,
            producer=producer,
            compression=Compression(self._config.int("offsets.topic.compression.codec")),
        )

    def _apply(self, shard: GroupShard, result: Result) -> None:
        for change in result.changes:
            shard.apply(change)

    def _refusal(self, request: Message, version: int, error: ErrorCode) -> Message:
        return error_response(request, version, error)

    # --- patterns

    def _perform(self, partition: int, shard: GroupShard, result: Result) -> None:
        for effect in result.regexes:
            self._spawn(self._resolve(partition, shard, effect))

    async def _resolve(self, partition: int, shard: GroupShard, effect: ResolveRegexes) -> None:
        """Finds the topics that match the patterns of a group and that its client may DESCRIBE."""
        session = effect.session
        assert isinstance(session, Session)
        started_ms = self._clock.now_ms()
        version = self._metadata_version()
        visible = [
            name
            for name in self._image.topics
            if self._authorizer.allows(session, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        found: dict[str, frozenset[str]] | None = None
        try:
            work = partial(_matching, effect.patterns, visible)
            found = await self._workers.run(self._workers.compute, work)
        except Exception:  # whatever it is: the group waits to hear of it, and tries again
            logger.exception("patterns of group %s could not be resolved", effect.group_id)
        if self._shards.get(partition) is shard:
            event = RegexResolved(effect.group_id, found, version, started_ms)
            self._handle(partition, shard, event)

    def _metadata_version(self) -> int:
        """A number that rises with each change of the topics, over restarts too."""
        broker = self._image.brokers.get(self._broker_id)
        return (0 if broker is None else broker.epoch << 32) + self._topic_changes

    # --- what changes

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows who leads `__consumer_offsets`, the topics, and the settings of groups."""
        changes = list(changes)
        super().apply(changes)
        gone: set[TopicPartition] = set()
        topics: set[str] = set()
        created = False
        for change in changes:
            match change:
                case Put(TopicRecord(name)):
                    topics.add(name)
                    created = created or name not in self._known_topics
                    self._known_topics.add(name)
                case Delete(TopicKey(name)):
                    topics.add(name)
                    self._known_topics.discard(name)
                case Delete(TopicPartition() as key) if key.topic != GROUP_METADATA_TOPIC:
                    gone.add(key)
                case Put(ConfigRecord(entity=(("groups", _),))):
                    self._reconfigure()
                case Delete(ConfigKey(entity=(("groups", _),))):
                    self._reconfigure()
        if gone:
            for partition, shard in self._shards.items():
                if shard is None:
                    self._deleted_meanwhile.setdefault(partition, set()).update(gone)
            self._notify_shards(PartitionsDeleted(frozenset(gone)))
        if topics:
            self._topic_changes += 1
            self._notify_shards(TopicsChanged(frozenset(topics), created))

    def _load(self, partition: int) -> None:
        if partition not in self._shards:
            # Of a load that came to nothing; by now there may be new topics of these names.
            self._deleted_meanwhile.pop(partition, None)
        super()._load(partition)

    def _after_load(self, partition: int, shard: GroupShard) -> None:
        if gone := self._deleted_meanwhile.pop(partition, None):
            self._handle(partition, shard, PartitionsDeleted(frozenset(gone)))

    def _notify_shards(self, event: Event) -> None:
        for partition, shard in list(self._shards.items()):
            if shard is not None:
                self._handle(partition, shard, event)

    def _reconfigure(self) -> None:
        self._group_config = group_config(self._config, self._image)
        super()._reconfigure()


def _read_batch(
    data: bytes, position: int, header: BatchHeader, reader: OffsetReader
) -> list[Loaded]:
    """What a batch says: records, offsets inside a transaction, or the end of one."""
    if header.is_control:
        marker = read_end_txn_marker(data, position, header)
        ended = TransactionEnded(marker.producer_id, marker.commits)
        return [ended] if marker.ends_transaction else []
    records: list[Loaded] = [
        decode_record(each.key, each.value, reader) for each in read_records(data, position, header)
    ]
    if not header.is_transactional:
        return records
    return [
        PendingOffset(header.producer_id, each) if isinstance(each, OffsetRecord) else each
        for each in records
    ]


def _matching(patterns: frozenset[str], names: list[str]) -> dict[str, frozenset[str]]:
    """By pattern: the names that match as a whole. KafkaError where a pattern is none."""
    return {pattern: frozenset(filter(matcher(pattern), names)) for pattern in patterns}
