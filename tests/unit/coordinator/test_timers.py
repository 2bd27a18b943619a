"""Timers as values."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.timers import TimerQueue


def test_due_keys_are_returned_in_order() -> None:
    timers: TimerQueue[str] = TimerQueue()
    timers.set("late", 20)
    timers.set("soon", 10)
    assert timers.next_deadline() == 10
    assert timers.pop_due(9) is None
    assert timers.pop_due(20) == "soon"
    assert timers.pop_due(20) == "late"
    assert timers.pop_due(99) is None
    assert timers.next_deadline() is None


def test_an_old_deadline_of_a_reset_or_cancelled_key_is_ignored() -> None:
    timers: TimerQueue[str] = TimerQueue()
    timers.set("moved", 10)
    timers.set("cancelled", 10)
    timers.set("moved", 30)
    timers.cancel("cancelled")
    timers.cancel("unknown")
    assert timers.pop_due(29) is None
    assert "moved" in timers
    assert timers.pop_due(30) == "moved"
    assert len(timers) == 0


def test_outdated_deadlines_do_not_accumulate() -> None:
    timers: TimerQueue[int] = TimerQueue()
    for beat in range(10_000):
        timers.set(beat % 10, beat)
    assert len(timers) == 10
    assert len(timers._heap) <= 64 + 4 * 10
    assert [timers.pop_due(10_000) for _ in range(11)] == [*range(10), None]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 4), st.integers(0, 20)),
            st.tuples(st.just("cancel"), st.integers(0, 4), st.just(0)),
            st.tuples(st.just("pop"), st.just(0), st.integers(0, 20)),
        )
    )
)
def test_timers_behave_like_a_dict_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers: TimerQueue[int] = TimerQueue()
    model: dict[int, int] = {}
    for action, key, time in steps:
        if action == "set":
            timers.set(key, time)
            model[key] = time
        elif action == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = timers.pop_due(time)
            if due is None:
                assert not any(deadline <= time for deadline in model.values())
            else:
                assert model.pop(due) <= time
        assert timers.next_deadline() == min(model.values(), default=None)


def test_all_matching_keys_are_cancelled() -> None:
    timers: TimerQueue[tuple[int, str]] = TimerQueue()
    for key in ((1, "a"), (2, "b"), (1, "c")):
        timers.set(key, 10)
    timers.cancel_where(lambda key: key[0] == 1)
    assert (timers.pop_due(10), timers.pop_due(10)) == ((2, "b"), None)
