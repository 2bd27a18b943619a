"""Something dear that every worker of a test run needs, made by one of them."""

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
    """The result of `make(folder)`, which runs in one worker only; the others wait for it.

    What it leaves in the folder is shared by all workers, so nobody may change it. The result must
    be something that pickle can carry. (The xdist_group mark would be another way, but it has no
    effect with pytest 9.2 and pytest-xdist 3.8.)
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has a folder of its own in that of the run
    directory, result = base / name, base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            shutil.rmtree(directory, ignore_errors=True)  # of a worker that failed
            directory.mkdir()
            made = pickle.dumps(make(directory))
            result.write_bytes(made)
    loaded: T = pickle.loads(result.read_bytes())
    return loaded
