"""The group coordinator: hosts a `GroupShard` for each partition of `__consumer_offsets` (C3)."""

import asyncio
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from uuid import UUID

from penstock.broker.config.internal_topic_configs import internal_topic_configs
from penstock.broker.coordinator.group_settings import group_config
from penstock.broker.coordinator.host import CoordinatorContext, CoordinatorHost
from penstock.broker.coordinator.log import BatchReader, Producer, append_records
from penstock.broker.coordinator.topic_patterns import matcher
from penstock.broker.metadata.features import GROUP_VERSION
from penstock.broker.replica.replica import Replica
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
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.request_chunks import (
    chunked,
    combined,
    drop_missing,
    name_partitions,
)
from penstock.coordinator.group.responses import error_response
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import Skipped
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.fields import Message
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader
from penstock.records.compress import Compression
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.producer.append_info import VerificationGuard

logger = logging.getLogger(__name__)

_Fact = Record | PendingOffset | TransactionEnded
"""What a batch of the log states: records, pending offsets, or the end of a transaction."""


class _Topics:
    """The topics of the cluster's image."""

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
        return [broker.rack for broker in brokers if broker is not None and broker.rack is not None]


class GroupCoordinator(CoordinatorHost[GroupShard, Event, Result, Timer, _Fact]):
    """Groups and their offsets, as the request handlers use them."""

    topic = GROUP_METADATA_TOPIC

    def __init__(self, context: CoordinatorContext, authorizer: RequestAuthorizer) -> None:
        super().__init__(context)
        self._authorizer = authorizer
        self._topics = _Topics(self._image)
        self._topic_names: set[str] = set()
        self._topic_changes = 0
        self._deleted_during_load: dict[int, set[TopicPartition]] = {}
        """Partitions that were deleted while a partition of the log is loaded, by the latter."""
        self._group_config = group_config(self._config, self._image)
        self._config.subscribe("", lambda _: self._reconfigure())

    # --- requests

    def require_consumer_groups(self) -> None:
        """Raises UNSUPPORTED_VERSION if groups of KIP-848 are disabled."""
        if "consumer" not in self._config.list("group.coordinator.rebalance.protocols"):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "group.coordinator.rebalance.protocols lacks consumer",
                remedy="consume with group.protocol=classic, or add it to the setting",
            )
        features = self._image.features
        if features is None or not features.levels.get(GROUP_VERSION):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the cluster has group.version 0",
                remedy=(
                    "consume with group.protocol=classic, or raise the level with kafka-features.sh"
                ),
            )

    async def ensure_topic(self) -> None:
        """Creates `__consumer_offsets` when the first group needs it."""
        if GROUP_METADATA_TOPIC not in self._image.topics:
            await self._create_topic(
                GROUP_METADATA_TOPIC,
                self._config.int("offsets.topic.num.partitions"),
                self._config.int("offsets.topic.replication.factor"),
                internal_topic_configs(self._config)[GROUP_METADATA_TOPIC],
            )

    def send(self, request: Request, body: Message, group_id: str) -> "asyncio.Future[Message]":
        """Sends a request that names one group to its shard."""
        return self._send(self.partition_for(group_id), request, body)

    def commit_in_transaction(
        self, request: Request, body: TxnOffsetCommitRequest, guard: VerificationGuard | None
    ) -> "asyncio.Future[Message]":
        """Sends a TxnOffsetCommit to its shard, once the transaction has been verified."""
        return self._send(self.partition_for(body.group_id), request, body, guard)

    async def send_split(self, request: Request, body: Message) -> Message:
        """Sends a request that names several groups to their shards; returns the merged
        response."""
        named: frozenset[str] = frozenset()
        if isinstance(body, OffsetFetchRequest):
            body, named = name_partitions(
                body, request.version, self._committed_partitions, self._topics.topic_id
            )
        responses = [
            await self._send_chunk(request, chunk)
            async for chunk in self._pacer.each(chunked(body, request.version))
        ]
        response = combined(body, request.version, responses)
        if named and isinstance(response, OffsetFetchResponse):
            drop_missing(response, named)
        return response

    def _committed_partitions(self, group_id: str) -> Mapping[str, Collection[int]]:
        """Returns the topics and partitions for which a group has committed offsets."""
        partition = self.partition_for(group_id)
        shard = None if partition is None else self._shards.get(partition)
        return {} if shard is None else shard.offsets.of(group_id)

    async def _send_chunk(self, request: Request, body: Message) -> Message:
        topic = self._image.topics.get(GROUP_METADATA_TOPIC)
        partitions = len(topic.assignments) if topic is not None else 1
        parts = split(body, request.version, partitions)
        if isinstance(body, ListGroupsRequest):
            parts = [part for part in parts if part.partition in self._shards]
        responses = [
            self._send(part.partition, request, part.request)
            async for part in self._pacer.each(parts)
        ]
        return merge(body, request.version, await asyncio.gather(*responses))

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
        """Appends the end of a transaction; its pending offsets become valid or are dropped."""
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{GROUP_METADATA_TOPIC}-{partition} is not loaded yet",
                remedy="retry",
            )
        replica = self._replicas.find(GROUP_METADATA_TOPIC, partition)
        info = replica.append(
            marker, origin=AppendOrigin.COORDINATOR, transaction_version=transaction_version
        )
        shard.apply(TransactionEnded(producer_id, commit))
        # Responses that depend on these offsets wait until they are durable and committed.
        self._writes.add(partition, replica, info)
        return info

    # --- shards

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._group_config, self._topics)

    def _configure(self, shard: GroupShard) -> None:
        shard.config = self._group_config

    def _commit_timeout_ms(self) -> int:
        return self._config.int("offsets.commit.timeout.ms")

    def _reader(self) -> BatchReader[_Fact | Skipped]:
        offsets = OffsetReader()

        return lambda data, position, header: _read_batch(data, position, header, offsets)

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

    def _error_response(self, request: Message, version: int, error: ErrorCode) -> Message:
        return error_response(request, version, error)

    # --- patterns

    def _perform(self, partition: int, shard: GroupShard, result: Result) -> None:
        for effect in result.regexes:
            self._spawn(self._resolve(partition, shard, effect))

    async def _resolve(self, partition: int, shard: GroupShard, effect: ResolveRegexes) -> None:
        """Finds the topics that match a group's patterns and that the client may DESCRIBE."""
        session = effect.session
        assert isinstance(session, Session)
        started_ms = self._clock.now_ms()
        version = self._metadata_version()
        visible = [
            name
            for name in self._image.topics
            if self._authorizer.would_allow(
                session, AclOperation.DESCRIBE, ResourceType.TOPIC, name
            )
        ]
        topics: dict[str, frozenset[str]] | None = None
        try:
            work = partial(_match_topics, effect.patterns, visible)
            topics = await self._workers.run(self._workers.search, work)
        except Exception:  # the group waits for an outcome, and tries again
            logger.exception("cannot resolve the patterns of group %s", effect.group_id)
        if self._shards.get(partition) is shard:
            event = RegexResolved(effect.group_id, topics, version, started_ms)
            self._handle(partition, shard, event)

    def _metadata_version(self) -> int:
        """Returns a number that increases with each change of the topics, across restarts too."""
        broker = self._image.brokers.get(self._broker_id)
        return (0 if broker is None else broker.epoch << 32) + self._topic_changes

    # --- changes of the cluster

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows the topics and the settings of groups."""
        changes = list(changes)
        deleted: set[TopicPartition] = set()
        topics: set[str] = set()
        created = False
        for change in changes:
            match change:
                case Put(TopicRecord(name)):
                    topics.add(name)
                    created = created or name not in self._topic_names
                    self._topic_names.add(name)
                case Delete(TopicKey(name)):
                    topics.add(name)
                    self._topic_names.discard(name)
                case Delete(TopicPartition() as key) if key.topic != GROUP_METADATA_TOPIC:
                    deleted.add(key)
                case Put(ConfigRecord(entity=(("groups", _),))):
                    self._reconfigure()
                case Delete(ConfigKey(entity=(("groups", _),))):
                    self._reconfigure()
        if deleted:
            for partition, shard in self._shards.items():
                if shard is None:
                    self._deleted_during_load.setdefault(partition, set()).update(deleted)
            self._notify_shards(PartitionsDeleted(frozenset(deleted)))
        if topics:
            self._topic_changes += 1
            self._notify_shards(TopicsChanged(frozenset(topics), created))

    def _load(self, partition: int) -> None:
        if partition not in self._shards:
            # Left over from a failed load; new topics may have these names by now.
            self._deleted_during_load.pop(partition, None)
        super()._load(partition)

    def _after_load(self, partition: int, shard: GroupShard) -> None:
        if deleted := self._deleted_during_load.pop(partition, None):
            self._handle(partition, shard, PartitionsDeleted(frozenset(deleted)))

    def _notify_shards(self, event: Event) -> None:
        for partition, shard in list(self._shards.items()):
            if shard is not None:
                self._handle(partition, shard, event)

    def _reconfigure(self) -> None:
        self._group_config = group_config(self._config, self._image)
        super()._reconfigure()


def _read_batch(
    data: bytes, position: int, header: BatchHeader, reader: OffsetReader
) -> list[_Fact | Skipped]:
    """Returns what a batch states: records, pending offsets, or the end of a transaction."""
    if header.is_control:
        marker = read_end_txn_marker(data, position, header)
        ended = TransactionEnded(marker.producer_id, marker.commits)
        return [ended] if marker.ends_transaction else []
    records: list[_Fact | Skipped] = [
        decode_record(record.key, record.value, reader)
        for record in read_records(data, position, header)
    ]
    if not header.is_transactional:
        return records
    return [
        PendingOffset(header.producer_id, record) if isinstance(record, OffsetRecord) else record
        for record in records
    ]


def _match_topics(patterns: frozenset[str], names: list[str]) -> dict[str, frozenset[str]]:
    """Returns the names that match each pattern as a whole; raises if a pattern is invalid."""
    return {pattern: frozenset(filter(matcher(pattern), names)) for pattern in patterns}
