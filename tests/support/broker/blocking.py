"""Detects blocking calls (disk syncs, sleeps) on a thread."""

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
    """Records the stack of every blocking call on the thread `watched`."""

    def __init__(self) -> None:
        self.watched: int | None = None
        self.elsewhere: list[str] = []
        """Names of the blocking calls of other threads during that time."""
        self._stacks: list[str] = []

    def recorded(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wraps the function so that its calls are recorded."""

        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.watched == threading.get_ident():
                stack = "".join(traceback.format_stack(limit=12))
                self._stacks.append(f"{function.__qualname__} on the event loop:\n{stack}")
            elif self.watched is not None:
                self.elsewhere.append(function.__qualname__)
            return function(*args, **kwargs)

        return wrapper

    @contextmanager
    def on(self, thread: int) -> Iterator[None]:
        """Watches a thread; raises AssertionError at the end if it made a blocking call."""
        self.watched = thread
        try:
            yield
        finally:
            self.watched = None
            stacks, self._stacks = self._stacks, []
        assert not stacks, "\n".join(stacks)


@contextmanager
def blocking_calls() -> Iterator[BlockingCalls]:
    """Records syncs, metadata commits, removals of directories and sleeps."""
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
            patch.setattr(owner, name, calls.recorded(getattr(owner, name)))
        yield calls
