"""Finds calls that make a thread wait for the disk, or just wait."""

import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import pytest

from penstock.cluster.embedded import EmbeddedStore

P = ParamSpec("P")
R = TypeVar("R")


class BlockingCalls:
    """While `watched` is a thread, notes the stack of each such call on it."""

    def __init__(self) -> None:
        self.watched: int | None = None
        self.elsewhere: list[str] = []
        """Names of the calls that other threads have made meanwhile."""
        self._found: list[str] = []

    def seen(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, told of before it is called."""

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.watched == threading.get_ident():
                stack = "".join(traceback.format_stack(limit=12))
                self._found.append(f"{function.__qualname__} on the event loop:\n{stack}")
            elif self.watched is not None:
                self.elsewhere.append(function.__qualname__)
            return function(*args, **kwargs)

        return called

    @contextmanager
    def on(self, thread: int) -> Iterator[None]:
        """Watches a thread; in the end it must have made no such call."""
        self.watched = thread
        try:
            yield
        finally:
            self.watched = None
            result, self._found = self._found, []
        assert not result, "\n".join(result)


@contextmanager
def blocking_calls() -> Iterator[BlockingCalls]:
    """Has syncs, commits of the metadata, removals of folders and sleeps noted."""
    calls = BlockingCalls()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (os, "fsync"),
            (os, "fdatasync"),
            (os, "sync"),
            (EmbeddedStore, "commit"),
            (shutil, "rmtree"),
            (time, "sleep"),
        ):
            patch.setattr(owner, name, calls.seen(getattr(owner, name)))
        yield calls
