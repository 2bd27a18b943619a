"""Finds out whether the broker under test met what it did not expect."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = ("penstock", "asyncio")


class Faults(logging.Handler):
    """Collects what is logged with a traceback: exceptions that nobody had thought of."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.name == "asyncio":
            self.found.append(logging.Formatter().format(record))

    def check(self) -> None:
        """AssertionError with the tracebacks, where there are any."""
        assert not self.found, "\n".join(self.found)


@contextmanager
def watching() -> Iterator[Faults]:
    """Watches the broker's loggers; fails in the end if there was a fault."""
    faults = Faults()
    for name in LOGGERS:
        logging.getLogger(name).addHandler(faults)
    try:
        yield faults
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(faults)
    faults.check()
