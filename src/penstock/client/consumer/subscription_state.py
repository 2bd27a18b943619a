"""The state that the caller's thread, the fetcher and the group of a consumer share.

It has the subscription, and for each assigned partition its position. Every method takes the one
lock, holds it shortly and calls nothing else, so that any thread may call any of them.
"""

from collections.abc import Callable, Iterable
from threading import RLock

from penstock.client.consumer.positions import (
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    LogTruncation,
    OffsetReset,
    PartitionState,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.consumer.subscription import Subscription
from penstock.client.errors import IllegalStateError, NoOffsetForPartitionError
from penstock.core.ids import TopicPartition


class SubscriptionState:
    """A consumer's subscription and its assignment, with a state for each partition."""

    def __init__(self, default_reset: OffsetReset) -> None:
        self._lock = RLock()
        self.subscription = Subscription(self._lock)
        self.default_reset = default_reset
        self._assigned: dict[TopicPartition, PartitionState] = {}

    def unsubscribe(self) -> None:
        with self._lock:
            self.subscription.clear()
            self._assigned = {}

    # --- assignment

    @property
    def assigned(self) -> dict[TopicPartition, PartitionState]:
        """The current states, in the order in which they are fetched; read-only."""
        return self._assigned

    def assigned_partitions(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._assigned)

    def is_assigned(self, partition: TopicPartition) -> bool:
        return partition in self._assigned

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Returns whether the topics have changed."""
        with self._lock:
            self.subscription.check_assign()
            assignment = list(dict.fromkeys(partitions))
            if self._assigned.keys() == set(assignment):
                return False
            self._replace_assignment(assignment)
            return self.subscription.assign(partition.topic for partition in assignment)

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Sets the group's assignment; partitions that stay keep their state."""
        with self._lock:
            if not self.subscription.has_auto_assigned_partitions:
                raise IllegalStateError("there is no subscription for which a group assigns")
            self._replace_assignment(partitions)

    def assign_from_subscribed_awaiting_callback(
        self, partitions: Iterable[TopicPartition], added: Iterable[TopicPartition]
    ) -> None:
        """Sets the group's assignment; `added` are read once the listener has been called."""
        with self._lock:
            self.assign_from_subscribed(partitions)
            for partition in added:
                self._state(partition).pending_assigned_callback = True

    def enable_partitions_awaiting_callback(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                if (state := self._assigned.get(partition)) is not None:
                    state.pending_assigned_callback = False

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops reading partitions that are about to be revoked."""
        with self._lock:
            for partition in partitions:
                if (state := self._assigned.get(partition)) is not None:
                    state.pending_revocation = True

    def move_to_end(self, partition: TopicPartition) -> None:
        """Has other partitions fetched before this one next time."""
        with self._lock:
            state = self._assigned.pop(partition, None)
            if state is not None:
                self._assigned[partition] = state

    def _replace_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        old = self._assigned
        self._assigned = {
            partition: old.get(partition) or PartitionState() for partition in partitions
        }

    def _state(self, partition: TopicPartition) -> PartitionState:
        try:
            return self._assigned[partition]
        except KeyError:
            raise IllegalStateError(
                f"{partition} is not assigned to this consumer; assign() or subscribe() to it, "
                "and poll() until assignment() has it"
            ) from None

    def _select(self, condition: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        with self._lock:
            return [partition for partition, state in self._assigned.items() if condition(state)]

    # --- positions

    def fetchable_partitions(self) -> list[TopicPartition]:
        """Returns the partitions that may be fetched now, the longest waiting first."""
        with self._lock:
            return [
                partition
                for partition, state in self._assigned.items()
                if state.is_fetchable and self.subscription.has_topic(partition.topic)
            ]

    def is_fetchable(self, partition: TopicPartition) -> bool:
        with self._lock:
            state = self._assigned.get(partition)
            return (
                state is not None
                and state.is_fetchable
                and self.subscription.has_topic(partition.topic)
            )

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns the position, or None before there is one. The partition must be assigned."""
        with self._lock:
            return self._state(partition).position

    def valid_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns the position if it is valid, else None. The partition must be assigned."""
        with self._lock:
            state = self._state(partition)
            return state.position if state.has_valid_position else None

    def fetch_position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns the position if it is valid, else None, also when it is not assigned."""
        with self._lock:
            state = self._assigned.get(partition)
            return state.position if state is not None and state.has_valid_position else None

    def has_all_fetch_positions(self) -> bool:
        with self._lock:
            return all(state.has_valid_position for state in self._assigned.values())

    def advance(
        self, partition: TopicPartition, expected_offset: int, position: FetchPosition
    ) -> bool:
        """Sets the position after reading, unless there was a seek in between.

        The position keeps its leader. Returns False, without a change, if the offset is not
        `expected_offset` any more.
        """
        with self._lock:
            state = self._assigned.get(partition)
            if state is None or state.position is None or state.position.offset != expected_offset:
                return False
            state.position = FetchPosition(
                position.offset, position.offset_epoch, state.position.leader
            )
            return True

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions that a commit without offsets commits."""
        with self._lock:
            return {
                partition: OffsetAndMetadata(state.position.offset, "", state.position.offset_epoch)
                for partition, state in self._assigned.items()
                if state.has_valid_position and state.position is not None
            }

    def seek_validated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self._lock:
            self._state(partition).seek_validated(position)

    def seek_unvalidated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self._lock:
            self._state(partition).seek_unvalidated(position)

    def seek_initial(self, partition: TopicPartition, position: FetchPosition) -> bool:
        """Sets a committed position, unless the partition has been revoked or has a position."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None or state.state is not FetchState.INITIALIZING:
                return False
            state.seek_unvalidated(position)
            return True

    def maybe_seek_unvalidated(
        self, partition: TopicPartition, position: FetchPosition, reset: OffsetReset
    ) -> bool:
        """Sets the position that a reset has found, unless another reset was requested since."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None or state.state is not FetchState.AWAIT_RESET or state.reset != reset:
                return False
            state.seek_unvalidated(position)
            return True

    def pause(self, partition: TopicPartition) -> None:
        with self._lock:
            self._state(partition).paused = True

    def resume(self, partition: TopicPartition) -> None:
        with self._lock:
            self._state(partition).paused = False

    def is_paused(self, partition: TopicPartition) -> bool:
        state = self._assigned.get(partition)
        return state is not None and state.paused

    def paused_partitions(self) -> set[TopicPartition]:
        return set(self._select(lambda state: state.paused))

    # --- resets

    @property
    def has_default_reset(self) -> bool:
        return not self.default_reset.is_none

    def request_offset_reset(
        self, partition: TopicPartition, reset: OffsetReset | None = None
    ) -> None:
        """Requests a new position. The partition must be assigned."""
        with self._lock:
            self._state(partition).request_reset(reset or self.default_reset)

    def request_offset_reset_if_assigned(self, partition: TopicPartition) -> None:
        with self._lock:
            if (state := self._assigned.get(partition)) is not None:
                state.request_reset(self.default_reset)

    def reset_strategy(self, partition: TopicPartition) -> OffsetReset | None:
        """Returns the reset that a partition waits for."""
        with self._lock:
            state = self._assigned.get(partition)
            return state.reset if state is not None else None

    def initializing_partitions(self) -> list[TopicPartition]:
        """Returns partitions without a position whose listener has had the chance to seek."""
        return self._select(
            lambda state: (
                state.state is FetchState.INITIALIZING
                and not state.pending_revocation
                and not state.pending_assigned_callback
            )
        )

    def reset_initializing(self, partitions: Iterable[TopicPartition]) -> None:
        """Resets partitions without a committed offset.

        Raises NoOffsetForPartitionError when there is no reset policy.
        """
        with self._lock:
            without_offset: list[TopicPartition] = []
            for partition in partitions:
                state = self._assigned.get(partition)
                if state is None or state.state is not FetchState.INITIALIZING:
                    continue
                if self.default_reset.is_none:
                    without_offset.append(partition)
                else:
                    state.request_reset(self.default_reset)
        if without_offset:
            raise NoOffsetForPartitionError(
                f"no offset is committed for {', '.join(map(str, without_offset))} and "
                "`auto_offset_reset` is none",
                without_offset,
                remedy="seek() to a start, or set `auto_offset_reset`",
            )

    def partitions_needing_reset(self, now_ms: int) -> list[TopicPartition]:
        return self._select(
            lambda state: state.state is FetchState.AWAIT_RESET and state.may_retry(now_ms)
        )

    def set_next_retry(self, partitions: Iterable[TopicPartition], at_ms: int) -> None:
        """Delays resets and validations of these partitions until `at_ms`."""
        with self._lock:
            for partition in partitions:
                if (state := self._assigned.get(partition)) is not None:
                    state.next_retry_ms = at_ms

    # --- validation after a change of leader

    def maybe_validate_position(
        self, partition: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool = True
    ) -> bool:
        """Notes the leader; returns whether the position must be validated.

        Ignores partitions that are not assigned.
        """
        with self._lock:
            state = self._assigned.get(partition)
            return state is not None and state.leader_changed(leader, can_validate=can_validate)

    def partitions_needing_validation(self, now_ms: int) -> dict[TopicPartition, FetchPosition]:
        with self._lock:
            return {
                partition: state.position
                for partition, state in self._assigned.items()
                if state.state is FetchState.AWAIT_VALIDATION
                and state.position is not None
                and state.may_retry(now_ms)
            }

    def complete_validation(
        self, partition: TopicPartition, requested: FetchPosition, end_epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """Applies the leader's response for `requested`: the end of its epoch (-1: unknown).

        If the log ends before the position, the position is set to the first diverging offset, or
        reset. Without a reset policy the truncation is returned.
        """
        with self._lock:
            state = self._assigned.get(partition)
            if (
                state is None
                or state.state is not FetchState.AWAIT_VALIDATION
                or state.position != requested
            ):
                return None
            is_unknown = end_offset < 0 or end_epoch < 0
            if not is_unknown and end_offset >= requested.offset:
                state.state = FetchState.FETCHING
                state.next_retry_ms = -1
                return None
            if self.default_reset.is_none:
                return LogTruncation(
                    partition,
                    requested,
                    -1 if is_unknown else end_offset,
                    -1 if is_unknown else end_epoch,
                )
            if is_unknown:
                state.request_reset(self.default_reset)
            else:
                state.seek_validated(FetchPosition(end_offset, end_epoch, requested.leader))
            return None

    # --- watermarks

    def update_watermarks(
        self,
        partition: TopicPartition,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> None:
        """Notes the offsets of a fetch response. Ignores negative ones, which are unknown."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None:
                return
            if high_watermark >= 0:
                state.high_watermark = high_watermark
            if last_stable_offset >= 0:
                state.last_stable_offset = last_stable_offset
            if log_start_offset >= 0:
                state.log_start_offset = log_start_offset

    def end_offset(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        """Returns the last readable offset, exclusive, according to the last fetch."""
        with self._lock:
            state = self._state(partition)
            return state.last_stable_offset if read_committed else state.high_watermark

    def log_start_offset(self, partition: TopicPartition) -> int | None:
        with self._lock:
            return self._state(partition).log_start_offset

    def lag(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        """Returns the lag, or None while it is unknown. The partition must be assigned."""
        with self._lock:
            self._state(partition)
            return self.lag_if_known(partition, read_committed=read_committed)

    def lag_if_known(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        with self._lock:
            state = self._assigned.get(partition)
            if state is None or state.position is None:
                return None
            end = state.last_stable_offset if read_committed else state.high_watermark
            return None if end is None else end - state.position.offset

    # --- preferred replicas

    def preferred_replica(self, partition: TopicPartition, now_ms: int) -> int:
        """Returns the replica that the leader has named, or -1."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None:
                return -1
            if now_ms > state.preferred_replica_until_ms:
                state.preferred_replica = -1
            return state.preferred_replica

    def set_preferred_replica(self, partition: TopicPartition, replica: int, until_ms: int) -> None:
        with self._lock:
            state = self._assigned.get(partition)
            if state is not None and state.preferred_replica != replica:
                state.preferred_replica = replica
                state.preferred_replica_until_ms = until_ms

    def clear_preferred_replica(self, partition: TopicPartition) -> int:
        """Returns the replica that was preferred, or -1."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None:
                return -1
            replica, state.preferred_replica = state.preferred_replica, -1
            return replica
