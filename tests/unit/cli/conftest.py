"""Logs for the dumps to look at."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from penstock.storage.log_config import LogConfig
from tests.support.storage.written_log import WrittenLog


@pytest.fixture
def new_log(tmp_path: Path) -> Iterator[Callable[..., WrittenLog]]:
    """Creates a log in its own directory: `new_log(index_interval_bytes=0)`."""
    partitions = count()
    with ExitStack() as stack:

        def make(start_offset: int = 0, **config: int) -> WrittenLog:
            directory = tmp_path / f"orders-{next(partitions)}"
            written = WrittenLog(directory, LogConfig(**config), start_offset)  # type: ignore[arg-type]
            stack.callback(written.log.local.close_handlers)
            return written

        yield make
