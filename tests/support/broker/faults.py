"""Detects unexpected exceptions of the broker under test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = ("penstock", "asyncio")


class Faults(logging.Handler):
    """Collects log records with a traceback, which are unexpected exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.name == "asyncio":
            self.tracebacks.append(logging.Formatter().format(record))

    def check(self) -> None:
        """Raises AssertionError with the tracebacks if there are any."""
        assert not self.tracebacks, "\n".join(self.tracebacks)


@contextmanager
def watching() -> Iterator[Faults]:
    """Watches the loggers of the broker; fails at the end if there was a fault."""
    faults = Faults()
    for name in LOGGERS:
        logging.getLogger(name).addHandler(faults)
    try:
        yield faults
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(faults)
    faults.check()
