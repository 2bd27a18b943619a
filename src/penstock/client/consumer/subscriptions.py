"""What a consumer reads: its subscription, the partitions it was given, where it is in each.

The one thing that the user's thread, the fetcher and the group share. Every method takes the one
lock, holds it shortly and calls nothing else, so any thread may call any of them.
"""

from collections.abc import Callable, Iterable

from penstock.client.consumer.positions import (
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    LogTruncation,
    OffsetReset,
    PartitionState,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.consumer.subscription import Subscription, SubscriptionKind
from penstock.client.errors import IllegalStateError, NoOffsetForPartitionError
from penstock.core.ids import TopicPartition

__all__ = ["SubscriptionKind", "SubscriptionState"]


class SubscriptionState(Subscription):
    """Kafka's class of the same name: what was asked for, and a state per partition."""

    def __init__(self, default_reset: OffsetReset) -> None:
        super().__init__()
        self.default_reset = default_reset
        self._assigned: dict[TopicPartition, PartitionState] = {}

    def unsubscribe(self) -> None:
        with self._lock:
            super().unsubscribe()
            self._assigned = {}

    # The assignment

    @property
    def assigned(self) -> dict[TopicPartition, PartitionState]:
        """The live states, in the order in which they are fetched. Not to be changed."""
        return self._assigned

    def assigned_partitions(self) -> set[TopicPartition]:
        with self._lock:
            return set(self._assigned)

    def is_assigned(self, partition: TopicPartition) -> bool:
        return partition in self._assigned

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the topics are others than before."""
        with self._lock:
            self._set_kind(SubscriptionKind.ASSIGNED)
            wanted = list(dict.fromkeys(partitions))
            if self._assigned.keys() == set(wanted):
                return False
            self._replace_assignment(wanted)
            return self._change_topics(partition.topic for partition in wanted)

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """What the group gives; partitions that stay keep their state."""
        with self._lock:
            if not self.has_auto_assigned_partitions:
                raise IllegalStateError("there is no subscription that a group could assign to")
            self._replace_assignment(partitions)

    def assign_from_subscribed_awaiting_callback(
        self, partitions: Iterable[TopicPartition], added: Iterable[TopicPartition]
    ) -> None:
        """As `assign_from_subscribed`; `added` are not read before the listener heard of them."""
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
        """Stop reading partitions that are about to go."""
        with self._lock:
            for partition in partitions:
                if (state := self._assigned.get(partition)) is not None:
                    state.pending_revocation = True

    def move_to_end(self, partition: TopicPartition) -> None:
        """It has been served: others come first next time."""
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
                f"{partition} is not assigned to this consumer: assign() or subscribe() to it, "
                "and poll() until assignment() has it"
            ) from None

    def _select(self, wanted: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        with self._lock:
            return [each for each, state in self._assigned.items() if wanted(state)]

    # Reading

    def fetchable_partitions(
        self, available: Callable[[TopicPartition], bool]
    ) -> list[TopicPartition]:
        """What may be fetched now, those first that waited longest."""
        with self._lock:
            return [
                each
                for each, state in self._assigned.items()
                if state.is_fetchable and self._still_subscribed(each) and available(each)
            ]

    def is_fetchable(self, partition: TopicPartition) -> bool:
        with self._lock:
            state = self._assigned.get(partition)
            return state is not None and state.is_fetchable and self._still_subscribed(partition)

    def _still_subscribed(self, partition: TopicPartition) -> bool:
        return self._kind is not SubscriptionKind.TOPICS or partition.topic in self._topics

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """None where there is none yet; the partition must be assigned."""
        with self._lock:
            return self._state(partition).position

    def valid_position(self, partition: TopicPartition) -> FetchPosition | None:
        """The position if it may be read; the partition must be assigned."""
        with self._lock:
            state = self._state(partition)
            return state.position if state.has_valid_position else None

    def fetch_position(self, partition: TopicPartition) -> FetchPosition | None:
        """The position if it may be read, None otherwise, assigned or not."""
        with self._lock:
            state = self._assigned.get(partition)
            return state.position if state is not None and state.has_valid_position else None

    def has_valid_position(self, partition: TopicPartition) -> bool:
        with self._lock:
            state = self._assigned.get(partition)
            return state is not None and state.has_valid_position

    def has_all_fetch_positions(self) -> bool:
        with self._lock:
            return all(state.has_valid_position for state in self._assigned.values())

    def advance(
        self, partition: TopicPartition, expected_offset: int, position: FetchPosition
    ) -> bool:
        """Move on after reading, unless somebody sought elsewhere meanwhile.

        The leader stays what it is known to be now. False, and nothing changed, where the
        position is not `expected_offset` any more.
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
        """What a commit without offsets commits."""
        with self._lock:
            return {
                each: OffsetAndMetadata(state.position.offset, "", state.position.offset_epoch)
                for each, state in self._assigned.items()
                if state.has_valid_position and state.position is not None
            }

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.seek_validated(partition, FetchPosition(offset))

    def seek_validated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self._lock:
            self._state(partition).seek_validated(position)

    def seek_unvalidated(self, partition: TopicPartition, position: FetchPosition) -> None:
        with self._lock:
            self._state(partition).seek_unvalidated(position)

    def seek_initial(self, partition: TopicPartition, position: FetchPosition) -> bool:
        """Start where a commit says, unless the partition went or was positioned meanwhile."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None or state.state is not FetchState.INITIALIZING:
                return False
            state.seek_unvalidated(position)
            return True

    def maybe_seek_unvalidated(
        self, partition: TopicPartition, position: FetchPosition, reset: OffsetReset
    ) -> bool:
        """The end of a reset, unless another one was asked for meanwhile."""
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

    # Resets

    @property
    def has_default_reset(self) -> bool:
        return not self.default_reset.is_none

    def request_offset_reset(
        self, partition: TopicPartition, reset: OffsetReset | None = None
    ) -> None:
        """Ask for a new position; the partition must be assigned."""
        with self._lock:
            self._state(partition).request_reset(reset or self.default_reset)

    def request_offset_reset_if_assigned(self, partition: TopicPartition) -> None:
        with self._lock:
            if (state := self._assigned.get(partition)) is not None:
                state.request_reset(self.default_reset)

    def reset_strategy(self, partition: TopicPartition) -> OffsetReset | None:
        """What a partition that waits for its reset waits for."""
        with self._lock:
            state = self._assigned.get(partition)
            return state.reset if state is not None else None

    def initializing_partitions(self) -> list[TopicPartition]:
        """Those that nobody has given a position yet, once the listener could have done so."""
        return self._select(
            lambda state: (
                state.state is FetchState.INITIALIZING
                and not state.pending_revocation
                and not state.pending_assigned_callback
            )
        )

    def reset_initializing(self, partitions: Iterable[TopicPartition]) -> None:
        """These have no commit: reset them. `NoOffsetForPartitionError` without a policy."""
        with self._lock:
            without: list[TopicPartition] = []
            for partition in partitions:
                state = self._assigned.get(partition)
                if state is None or state.state is not FetchState.INITIALIZING:
                    continue
                if self.default_reset.is_none:
                    without.append(partition)
                else:
                    state.request_reset(self.default_reset)
        if without:
            raise NoOffsetForPartitionError(
                f"no offset is committed for {', '.join(map(str, without))} and "
                "auto_offset_reset is none: seek() to where to start, or set auto_offset_reset",
                without,
            )

    def partitions_needing_reset(self, now_ms: int) -> list[TopicPartition]:
        return self._select(
            lambda state: state.state is FetchState.AWAIT_RESET and state.may_retry(now_ms)
        )

    def set_next_retry(self, partitions: Iterable[TopicPartition], at_ms: int) -> None:
        """No reset and no validation of these before `at_ms`."""
        with self._lock:
            for partition in partitions:
                if (state := self._assigned.get(partition)) is not None:
                    state.next_retry_ms = at_ms

    # Validation after a change of leader

    def maybe_validate_position(
        self, partition: TopicPartition, leader: LeaderAndEpoch, *, can_validate: bool = True
    ) -> bool:
        """Note who leads; whether the position is to be validated. The partition may be gone."""
        with self._lock:
            state = self._assigned.get(partition)
            return state is not None and state.leader_changed(leader, can_validate=can_validate)

    def partitions_needing_validation(self, now_ms: int) -> dict[TopicPartition, FetchPosition]:
        with self._lock:
            return {
                each: state.position
                for each, state in self._assigned.items()
                if state.state is FetchState.AWAIT_VALIDATION
                and state.position is not None
                and state.may_retry(now_ms)
            }

    def complete_validation(
        self, partition: TopicPartition, asked: FetchPosition, end_epoch: int, end_offset: int
    ) -> LogTruncation | None:
        """What the leader said about `asked`: where its epoch ends (-1: it knows none).

        A log that is shorter than what was read is reset to where it diverges, or wholly; without
        a reset policy it is returned.
        """
        with self._lock:
            state = self._assigned.get(partition)
            if (
                state is None
                or state.state is not FetchState.AWAIT_VALIDATION
                or state.position != asked
            ):
                return None
            unknown = end_offset < 0 or end_epoch < 0
            if not unknown and end_offset >= asked.offset:
                state.state = FetchState.FETCHING
                state.next_retry_ms = -1
                return None
            if self.default_reset.is_none:
                return LogTruncation(
                    partition, asked, -1 if unknown else end_offset, -1 if unknown else end_epoch
                )
            if unknown:
                state.request_reset(self.default_reset)
            else:
                state.seek_validated(FetchPosition(end_offset, end_epoch, asked.leader))
            return None

    # What the leader tells of its log

    def update_watermarks(
        self,
        partition: TopicPartition,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> None:
        """Values below 0 are unknown and change nothing; so does a partition that is gone."""
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
        """Up to where there is something to read, as of the last fetch."""
        with self._lock:
            state = self._state(partition)
            return state.last_stable_offset if read_committed else state.high_watermark

    def log_start_offset(self, partition: TopicPartition) -> int | None:
        with self._lock:
            return self._state(partition).log_start_offset

    def lag(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        """The partition must be assigned."""
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

    # Reading from a follower

    def preferred_replica(self, partition: TopicPartition, now_ms: int) -> int:
        """The replica that the leader sent us to, -1 for none."""
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
        """The replica that was preferred, -1 for none."""
        with self._lock:
            state = self._assigned.get(partition)
            if state is None:
                return -1
            was, state.preferred_replica = state.preferred_replica, -1
            return was
