"""Subscriptions, positions of partitions, and the transitions of their fetch states."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consumer.positions import (
    EARLIEST,
    LATEST,
    NO_RESET,
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    LogTruncationError,
    parse_duration_ms,
    parse_offset_reset,
)
from penstock.client.consumer.record import OffsetAndMetadata, SubscriptionPattern
from penstock.client.consumer.subscription import SubscriptionKind
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.errors import IllegalStateError, NoOffsetForPartitionError
from penstock.core.ids import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def assigned(*partitions: TopicPartition, reset: str = "earliest") -> SubscriptionState:
    state = SubscriptionState(parse_offset_reset(reset))
    state.assign_from_user(partitions or (TP,))
    return state


# --- subscriptions


def test_kinds_of_subscription_exclude_each_other() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        state.assign_from_user([TP])
    with pytest.raises(IllegalStateError, match="topics, which excludes a pattern"):
        state.subscription.subscribe_pattern(re.compile("t"))
    state.unsubscribe()
    state.assign_from_user([TP])
    with pytest.raises(IllegalStateError, match="assigned by the user"):
        state.subscription.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="no subscription"):
        state.assign_from_subscribed([TP])


def test_a_pattern_matches_whole_names() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe_pattern(re.compile("orders-.*"))
    assert state.subscription.matches_pattern("orders-eu")
    assert not state.subscription.matches_pattern("old-orders-eu")
    assert state.subscription.subscribe_from_pattern(["orders-eu"])
    assert not state.subscription.subscribe_from_pattern(["orders-eu"])
    assert state.subscription.topics == {"orders-eu"}


def test_a_pattern_that_brokers_evaluate() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe_pattern(SubscriptionPattern("t.*"))
    assert state.subscription.kind is SubscriptionKind.SERVER_PATTERN
    assert state.subscription.server_pattern == SubscriptionPattern("t.*")
    with pytest.raises(IllegalStateError, match="not to a pattern"):
        state.subscription.subscribe_from_pattern(["t"])


def test_metadata_topics_include_those_of_the_group() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe(["t"])
    assert state.subscription.group_subscribe(["t", "u"])
    assert state.subscription.metadata_topics() == {"t", "u"}
    state.subscription.subscribe(["v"])
    assert state.subscription.metadata_topics() == {"t", "u", "v"}
    state.unsubscribe()
    assert state.subscription.metadata_topics() == set()


def test_partitions_that_stay_keep_their_state() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe(["t"])
    state.assign_from_subscribed([TP])
    state.seek_validated(TP, FetchPosition(7))
    state.assign_from_subscribed_awaiting_callback([TP, OTHER], [OTHER])
    assert state.valid_position(TP) == FetchPosition(7)
    state.seek_validated(OTHER, FetchPosition(3))
    assert state.is_fetchable(TP)
    assert not state.is_fetchable(OTHER)
    state.enable_partitions_awaiting_callback([OTHER])
    assert state.is_fetchable(OTHER)
    state.mark_pending_revocation([TP])
    assert not state.is_fetchable(TP)


def test_positions_are_not_initialized_before_the_listener_returns() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe(["t"])
    state.assign_from_subscribed_awaiting_callback([TP], [TP])
    assert state.initializing_partitions() == []
    state.enable_partitions_awaiting_callback([TP])
    assert state.initializing_partitions() == [TP]


def test_a_topic_that_is_no_longer_subscribed_is_not_fetched() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscription.subscribe(["t"])
    state.assign_from_subscribed([TP])
    state.seek_validated(TP, FetchPosition(0))
    state.subscription.subscribe(["u"])
    assert not state.is_fetchable(TP)
    assert state.fetchable_partitions() == []


def test_partitions_are_fetched_in_rotation() -> None:
    state = assigned(TP, OTHER)
    for partition in (TP, OTHER):
        state.seek_validated(partition, FetchPosition(0))
    assert state.fetchable_partitions() == [TP, OTHER]
    state.move_to_end(TP)
    assert state.fetchable_partitions() == [OTHER, TP]


def test_calls_for_unassigned_partitions_are_refused() -> None:
    state = SubscriptionState(EARLIEST)
    for call in (state.position, state.pause, state.resume, state.request_offset_reset):
        with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
            call(TP)
    assert state.fetch_position(TP) is None
    assert not state.is_paused(TP)


# --- positions


def test_consumed_offsets() -> None:
    state = assigned(TP, OTHER)
    state.seek_validated(TP, FetchPosition(5))
    assert state.advance(TP, 5, FetchPosition(9, 2))
    assert not state.advance(TP, 5, FetchPosition(12, 2))
    assert state.all_consumed() == {TP: OffsetAndMetadata(9, "", 2)}


def test_resets() -> None:
    state = assigned(TP, reset="latest")
    state.reset_initializing([TP, OTHER])
    assert state.partitions_needing_reset(0) == [TP]
    assert state.reset_strategy(TP) == LATEST
    state.set_next_retry([TP], 100)
    assert state.partitions_needing_reset(99) == []
    assert state.partitions_needing_reset(100) == [TP]
    state.request_offset_reset(TP, EARLIEST)
    assert not state.maybe_seek_unvalidated(TP, FetchPosition(8), LATEST)
    assert state.maybe_seek_unvalidated(TP, FetchPosition(8), EARLIEST)
    assert state.valid_position(TP) == FetchPosition(8)


def test_a_seek_ends_a_reset() -> None:
    state = assigned(TP)
    state.request_offset_reset(TP)
    state.seek_validated(TP, FetchPosition(4))
    assert not state.maybe_seek_unvalidated(TP, FetchPosition(0), EARLIEST)
    assert state.valid_position(TP) == FetchPosition(4)


def test_a_partition_without_a_commit_and_a_reset_policy_is_an_error() -> None:
    state = assigned(TP, OTHER, reset="none")
    state.seek_validated(OTHER, FetchPosition(1))
    with pytest.raises(NoOffsetForPartitionError, match="t-0 and auto_offset_reset is none"):
        state.reset_initializing([TP, OTHER])
    assert not state.seek_initial(OTHER, FetchPosition(5))
    assert state.seek_initial(TP, FetchPosition(5))


def test_lag_and_watermarks() -> None:
    """C2."""
    state = assigned()
    assert state.lag(TP, read_committed=False) is None
    state.seek_validated(TP, FetchPosition(3))
    state.update_watermarks(TP, 10, 8, 1)
    state.update_watermarks(OTHER, 1, 1, 1)
    state.update_watermarks(TP, -1, -1, -1)
    assert state.lag(TP, read_committed=False) == 7
    assert state.lag(TP, read_committed=True) == 5
    assert state.log_start_offset(TP) == 1


# --- leaders


def test_positions_are_validated_with_a_new_leader() -> None:
    state = assigned()
    state.seek_validated(TP, FetchPosition(10, 1, LeaderAndEpoch(1, 1)))
    assert not state.maybe_validate_position(TP, LeaderAndEpoch(1, 1))
    assert not state.maybe_validate_position(TP, LeaderAndEpoch(-1, 2))
    assert state.maybe_validate_position(TP, LeaderAndEpoch(2, 2))
    assert not state.is_fetchable(TP)
    requested = FetchPosition(10, 1, LeaderAndEpoch(2, 2))
    assert state.partitions_needing_validation(0) == {TP: requested}
    assert state.complete_validation(TP, requested, 1, 10) is None
    assert state.is_fetchable(TP)
    assert state.valid_position(TP) == requested


def test_positions_without_an_epoch_need_no_validation() -> None:
    state = assigned()
    state.seek_validated(TP, FetchPosition(10))
    assert not state.maybe_validate_position(TP, LeaderAndEpoch(2, 2))
    assert state.valid_position(TP) == FetchPosition(10, -1, LeaderAndEpoch(2, 2))


def test_positions_are_valid_if_the_broker_cannot_validate_them() -> None:
    state = assigned()
    state.seek_validated(TP, FetchPosition(10, 1, LeaderAndEpoch(1, 1)))
    assert state.maybe_validate_position(TP, LeaderAndEpoch(2, 2))
    assert not state.maybe_validate_position(TP, LeaderAndEpoch(2, 2), can_validate=False)
    assert state.is_fetchable(TP)


def truncated(reset: str, epoch: int, end: int) -> tuple[SubscriptionState, object]:
    state = assigned(reset=reset)
    state.seek_validated(TP, FetchPosition(10, 3, LeaderAndEpoch(1, 3)))
    state.maybe_validate_position(TP, LeaderAndEpoch(2, 4))
    requested = FetchPosition(10, 3, LeaderAndEpoch(2, 4))
    return state, state.complete_validation(TP, requested, epoch, end)


def test_truncation_resets_to_the_offset_of_divergence() -> None:
    state, truncation = truncated("earliest", 2, 7)
    assert truncation is None
    assert state.valid_position(TP) == FetchPosition(7, 2, LeaderAndEpoch(2, 4))


def test_truncation_without_an_offset_of_divergence_uses_the_reset_policy() -> None:
    state, truncation = truncated("latest", -1, -1)
    assert truncation is None
    assert state.partitions_needing_reset(0) == [TP]


@pytest.mark.parametrize(("epoch", "end"), [(2, 7), (-1, -1)])
def test_truncation_without_a_reset_policy_is_an_error(epoch: int, end: int) -> None:
    state, truncation = truncated("none", epoch, end)
    assert truncation is not None
    assert truncation[2] == end  # type: ignore[index]
    error = LogTruncationError([truncation])  # type: ignore[list-item]
    assert "t-0 at 10" in error.message
    assert TP in state.partitions_needing_validation(0)


def test_late_responses_are_ignored() -> None:
    state = assigned()
    state.seek_validated(TP, FetchPosition(10, 3, LeaderAndEpoch(1, 3)))
    state.maybe_validate_position(TP, LeaderAndEpoch(2, 4))
    requested = FetchPosition(10, 3, LeaderAndEpoch(2, 4))
    state.seek_unvalidated(TP, FetchPosition(5, 3, LeaderAndEpoch(2, 4)))
    assert state.complete_validation(TP, requested, 3, 10) is None
    assert TP in state.partitions_needing_validation(0)
    state.seek_validated(TP, FetchPosition(5))
    assert state.complete_validation(TP, requested, 2, 0) is None
    assert state.valid_position(TP) == FetchPosition(5)


def test_preferred_replicas_expire() -> None:
    state = assigned()
    state.set_preferred_replica(TP, 5, 100)
    assert state.preferred_replica(TP, 100) == 5
    assert state.preferred_replica(TP, 101) == -1
    state.set_preferred_replica(TP, 5, 300)
    assert state.clear_preferred_replica(TP) == 5
    assert state.clear_preferred_replica(TP) == -1
    assert state.clear_preferred_replica(OTHER) == -1


operations = st.one_of(
    st.tuples(st.just("seek"), st.integers(0, 20)),
    st.tuples(st.just("seek with epoch"), st.integers(0, 20)),
    st.tuples(st.just("reset"), st.just(0)),
    st.tuples(st.just("reset done"), st.integers(0, 20)),
    st.tuples(st.just("leader"), st.integers(-1, 3)),
    st.tuples(st.just("validated"), st.integers(-1, 20)),
    st.tuples(st.just("read"), st.integers(1, 5)),
    st.tuples(st.just("pause"), st.integers(0, 1)),
)


@given(st.lists(operations, max_size=40), st.sampled_from(["earliest", "none"]))
def test_fetchable_partitions_have_a_position_in_any_history(
    history: list[tuple[str, int]], reset: str
) -> None:
    state = assigned(reset=reset)
    epoch = 0
    for step, number in history:
        partition = state.assigned[TP]
        if step == "seek":
            state.seek_validated(TP, FetchPosition(number))
        elif step == "seek with epoch":
            state.seek_unvalidated(TP, FetchPosition(number, epoch, LeaderAndEpoch(0, epoch)))
        elif step == "reset":
            state.request_offset_reset(TP, EARLIEST)
        elif step == "reset done":
            state.maybe_seek_unvalidated(TP, FetchPosition(number), EARLIEST)
        elif step == "leader":
            epoch += 1
            state.maybe_validate_position(TP, LeaderAndEpoch(number, epoch))
        elif step == "validated" and partition.position is not None:
            state.complete_validation(TP, partition.position, number, number)
        elif step == "read" and state.is_fetchable(TP):
            position = state.fetch_position(TP)
            assert position is not None
            next_position = FetchPosition(position.offset + number, epoch)
            assert state.advance(TP, position.offset, next_position)
        elif step == "pause":
            (state.pause if number else state.resume)(TP)
        has_position = partition.state in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION)
        assert (partition.position is not None) is has_position
        assert state.is_fetchable(TP) is (
            partition.state is FetchState.FETCHING and not state.is_paused(TP)
        )
        if partition.state is FetchState.AWAIT_VALIDATION:
            assert partition.position is not None
            assert partition.position.offset_epoch >= 0
        assert (TP in state.partitions_needing_reset(0)) is (
            partition.state is FetchState.AWAIT_RESET
        )


# --- the setting


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("pt0.5s", 500), ("P1DT1S", 86_401_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
    assert parse_offset_reset(f"by_duration:{text}").timestamp(10**12) == 10**12 - ms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("first", "earliest, latest, none, by_duration"),
        ("by_duration:", "not an ISO 8601 duration"),
        ("by_duration:P", "not an ISO 8601 duration"),
        ("by_duration:-PT1H", "negative"),
        ("earliest:1", "not one of"),
    ],
)
def test_invalid_resets_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_offset_reset(text)


def test_resets_as_times() -> None:
    assert [item.timestamp(9) for item in (EARLIEST, LATEST)] == [-2, -1]
    assert NO_RESET.is_none
