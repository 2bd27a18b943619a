"""A replica fetcher as a state machine: copies the logs of one leader broker (R2, R4).

The machine decides what to send to the leader and what to do with its responses; it performs no
I/O. Its host (`broker/replica/replica_fetcher.py`, or a simulation) runs it like this::

    request = machine.next_request(now_ms, broker_epoch)    # None: wait until `wake_up_ms`
    response = await send(request)                          # or machine.handle_failure(request, …)
    for effect in machine.handle_response(request, response, now_ms):
        perform it, unless `effect.state.is_removed`, then report the outcome:
        Append    -> append the records, then apply what `machine.appended(effect)` returns
        Truncate  -> truncate the log, then `machine.truncated(effect.state)`
        in case of an error: `machine.delay` or `machine.fail`

At most one request is in flight. An effect is performed completely before the next request is
built, except for `Truncate`: its partition is left out of requests until it is done.

A log is truncated only where its leader epochs differ from the leader's, never to its high
watermark: records above the high watermark may be committed. The leader detects the difference
from the follower's last epoch in each Fetch. With a leader that does not
(`truncates_on_fetch=False`) the follower first compares its epochs by OffsetForLeaderEpoch.
"""

import logging
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import NO_LEADER_EPOCH, TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from penstock.replication.follower_effects import (
    Append,
    Effect,
    InitialFetch,
    OffsetUpdate,
    Truncate,
    append_of,
)
from penstock.replication.follower_fetch_state import (
    FetchPhase,
    PartitionFetchState,
    truncation_offset,
)
from penstock.replication.follower_offsets import (
    EARLIEST,
    LATEST,
    compare_log_end,
    compare_log_start,
    end_offsets_request,
    list_offsets_request,
)
from penstock.replication.follower_session import (
    FetcherSettings,
    InvalidSessionError,
    ReplicaFetchSession,
)
from penstock.replication.throttle import FollowerQuota

logger = logging.getLogger(__name__)

FollowerRequest: TypeAlias = FetchRequest | ListOffsetsRequest | OffsetForLeaderEpochRequest
FollowerResponse: TypeAlias = FetchResponse | ListOffsetsResponse | OffsetForLeaderEpochResponse

_FIRST_DELAY_MS = 50
_LOG_START_CHECK_MS = 5_000
"""How often the leader is notified of log start offsets that retention has changed here."""


