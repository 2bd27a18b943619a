"""The fetch session of a replica fetcher with its leader (KIP-227).

The first request of a session names every partition, later ones only those that were added, changed
or dropped. Both sides remember the rest, so that a fetch of one changed partition among thousands
costs no more than a fetch of one. After an error, or when both sides disagree, the next request
starts a new session. A request names at most `MAX_PARTITIONS` partitions, because the leader limits
the elements of a request (`socket.request.max.elements`); the next ones of the session name the
others.
"""

from itertools import islice
from typing import NamedTuple
from uuid import UUID

from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.protocol.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.replication.follower_fetch_state import PartitionFetchState

MAX_PARTITIONS = 40_000
"""Each takes two elements of a request if it is the only one of its topic."""
_NO_SESSION = 0
_INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1


class FetcherSettings(NamedTuple):
    """Settings of the replica fetchers, under the names of the broker settings."""

    broker_id: int
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1000


class InvalidSessionError(Exception):
    """The response does not belong to the session; the next request starts a new one."""


class ReplicaFetchSession:
    """The partitions that are fetched, and those that the leader knows of.

    `put` and `drop` change what the next request fetches. Exactly one `handle_response` or
    `handle_failure` follows each request.
    """

    def __init__(self, settings: FetcherSettings, max_partitions: int = MAX_PARTITIONS) -> None:
        self.settings = settings
        self._max_partitions = max_partitions
        self._id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._is_without_session = False
        """Whether the leader had no room for the session."""
        self._states: dict[PartitionFetchState, None] = {}
        """Everything to be fetched. A full request names it in this order."""
        self._changed: dict[PartitionFetchState, None] = {}
        """What the next requests of the session name."""
        self._dropped: dict[tuple[UUID, int], None] = {}
        self._sent: dict[UUID, dict[int, PartitionFetchState]] = {}
        """The partitions that the leader has in the session after the last request."""

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, state: PartitionFetchState) -> bool:
        return state in self._states

    def states(self) -> list[PartitionFetchState]:
        return list(self._states)

    @property
    def is_full(self) -> bool:
        """Whether the next request starts a session."""
        return self._epoch == _INITIAL_EPOCH

    def put(self, state: PartitionFetchState) -> None:
        """Fetches a partition from its current offset on; a known one is updated."""
        if self._epoch == _INITIAL_EPOCH:
            # To the last position: of a full request the leader reads the first partitions first.
            # In a session the leader rotates them.
            self._states.pop(state, None)
        self._states[state] = None
        self._changed[state] = None

    def drop(self, state: PartitionFetchState) -> None:
        """Does not fetch a partition any more."""
        if state not in self._states:
            return
        del self._states[state]
        self._changed.pop(state, None)
        sent = self._sent.get(state.topic_id)
        if sent is not None and sent.get(state.key.partition) is state:
            self._dropped[state.topic_id, state.key.partition] = None

    # --- requests

    def build(self, broker_epoch: int) -> tuple[FetchRequest | None, list[PartitionFetchState]]:
        """Returns the next request, and the partitions whose log is offline.

        There is no request if nothing is to be fetched and the session has no partition to drop.
        """
        is_full = self._epoch == _INITIAL_EPOCH
        if is_full:
            self._sent = {}
            self._dropped = {}
        unnamed = iter(self._states if is_full else self._changed)
        named = list(islice(unnamed, self._max_partitions))
        self._changed = dict.fromkeys(unnamed)
        topics: dict[UUID, FetchTopic] = {}
        offline: list[PartitionFetchState] = []
        max_bytes = self.settings.replica_fetch_max_bytes
        for state in named:
            try:
                log_start_offset = state.log.log_start_offset
            except KafkaStorageError:
                offline.append(state)
                continue
            state.sent_offset = state.fetch_offset
            state.sent_log_start_offset = log_start_offset
            topic_id = state.topic_id
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(state.key.topic, topic_id, [])
                if topic_id not in self._sent:
                    self._sent[topic_id] = {}
            partition = state.key.partition
            topic.partitions.append(
                FetchPartition(
                    partition,
                    state.leader_epoch,
                    state.fetch_offset,
                    state.last_fetched_epoch,
                    log_start_offset,
                    max_bytes,
                )
            )
            self._sent[topic_id][partition] = state
        forgotten = self._forget(self._max_partitions - len(named)) if self._dropped else []
        for state in offline:
            self.drop(state)
        if not self._states and not forgotten:
            return None, offline
        return self._request(broker_epoch, list(topics.values()), forgotten), offline

    def _request(
        self, broker_epoch: int, topics: list[FetchTopic], forgotten: list[FetchForgottenTopic]
    ) -> FetchRequest:
        settings = self.settings
        # Partitions that have not been named yet do not wait for records of the others.
        names_more_soon = self._changed and not self._is_without_session
        return FetchRequest(
            replica_state=FetchReplicaState(settings.broker_id, broker_epoch),
            max_wait_ms=0 if names_more_soon else settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _forget(self, count: int) -> list[FetchForgottenTopic]:
        """Returns the first `count` dropped partitions; the others stay for the next request."""
        topics: dict[UUID, FetchForgottenTopic] = {}
        dropped = list(islice(self._dropped, count))
        for topic_id, partition in dropped:
            del self._dropped[topic_id, partition]
            sent = self._sent[topic_id]
            if sent[partition] in self._states:
                continue  # it was fetched again since, or replaced by a newer state
            del sent[partition]
            if not sent:
                del self._sent[topic_id]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchForgottenTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(partition)
        return list(topics.values())

    # --- responses

    def handle_response(
        self, response: FetchResponse
    ) -> list[tuple[PartitionFetchState, FetchPartitionData]]:
        """Returns the data with the states that requested it, which may have been removed since.

        Raises InvalidSessionError if the leader refuses the session or responds with other
        partitions.
        """
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = _NO_SESSION
            self._start_over()
            raise InvalidSessionError(ErrorCode(response.error_code).name)
        data = self._by_state(response)
        if self.is_full:
            expected = sum(map(len, self._sent.values()))
            if len(data) != expected:
                # The response to a throttled full fetch is empty (KIP-219): it must be repeated.
                self._id = _NO_SESSION
                raise InvalidSessionError(f"{len(data)} of {expected} partitions in a response")
            self._id = response.session_id
            self._is_without_session = self._id == _NO_SESSION
            if not self._is_without_session:
                self._epoch = 1
            elif self._changed:
                self._rotate()
        elif response.session_id == _NO_SESSION:
            self._id = _NO_SESSION
            self._start_over()
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return data

    def _rotate(self) -> None:
        """Moves the partitions of the last request behind those that it had no room for."""
        for sent in self._sent.values():
            for state in sent.values():
                if state in self._states:
                    del self._states[state]
                    self._states[state] = None

    def _by_state(
        self, response: FetchResponse
    ) -> list[tuple[PartitionFetchState, FetchPartitionData]]:
        data: list[tuple[PartitionFetchState, FetchPartitionData]] = []
        for topic in response.responses:
            sent = self._sent.get(topic.topic_id, {})
            for partition in topic.partitions:
                state = sent.get(partition.partition_index)
                if state is None:
                    self._start_over()
                    raise InvalidSessionError(
                        f"partition {partition.partition_index} of topic id {topic.topic_id}, "
                        f"which was not requested"
                    )
                data.append((state, partition))
        return data

    def handle_failure(self) -> None:
        """Starts a new session: the leader may or may not have received the last request."""
        self._start_over()

    def _start_over(self) -> None:
        # The id of the old session is sent with the new one, so that the leader closes it.
        self._epoch = _INITIAL_EPOCH
        self._changed = {}
        self._dropped = {}
