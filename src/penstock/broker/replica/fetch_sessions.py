"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A request is full (session epoch 0: opens a session; -1: closes one, none afterwards) or incremental
(epoch 1, 2, …: what it does not name is as before). The answer to an incremental request leaves out
partitions about which there is nothing new.
"""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
)

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

EntryKey = tuple[str | int, int]
"""Topic and partition. The topic is its id as a number, which is found faster, else its name."""


class Entry:
    """A partition that a client fetches, and what it was told about it last."""

    __slots__ = (
        "checked",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: UUID, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.key: EntryKey = (_topic_key(topic, topic_id), wanted.partition)
        self.checked: object = None
        """The replica that was found to be of this topic, not of another one of its name."""
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(wanted)

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def is_news(self, data: FetchPartitionData) -> bool:
        """Whether an incremental answer must hold `data`; remembers what is told."""
        news = (
            bool(data.records)
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch.epoch >= 0
        )
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset
        if data.error_code:
            # The next answer without an error is news too.
            self.high_watermark = -1
            news = True
        return news


class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    __slots__ = ("created_ms", "entries", "epoch", "id", "last_used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.entries: dict[EntryKey, Entry] = {}
        self.created_ms = now_ms
        self.last_used_ms = now_ms


class FetchContext:
    """What one request asks for, and how its answer is put together."""

    __slots__ = ("_session", "entries", "incremental")

    def __init__(
        self, entries: dict[EntryKey, Entry], session: FetchSession | None, incremental: bool
    ) -> None:
        self.entries = entries
        self._session = session
        self.incremental = incremental
        """Whether the answer may leave partitions out: the client remembers what it was told."""

    @property
    def session_id(self) -> int:
        return NO_SESSION if self._session is None else self._session.id

    def responses(
        self, found: Iterable[tuple[Entry, FetchPartitionData]]
    ) -> list[FetchableTopicResponse]:
        """The topics of the answer. Partitions that gave records go to the end of the queue."""
        topics: list[FetchableTopicResponse] = []
        session = self._session
        served: list[Entry] = []
        topic: str | int | None = None
        for entry, data in found:
            if session is not None and not entry.is_news(data) and self.incremental:
                continue
            if data.records:
                served.append(entry)
            if entry.key[0] == topic:
                topics[-1].partitions.append(data)
            else:
                topic = entry.key[0]
                topics.append(FetchableTopicResponse(entry.topic, entry.topic_id, [data]))
        if session is not None and self.incremental:
            for entry in served:
                # It may have been forgotten by a request that came while this one waited.
                if session.entries.pop(entry.key, None) is not None:
                    session.entries[entry.key] = entry
        return topics


class FetchSessionCache:
    """The sessions of all clients: at most `max.incremental.fetch.session.cache.slots`.

    When all slots are taken, a new session takes the place of one that was not used for
    `eviction_ms`; where there is none the client does without a session.
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
    ) -> FetchContext:
        """What the request asks for; KafkaError where its session is gone or out of step."""
        if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(body.session_id, None)
            entries = {
                entry.key: entry
                for topic in body.topics
                for entry in _entries(topic.topic or name_of(topic.topic_id), topic)
            }
            session = None
            if body.session_epoch == INITIAL_EPOCH and entries:
                session = self._create(uses_topic_ids, now_ms)
            if session is not None:
                session.entries = entries
            return FetchContext(entries, session, incremental=False)
        session = self._continued(body, uses_topic_ids)
        for topic in body.topics:
            name = topic.topic or name_of(topic.topic_id)
            key = _topic_key(topic.topic, topic.topic_id)
            for wanted in topic.partitions:
                known = session.entries.get((key, wanted.partition))
                if known is not None:
                    known.update(wanted)
                else:
                    session.entries[key, wanted.partition] = Entry(name, topic.topic_id, wanted)
        for forgotten in body.forgotten_topics_data:
            key = _topic_key(forgotten.topic, forgotten.topic_id)
            for partition in forgotten.partitions:
                session.entries.pop((key, partition), None)
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        if not session.entries:
            del self._sessions[session.id]
            return FetchContext({}, None, incremental=True)
        return FetchContext(session.entries, session, incremental=True)

    def _continued(self, body: FetchRequest, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"there is no fetch session {body.session_id}: open a new one",
            )
        if session.epoch != body.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not "
                f"{body.session_epoch}: open a new one",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} was opened "
                f"{'with' if session.uses_topic_ids else 'without'} topic ids: open a new one",
            )
        return session

    def _create(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self.slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= self._eviction_ms:
                return None
            del self._sessions[oldest.id]
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids, now_ms)
        self._sessions[session_id] = session
        return session


def _topic_key(name: str, topic_id: UUID) -> str | int:
    return topic_id.int or name


def _entries(name: str, topic: FetchTopic) -> Iterable[Entry]:
    return (Entry(name, topic.topic_id, wanted) for wanted in topic.partitions)
