"""When a follower counts as caught up, by the offsets and times of its fetches (R2)."""

from penstock.replication.follower_state import NEVER_MS, FollowerState

LAG_MS = 1000


def test_a_fetch_from_the_end_of_the_log_has_caught_up() -> None:
    follower = FollowerState(2)
    assert not follower.is_caught_up(100, 0, LAG_MS)
    follower.record_fetch(100, 5, 100, now_ms=50, broker_epoch=7)
    assert (follower.log_end_offset, follower.log_start_offset) == (100, 5)
    assert (follower.last_caught_up_ms, follower.broker_epoch) == (50, 7)
    assert follower.is_caught_up(200, 50 + LAG_MS, LAG_MS)
    assert not follower.is_caught_up(200, 51 + LAG_MS, LAG_MS)
    assert follower.is_caught_up(100, 10**9, LAG_MS), "it has everything, however long ago"


def test_a_follower_under_steady_appends_had_caught_up_at_its_previous_fetch() -> None:
    follower = FollowerState(2)
    follower.record_fetch(0, 0, 100, now_ms=10)
    assert follower.last_caught_up_ms == NEVER_MS
    follower.record_fetch(100, 0, 200, now_ms=20)
    assert follower.last_caught_up_ms == 10
    follower.record_fetch(150, 0, 300, now_ms=30)
    assert follower.last_caught_up_ms == 10, "it does not reach where the log ended at 20"
    follower.record_fetch(300, 0, 400, now_ms=40)
    assert follower.last_caught_up_ms == 30


def test_a_member_of_the_isr_gets_the_whole_lag_time_in_a_new_epoch() -> None:
    follower = FollowerState(2)
    follower.record_fetch(90, 5, 90, now_ms=10, broker_epoch=7)
    follower.reset(100, 500, is_new_leader=False, is_in_sync=True)
    assert (follower.last_caught_up_ms, follower.last_fetch_ms) == (500, 500)
    assert (follower.log_end_offset, follower.broker_epoch) == (90, 7)
    follower.reset(100, 900, is_new_leader=True, is_in_sync=True)
    assert (follower.last_caught_up_ms, follower.last_fetch_ms) == (900, NEVER_MS)
    assert (follower.log_end_offset, follower.log_start_offset, follower.broker_epoch) == (-1,) * 3


def test_another_follower_must_fetch_before_it_counts() -> None:
    follower = FollowerState(2)
    follower.record_fetch(100, 0, 100, now_ms=10)
    follower.reset(100, 500, is_new_leader=False, is_in_sync=False)
    assert not follower.is_caught_up(200, 500, LAG_MS)
    follower.record_fetch(100, 0, 120, now_ms=510)
    assert not follower.is_caught_up(200, 510, LAG_MS), "its last fetch is unknown"
