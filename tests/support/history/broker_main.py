"""The main program of a broker under test: `penstock serve` whose clock and disk obey the test.

`python -m tests.support.history.broker_main NAME=VALUE…` runs a broker with these settings and
prints `ready`. `bug=NAME` plants a bug of `planted_bugs`. It reads commands from standard input,
and ends when that is closed:

- `clock MS`: the wall clock differs from the real one by so much;
- `disk full`, `disk free`: the disk has no room for anything new, or has room again.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from errno import ENOSPC
from typing import Any, TypeVar

T = TypeVar("T")

_BUG = "bug="


class Clock:
    """Replaces the wall clock of this process; monotonic time is real."""

    def __init__(self) -> None:
        self._time_ns = time.time_ns
        self.step_ms = 0

    def install(self) -> None:
        time.time_ns = self.time_ns
        time.time = lambda: self.time_ns() / 1e9

    def time_ns(self) -> int:
        return self._time_ns() + self.step_ms * 1_000_000


class Disk:
    """Makes writes and new files fail with ENOSPC. What is written already can be overwritten.

    The disk has room until the broker has started: logs that cannot be loaded for lack of room are
    offline until the broker is started again.
    """

    def __init__(self) -> None:
        self.is_full = False
        self.is_started = False

    @property
    def _refuses(self) -> bool:
        return self.is_full and self.is_started

    def install(self) -> None:
        pwrite = os.pwrite

        def limited_pwrite(fd: int, data: Any, position: int) -> int:
            if self._refuses and position + len(data) > os.fstat(fd).st_size:
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            return pwrite(fd, data, position)

        os.pwrite = limited_pwrite
        os.posix_fallocate = self._limit(os.posix_fallocate)
        os.mkdir = self._limit(os.mkdir)

    def _limit(self, call: Callable[..., T]) -> Callable[..., T]:
        def limited(*arguments: Any, **options: Any) -> T:
            if self._refuses:
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            return call(*arguments, **options)

        return limited


class Control:
    """Obeys the commands of the test."""

    def __init__(self, clock: Clock, disk: Disk) -> None:
        self._clock = clock
        self._disk = disk

    def read_commands(self) -> None:
        for line in sys.stdin:
            self._obey(line.split())
        os._exit(1)

    def _obey(self, command: list[str]) -> None:
        match command:
            case ["clock", step_ms]:
                self._clock.step_ms = int(step_ms)
            case ["disk", state]:
                self._disk.is_full = state == "full"


def main(arguments: list[str]) -> None:
    clock, disk = Clock(), Disk()
    clock.install()
    disk.install()
    control = Control(clock, disk)
    from penstock.broker.main import run  # after the clock was replaced

    for argument in arguments:
        if argument.startswith(_BUG):
            from tests.support.history.planted_bugs import plant

            plant(argument.removeprefix(_BUG))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    threading.Thread(target=control.read_commands, daemon=True).start()
    settings = [argument for argument in arguments if not argument.startswith(_BUG)]

    def ready(endpoints: object) -> None:
        disk.is_started = True
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    run(None, settings, ready)


if __name__ == "__main__":
    main(sys.argv[1:])
