"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A request is full (session epoch 0 opens a session, -1 closes it) or incremental (epoch 1, 2, …:
partitions that it does not name are as before). The response to an incremental request leaves out
partitions without anything new.

Followers fetch thousands of partitions many times per second. Their sessions are notified of the
partitions that have changed (`FollowerChanges`), so that a fetch costs nothing for the others.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.pacer import Steps
from penstock.broker.replica.replica import Replica
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
)
from penstock.replication.purgatory import DelayedFetch
from penstock.storage.segment.log_segment import LogSegment

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

PARTITIONS_AT_ONCE: Final = 100
"""Partitions of a fetch that are handled without a pause."""

_FULL_READ_INTERVAL_MS: Final = 5000
"""How often all partitions of a follower are read, whether they have changed or not."""

PartitionKey = tuple[str | int, int]
"""Topic and partition. The topic is its id as a number, which hashes faster, or its name."""


class LogTail(NamedTuple):
    """The end of a log at the time of a read."""

    segment: LogSegment
    """The active segment."""
    offset: int
    position: int


class CachedPartition:
    """A partition that a client fetches, and the offsets of the last response about it."""

    __slots__ = (
        "agreed_epochs",
        "changes",
        "fetch_offset",
        "follower_log_start_offset",
        "high_watermark",
        "index",
        "is_held_back",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "tail",
        "topic",
        "topic_id",
        "verified_replica",
        "watched_replica",
    )

    def __init__(self, topic: str, topic_id: UUID, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = request.partition
        self.key: PartitionKey = (_topic_key(topic, topic_id), request.partition)
        self.verified_replica: object = None
        """The replica whose topic id was compared with the client's."""
        self.changes: FollowerChanges | None = None
        """For a follower in a session: where the replica reports changes."""
        self.watched_replica: Replica | None = None
        self.agreed_epochs: tuple[int, int, int | None] | None = None
        """For a follower: the fetch offset, its last epoch and the log's, when both logs agreed."""
        self.tail: LogTail | None = None
        """For a follower: where its next fetch continues if it appends the last response."""
        self.is_held_back = False
        """Whether the follower got no records because it is throttled."""
        self.high_watermark = -1
        self.log_start_offset = -1
        self.leader_epoch = request.current_leader_epoch
        self.update(request)

    def update(self, request: FetchPartition) -> None:
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.partition_max_bytes
        if request.current_leader_epoch != self.leader_epoch:
            # A follower starts again; it may have ignored the last response in the old epoch.
            self.leader_epoch = request.current_leader_epoch
            self.high_watermark = -1
            self.agreed_epochs = None
            self.tail = None
        self.follower_log_start_offset = request.log_start_offset
        self.last_fetched_epoch = request.last_fetched_epoch

    def update_response_data(self, data: FetchPartitionData) -> bool:
        """Stores the offsets of `data`; returns whether an incremental response must include it."""
        must_respond = (
            bool(data.records)
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset
        if data.error_code or data.diverging_epoch.epoch >= 0:
            # The next response without an error must include the partition too: a follower whose
            # log diverges truncates it, and ignores the offsets of this response.
            self.high_watermark = -1
            must_respond = True
        return must_respond

    # --- notifications of the replica, for a follower in a session

    def watch(self, replica: Replica) -> None:
        """Has a replica notify the session of its changes; it replaces an earlier one."""
        self.unwatch()
        self.watched_replica = replica
        replica.follower_watches = (*replica.follower_watches, self)

    def unwatch(self) -> None:
        replica, self.watched_replica = self.watched_replica, None
        if replica is not None:
            replica.follower_watches = tuple(
                watch for watch in replica.follower_watches if watch is not self
            )

    def on_append(self, size: int) -> None:
        changes = self.changes
        if changes is None:
            return
        if self not in changes.partitions:
            changes.partitions[self] = None
            if self.watched_replica is not None:
                # The follower had all records when the session fetched last.
                follower = self.watched_replica.partition.followers.get(changes.replica_id)
                if follower is not None:
                    follower.record_caught_up(changes.last_fetch_ms)
        if changes.waiting is not None and not self.is_held_back:
            changes.waiting.add_bytes(size)

    def on_offsets_changed(self) -> None:
        changes = self.changes
        if changes is not None and self not in changes.partitions:
            self.on_append(0)

    def on_state_changed(self) -> None:
        changes = self.changes
        if changes is not None:
            changes.partitions[self] = None
            if changes.waiting is not None:
                changes.waiting.complete()


class FollowerChanges:
    """The partitions of a follower's session that may have something new for it."""

    __slots__ = ("_next_full_read_ms", "last_fetch_ms", "partitions", "replica_id", "waiting")

    def __init__(self, replica_id: int, now_ms: int) -> None:
        self.replica_id = replica_id
        self.partitions: dict[CachedPartition, None] = {}
        """A partition that is not here has no records that the follower does not have."""
        self.waiting: DelayedFetch | None = None
        """The fetch that waits for records."""
        self.last_fetch_ms = now_ms
        self._next_full_read_ms = now_ms

    def is_full_read_due(self, now_ms: int) -> bool:
        """Whether all partitions must be read, in case that a notification is missing."""
        if now_ms < self._next_full_read_ms:
            return False
        self._next_full_read_ms = now_ms + _FULL_READ_INTERVAL_MS
        return True


class FetchSession:
    """The partitions of one client, in the order in which they are read."""

    __slots__ = ("changes", "epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, replica_id: int, now_ms: int) -> None:
        self.changes = FollowerChanges(replica_id, now_ms) if replica_id >= 0 else None
        """For a follower."""
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.last_used_ms = now_ms

    def set_partitions(self, partitions: dict[PartitionKey, CachedPartition]) -> None:
        self.partitions = partitions
        if self.changes is not None:
            for partition in partitions.values():
                self.note_request(partition)

    def note_request(self, partition: CachedPartition) -> None:
        """Reads a partition of a follower next time: it is new, or fetched from another offset."""
        if self.changes is not None:
            partition.changes = self.changes
            self.changes.partitions[partition] = None

    def forget(self, key: PartitionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None and self.changes is not None:
            self.changes.partitions.pop(partition, None)
            partition.changes = None
            partition.unwatch()

    def close(self) -> None:
        """Ends the notifications of replicas."""
        if self.changes is not None:
            for partition in self.partitions.values():
                partition.changes = None
                partition.unwatch()


class FetchContext:
    """The partitions that one request fetches, and how its response is put together."""

    __slots__ = ("_create", "_session", "incremental", "partitions")

    def __init__(
        self,
        partitions: dict[PartitionKey, CachedPartition],
        session: FetchSession | None = None,
        *,
        create: "Callable[[int], FetchSession | None] | None" = None,
    ) -> None:
        self.partitions = partitions
        self._session = session
        self._create = create
        """Creates the session of a full fetch at a time; None if the client requests no session."""
        self.incremental = create is None and session is not None
        """Whether the response may leave out unchanged partitions."""

    @property
    def changes(self) -> FollowerChanges | None:
        """The changes for a follower that continues its session; None for other clients."""
        return self._session.changes if self.incremental and self._session is not None else None

    @property
    def session_id(self) -> int:
        return NO_SESSION if self._session is None else self._session.id

    def open_session(self, now_ms: int) -> None:
        """Opens the session that a full fetch requests, before its partitions are returned.

        A throttled client gets no partitions and sends the full fetch again: it has no session.
        """
        if self._create is not None and self._session is None:
            self._session = self._create(now_ms)
            if self._session is not None:
                self._session.set_partitions(self.partitions)

    def responses(
        self, results: Iterable[tuple[CachedPartition, FetchPartitionData]]
    ) -> Steps[list[FetchableTopicResponse]]:
        """Returns the topics of the response; partitions with records move to the end of the queue.

        So every partition is read first at some time, even if each response holds only a few.
        """
        remaining = PARTITIONS_AT_ONCE
        topics: list[FetchableTopicResponse] = []
        session = self._session
        with_records: list[CachedPartition] = []
        topic: str | int | None = None
        for partition, data in results:
            remaining -= 1
            if not remaining:
                yield
                remaining = PARTITIONS_AT_ONCE
            if (
                session is not None
                and not partition.update_response_data(data)
                and self.incremental
            ):
                continue
            if data.records:
                with_records.append(partition)
            if partition.key[0] == topic:
                topics[-1].partitions.append(data)
            else:
                topic = partition.key[0]
                topics.append(FetchableTopicResponse(partition.topic, partition.topic_id, [data]))
        if session is not None and self.incremental:
            for partition in with_records:
                # A request that arrived while this one waited may have removed it.
                if session.partitions.pop(partition.key, None) is not None:
                    session.partitions[partition.key] = partition
                    if session.changes is not None:
                        session.changes.partitions.pop(partition, None)
                        session.changes.partitions[partition] = None
        return topics


class FetchSessionCache:
    """The sessions of all clients: at most `max.incremental.fetch.session.cache.slots`.

    When all slots are taken, a new session replaces the least recently used one if that was idle
    for `eviction_ms`; otherwise the client gets no session. A follower replaces the least recently
    used session of a consumer even if that is in use.
    """

    def __init__(self, slots: int, new_id: Callable[[], int], eviction_ms: int = 120_000) -> None:
        self.slots = slots
        self._new_id = new_id
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        body: FetchRequest,
        *,
        uses_topic_ids: bool,
        name_of: Callable[[UUID], str],
        now_ms: int,
    ) -> Steps[FetchContext]:
        """Returns what the request fetches; continues or closes a session.

        A full fetch opens its session with the response: see `FetchContext.open_session`. Raises
        KafkaError if the session does not exist or has another epoch.
        """
        remaining = PARTITIONS_AT_ONCE
        if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(body.session_id)
            partitions: dict[PartitionKey, CachedPartition] = {}
            for topic in body.topics:
                name = topic.topic or name_of(topic.topic_id)
                for request in topic.partitions:
                    partition = CachedPartition(name, topic.topic_id, request)
                    partitions[partition.key] = partition
                    remaining -= 1
                    if not remaining:
                        yield
                        remaining = PARTITIONS_AT_ONCE
            if body.session_epoch == INITIAL_EPOCH and partitions:
                replica_id = max(body.replica_id, body.replica_state.replica_id)
                create = partial(self._create, uses_topic_ids, replica_id)
                return FetchContext(partitions, create=create)
            return FetchContext(partitions)
        session = self._find(body, uses_topic_ids)
        # Before any pause: another request for this epoch is refused.
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        if session.changes is not None:
            session.changes.last_fetch_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        for topic in body.topics:
            name = topic.topic or name_of(topic.topic_id)
            key = _topic_key(topic.topic, topic.topic_id)
            for request in topic.partitions:
                remaining -= 1
                if not remaining:
                    yield
                    remaining = PARTITIONS_AT_ONCE
                cached = session.partitions.get((key, request.partition))
                if cached is not None:
                    cached.update(request)
                else:
                    cached = CachedPartition(name, topic.topic_id, request)
                    session.partitions[key, request.partition] = cached
                session.note_request(cached)
        for forgotten in body.forgotten_topics_data:
            key = _topic_key(forgotten.topic, forgotten.topic_id)
            for index in forgotten.partitions:
                remaining -= 1
                if not remaining:
                    yield
                    remaining = PARTITIONS_AT_ONCE
                session.forget((key, index))
        if not session.partitions:
            self._remove(session.id)
            return FetchContext({})
        return FetchContext(session.partitions, session)

    def _find(self, body: FetchRequest, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"there is no fetch session {body.session_id}",
                remedy="open a new one",
            )
        if session.epoch != body.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {body.session_epoch}",
                remedy="open a new one",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} was opened "
                f"{'with' if session.uses_topic_ids else 'without'} topic ids",
                remedy="open a new one",
            )
        return session

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _create(self, uses_topic_ids: bool, replica_id: int, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self.slots:
            evicted = self._find_evictable(replica_id >= 0, now_ms)
            if evicted is None:
                return None
            self._remove(evicted.id)
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids, replica_id, now_ms)
        self._sessions[session_id] = session
        return session

    def _find_evictable(self, is_follower: bool, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms > self._eviction_ms:
            return oldest
        if is_follower:
            # Brokers fetch many partitions, and must not fall behind because of consumers.
            return next(
                (session for session in self._sessions.values() if session.changes is None), None
            )
        return None


def _topic_key(name: str, topic_id: UUID) -> str | int:
    return topic_id.int or name
