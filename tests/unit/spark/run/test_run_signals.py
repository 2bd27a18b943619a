"""How a run is asked to stop, and what drivers are called."""

import os
import signal
from threading import Event

import pytest

from penstock.spark.run.owners import new_owner
from penstock.spark.run.run import _signals_set


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop_and_the_second_insists(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    asked = Event()
    with _signals_set(asked):
        os.kill(os.getpid(), number)
        assert asked.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_no_two_drivers_have_the_same_name() -> None:
    assert new_owner() != new_owner()
    assert str(os.getpid()) in new_owner().split(":")