class FollowerMachine:
    """The partitions of one replica fetcher, and the requests and effects that they need."""

    def __init__(
        self,
        settings: FetcherSettings,
        quota: FollowerQuota | None = None,
        *,
        truncates_on_fetch: bool = True,
    ) -> None:
        self._settings = settings
        self._quota = quota
        self._truncates_on_fetch = truncates_on_fetch
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._session = ReplicaFetchSession(settings)
        self._delayed: list[tuple[int, int, PartitionFetchState]] = []
        self._delays = 0
        self._not_fetching: dict[PartitionFetchState, None] = {}
        """Partitions that are `TRUNCATING` or `OUT_OF_RANGE`."""
        self._throttled: dict[PartitionFetchState, None] = {}
        """Partitions that are left out because the follower's quota is exceeded."""
        self._log_starts_checked_ms = 0
        self._has_invalid_session = False
        self.failures: dict[TopicPartition, str] = {}
        """Partitions that are not fetched any more until they are added again, and why."""

    # --- partitions

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(self._states.values())

    def find(self, key: TopicPartition) -> PartitionFetchState | None:
        return self._states.get(key)

    def add(self, key: TopicPartition, initial: InitialFetch) -> None:
        """Follows the leader of an epoch; continues if it is the current one already.

        Raises KafkaStorageError if the log is offline.
        """
        self.failures.pop(key, None)
        current = self._states.get(key)
        if (
            current is not None
            and current.leader_epoch == initial.leader_epoch
            and current.topic_id == initial.topic_id
        ):
            return
        if current is not None:
            self._remove(current)
        state = PartitionFetchState(key, initial.topic_id, initial.leader_epoch, initial.log)
        state.read_offsets()
        self._states[key] = state
        if self._truncates_on_fetch or state.last_fetched_epoch == NO_LEADER_EPOCH:
            self._session.put(state)
        else:
            self._set_phase(state, FetchPhase.TRUNCATING)

    def remove(self, keys: Iterable[TopicPartition]) -> list[PartitionFetchState]:
        """Stops following; returns the states that were removed.

        Effects of these states that have not been performed must not be.
        """
        removed: list[PartitionFetchState] = []
        for key in keys:
            self.failures.pop(key, None)
            state = self._states.get(key)
            if state is not None:
                self._remove(state)
                removed.append(state)
        return removed

    def _remove(self, state: PartitionFetchState) -> None:
        state.is_removed = True
        del self._states[state.key]
        self._session.drop(state)
        self._not_fetching.pop(state, None)
        self._throttled.pop(state, None)

    def _set_phase(self, state: PartitionFetchState, phase: FetchPhase) -> None:
        state.phase = phase
        if phase is FetchPhase.FETCHING:
            self._not_fetching.pop(state, None)
            if state.delayed_until_ms is None:
                self._session.put(state)
            return
        self._session.drop(state)
        self._throttled.pop(state, None)
        if phase is FetchPhase.BUSY:
            self._not_fetching.pop(state, None)
        else:
            self._not_fetching[state] = None

    # --- errors

    def delay(self, state: PartitionFetchState, now_ms: int) -> None:
        """Leaves a partition out for a while, after an error that may pass.

        The first delays are short: after an election the leader may learn of it a moment later than
        its followers. If the error persists, they grow up to `replica.fetch.backoff.ms`.
        """
        if state.is_removed or state.delayed_until_ms is not None:
            return
        state.delay_ms = min(
            max(2 * state.delay_ms, _FIRST_DELAY_MS), self._settings.replica_fetch_backoff_ms
        )
        state.delayed_until_ms = now_ms + state.delay_ms
        self._session.drop(state)
        self._throttled.pop(state, None)
        self._delays += 1
        heappush(self._delayed, (state.delayed_until_ms, self._delays, state))

    def fail(self, state: PartitionFetchState, reason: str) -> None:
        """Stops following a partition until it is added again, after a permanent error."""
        if state.is_removed:
            return
        self._remove(state)
        self.failures[state.key] = reason
        logger.warning("%s is not replicated any more: %s", state.key, reason)

    def _fence(self, state: PartitionFetchState) -> None:
        """Stops following: another leader epoch has begun, of which this broker learns soon."""
        self._remove(state)
        self.failures[state.key] = f"leader epoch {state.leader_epoch} is over"
        logger.info(
            "%s: leader epoch %d is over; replication continues with the next one",
            state.key,
            state.leader_epoch,
        )

    # --- requests

    def wake_up_ms(self, now_ms: int) -> int | None:
        """Returns when `next_request` should be called again if it has returned None.

        None: not before a partition is added or a truncation is done.
        """
        wake_up_ms = self._delayed[0][0] if self._delayed else None
        if self._throttled:
            retry_ms = now_ms + self._settings.replica_fetch_backoff_ms
            wake_up_ms = retry_ms if wake_up_ms is None else min(wake_up_ms, retry_ms)
        return wake_up_ms

    def next_request(self, now_ms: int, broker_epoch: int) -> FollowerRequest | None:
        """Returns the next request to the leader; None if no partition is ready for one."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            self._end_delay(heappop(self._delayed)[2])
        if self._not_fetching:
            request = self._offsets_request()
            if request is not None:
                return request
        if self._quota is not None and (self._quota.is_limited or self._throttled):
            self._apply_throttle(self._quota, now_ms)
        if now_ms - self._log_starts_checked_ms >= _LOG_START_CHECK_MS:
            self._check_log_starts(now_ms)
        request, offline = self._session.build(broker_epoch)
        for state in offline:
            # Its log directory has failed; the replica is about to be removed.
            self.delay(state, now_ms)
        return request

    def _end_delay(self, state: PartitionFetchState) -> None:
        if state.is_removed:
            return
        state.delayed_until_ms = None
        if state.phase is FetchPhase.FETCHING:
            self.resume(state)

    def resume(self, state: PartitionFetchState) -> None:
        """Fetches from the current end of the local log on, wherever that is."""
        try:
            state.read_offsets()
        except KafkaStorageError as error:
            self.fail(state, error.message)
            return
        self._set_phase(state, FetchPhase.FETCHING)

    def _offsets_request(self) -> FollowerRequest | None:
        ready = [state for state in self._not_fetching if state.delayed_until_ms is None]
        truncating = [state for state in ready if state.phase is FetchPhase.TRUNCATING]
        if truncating:
            return end_offsets_request(self._settings.broker_id, truncating)
        # The end of the leader's log first: its start matters only if the end is not below ours.
        for timestamp in (LATEST, EARLIEST):
            states = [
                state for state in ready if (state.leader_end_offset < 0) == (timestamp == LATEST)
            ]
            if states:
                return list_offsets_request(self._settings.broker_id, states, timestamp)
        return None

    def _apply_throttle(self, quota: FollowerQuota, now_ms: int) -> None:
        """Leaves out throttled partitions while the quota is exceeded, unless they are in sync.

        In-sync replicas stay: the throttle must not remove them from the ISR.
        """
        if quota.is_exceeded(now_ms):
            for state in self._session.states():
                if not state.is_in_sync and quota.is_throttled(state.key):
                    self._session.drop(state)
                    self._throttled[state] = None
            return
        for state in self._throttled:
            self._session.put(state)
        self._throttled.clear()

    def _check_log_starts(self, now_ms: int) -> None:
        self._log_starts_checked_ms = now_ms
        for state in self._session.states():
            try:
                has_changed = state.log.log_start_offset != state.sent_log_start_offset
            except KafkaStorageError:
                has_changed = True
            if has_changed:
                self._session.put(state)

    # --- responses

    def handle_failure(self, request: FollowerRequest, now_ms: int) -> None:
        """Backs off after a request that was not answered."""
        if isinstance(request, FetchRequest):
            self._session.handle_failure()
        for state in self._states.values():
            self.delay(state, now_ms)

    def handle_response(
        self, request: FollowerRequest, response: FollowerResponse, now_ms: int
    ) -> list[Effect]:
        """Returns what is to be done, in this order."""
        match response:
            case FetchResponse():
                return self._handle_fetch(response, now_ms)
            case ListOffsetsResponse():
                assert isinstance(request, ListOffsetsRequest)
                return self._handle_offsets(request, response, now_ms)
            case OffsetForLeaderEpochResponse():
                return self._handle_end_offsets(response, now_ms)

    def _handle_fetch(self, response: FetchResponse, now_ms: int) -> list[Effect]:
        try:
            partitions = self._session.handle_response(response)
        except InvalidSessionError as error:
            logger.info("a new fetch session with the leader is needed: %s", error)
            if self._has_invalid_session:
                # A new session has not helped.
                for state in self._states.values():
                    self.delay(state, now_ms)
            self._has_invalid_session = True
            return []
        self._has_invalid_session = False
        effects: list[Effect] = []
        for state, data in partitions:
            if (
                state.is_removed
                or not state.is_ready_to_fetch
                or state.sent_offset != state.fetch_offset
            ):
                continue
            if data.error_code:
                self._handle_error(state, data.error_code, now_ms)
                continue
            try:
                diverging = data.diverging_epoch
                if diverging.epoch >= 0:
                    # The watermarks are those of a log that differs from this one.
                    truncate = self._truncation(state, diverging.epoch, diverging.end_offset)
                    if state.log.log_start_offset < truncate.offset <= data.log_start_offset:
                        # The leader has deleted what would remain, and no longer knows its epochs:
                        # it may differ from what the leader had.
                        truncate = Truncate(state, data.log_start_offset, fully=True)
                    effects.append(truncate)
                else:
                    append = append_of(state, data)
                    if append.restart is not None:
                        self._set_phase(state, FetchPhase.BUSY)
                    effects.append(append)
            except KafkaStorageError as error:
                self.fail(state, error.message)
        return effects

    def _handle_error(self, state: PartitionFetchState, code: int, now_ms: int) -> None:
        match code:
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                state.leader_end_offset = -1
                self._set_phase(state, FetchPhase.OUT_OF_RANGE)
            case ErrorCode.FENCED_LEADER_EPOCH:
                self._fence(state)
            case (
                ErrorCode.UNKNOWN_LEADER_EPOCH
                | ErrorCode.NOT_LEADER_OR_FOLLOWER
                | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                | ErrorCode.UNKNOWN_TOPIC_ID
                | ErrorCode.INCONSISTENT_TOPIC_ID
            ):
                # The leader learns of its leadership, or this broker of another leader, soon.
                logger.debug("%s: the leader responded with error %d", state.key, code)
                self.delay(state, now_ms)
            case _:
                logger.error(
                    "%s at offset %d: the leader responded with %s; it is fetched again later",
                    state.key,
                    state.fetch_offset,
                    _error_name(code),
                )
                self.delay(state, now_ms)

    def _truncation(
        self, state: PartitionFetchState, leader_epoch: int, leader_end_offset: int
    ) -> Truncate:
        offset, is_final = truncation_offset(state.log, leader_epoch, leader_end_offset)
        logger.info(
            "%s is truncated to %d: epoch %d of the leader ends at %d",
            state.key,
            offset,
            leader_epoch,
            leader_end_offset,
        )
        self._set_phase(state, FetchPhase.BUSY)
        return Truncate(state, offset, is_final=is_final)

    def _handle_end_offsets(
        self, response: OffsetForLeaderEpochResponse, now_ms: int
    ) -> list[Effect]:
        effects: list[Effect] = []
        for topic in response.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.topic, partition.partition)
                state = self._states.get(key)
                if state is None or state.phase is not FetchPhase.TRUNCATING:
                    continue
                if partition.error_code:
                    self._handle_offsets_error(state, partition.error_code, now_ms)
                    continue
                try:
                    effects.append(
                        self._truncation(state, partition.leader_epoch, partition.end_offset)
                    )
                except KafkaStorageError as error:
                    self.fail(state, error.message)
        return effects

    def _handle_offsets(
        self, request: ListOffsetsRequest, response: ListOffsetsResponse, now_ms: int
    ) -> list[Effect]:
        is_end = request.topics[0].partitions[0].timestamp == LATEST
        effects: list[Effect] = []
        for topic in response.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                state = self._states.get(key)
                if state is None or state.phase is not FetchPhase.OUT_OF_RANGE:
                    continue
                if partition.error_code:
                    self._handle_offsets_error(state, partition.error_code, now_ms)
                    continue
                try:
                    effects += self._compare(state, is_end, partition.offset, now_ms)
                except KafkaStorageError as error:
                    self.fail(state, error.message)
        return effects

    def _handle_offsets_error(self, state: PartitionFetchState, code: int, now_ms: int) -> None:
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fence(state)
        elif state.phase is FetchPhase.OUT_OF_RANGE:
            self._fetch_later(state, now_ms)
        else:
            self.delay(state, now_ms)

    def _compare(
        self, state: PartitionFetchState, is_end: bool, leader_offset: int, now_ms: int
    ) -> list[Effect]:
        if is_end and leader_offset >= state.log.log_end_offset:
            state.leader_end_offset = leader_offset
            return []
        compare = compare_log_end if is_end else compare_log_start
        truncate = compare(state, leader_offset)
        if truncate is None:
            # The leader's log has changed since; fetch again, but not at once.
            self._fetch_later(state, now_ms)
            return []
        self._set_phase(state, FetchPhase.BUSY)
        return [truncate]

    def _fetch_later(self, state: PartitionFetchState, now_ms: int) -> None:
        self.delay(state, now_ms)
        self._set_phase(state, FetchPhase.FETCHING)

    # --- outcomes of effects

    def appended(self, append: Append) -> OffsetUpdate:
        """Continues after the appended records; returns the offsets that the log now gets.

        The high watermark never exceeds the local log end offset, nor the leader's high watermark.
        """
        state = append.state
        state.delay_ms = 0
        log = state.log
        log_end_offset = log.log_end_offset
        if log_end_offset != state.fetch_offset:
            state.read_offsets()
            self._session.put(state)
        high_watermark = append.leader_high_watermark
        if high_watermark > log_end_offset:
            state.lag = high_watermark - log_end_offset
            high_watermark = log_end_offset
        else:
            state.lag = 0
        log_start_offset = append.leader_log_start_offset
        if not log_start_offset <= high_watermark or log_start_offset <= log.log_start_offset:
            return OffsetUpdate(high_watermark, None)
        self._session.put(state)
        return OffsetUpdate(high_watermark, log_start_offset)

    def truncated(self, truncate: Truncate) -> None:
        """Continues at the end of the truncated log."""
        state = truncate.state
        if state.is_removed:
            return
        state.read_offsets()
        is_done = truncate.is_final or self._truncates_on_fetch
        self._set_phase(state, FetchPhase.FETCHING if is_done else FetchPhase.TRUNCATING)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
