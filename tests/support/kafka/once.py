"""Expensive values that all workers of a test run share, computed by one of them."""

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def once_per_run(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """Returns the result of `make(directory)`, which runs in one worker; the others wait for it.

    All workers share the files in the directory, so that no test may change them. The result must
    be picklable. (The xdist_group mark has no effect with pytest 9.2 and pytest-xdist 3.8.)
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has its own subdirectory
    directory, result = base / name, base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            shutil.rmtree(directory, ignore_errors=True)  # of a worker that failed
            directory.mkdir()
            pickled = pickle.dumps(make(directory))
            result.write_bytes(pickled)
    loaded: T = pickle.loads(result.read_bytes())
    return loaded
