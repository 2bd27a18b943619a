"""When a leader may report an offset above the end of its log (R2, C1)."""

from penstock.replication.leader_confirmation import (
    EXPIRY_MS,
    MAX_OFFSETS,
    WAKE_INTERVAL_MS,
    LeaderConfirmation,
)


def test_each_follower_must_fetch_twice() -> None:
    """The first fetch may have been sent before the request."""
    confirmation = LeaderConfirmation()
    assert not confirmation.confirm(9, 3, {7: 10, 8: 20}, 0)
    assert not confirmation.confirm(9, 3, {7: 11, 8: 30}, 1)
    assert not confirmation.confirm(9, 3, {7: 12, 8: 21}, 2)
    assert confirmation.confirm(9, 3, {7: 12, 8: 22}, 3)


def test_a_follower_that_has_left_the_isr_is_not_waited_for() -> None:
    confirmation = LeaderConfirmation()
    assert not confirmation.confirm(9, 3, {7: 10, 8: 20}, 0)
    assert confirmation.confirm(9, 3, {7: 12}, 1)


def test_a_follower_that_has_joined_the_isr_is_not_known_to_follow() -> None:
    confirmation = LeaderConfirmation()
    assert not confirmation.confirm(9, 3, {7: 10}, 0)
    assert not confirmation.confirm(9, 3, {7: 12, 8: 500}, 1)


def test_the_next_request_begins_again() -> None:
    confirmation = LeaderConfirmation()
    assert not confirmation.confirm(9, 3, {7: 0}, 0)
    assert confirmation.confirm(9, 3, {7: 2}, 1)
    assert not confirmation.confirm(9, 3, {7: 9}, 2)


def test_each_offset_is_checked_separately() -> None:
    confirmation = LeaderConfirmation()
    assert not confirmation.confirm(9, 3, {7: 0}, 0)
    assert not confirmation.confirm(10, 3, {7: 2}, 1)
    assert confirmation.confirm(9, 3, {7: 2}, 2)
    assert confirmation.confirm(10, 3, {7: 4}, 2)


def test_a_new_leader_epoch_and_an_old_request_begin_again() -> None:
    confirmation = LeaderConfirmation()
    assert not confirmation.confirm(9, 3, {7: 0}, 0)
    assert not confirmation.confirm(9, 4, {7: 5}, 1)
    assert not confirmation.confirm(9, 4, {7: 50}, 2 + EXPIRY_MS)
    assert confirmation.confirm(9, 4, {7: 52}, 3 + EXPIRY_MS)


def test_the_number_of_checks_is_bounded() -> None:
    confirmation = LeaderConfirmation()
    for offset in range(MAX_OFFSETS + 1):
        assert not confirmation.confirm(offset, 3, {7: 0}, offset)
    assert not confirmation.confirm(0, 3, {7: 2}, 100)
    assert confirmation.confirm(MAX_OFFSETS, 3, {7: 2}, 100)


def test_many_requests_wake_the_followers_now_and_then() -> None:
    """X5: a consumer that fetches in a loop does not have the brokers fetch in a loop."""
    confirmation = LeaderConfirmation()
    due = [now_ms for now_ms in range(100) if confirmation.is_wake_due(now_ms)]
    assert due == list(range(0, 100, WAKE_INTERVAL_MS))
