"""Settings for every test: hypothesis is deterministic here; a failing example is printed."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", parent=settings.get_profile("repeatable"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Where the environment forbids Python to keep what it has compiled, each worker would compile every
# test module anew, and each broker that a test starts all of its own modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell without job control starts what it puts into the background with SIGINT ignored, and every
# process below inherits that: those that tests interrupt would never receive the signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_MEMORY = "/dev/shm"
_ENOUGH_BYTES = 8 << 30


def _has_room_for_tests(directory: str) -> bool:
    """Whether the directory has room for all files of the tests, and programs there may be run."""
    try:
        state = os.statvfs(directory)
    except OSError:
        return False
    is_large = state.f_bavail * state.f_frsize >= _ENOUGH_BYTES
    return is_large and not state.f_flag & os.ST_NOEXEC


# Tests that write and sync many files take half the time in memory. TMPDIR=/tmp puts all files on
# a disk, as `make test-long` does.
_DISK_VARIABLE = "PENSTOCK_TEST_DISK"
if "TMPDIR" not in os.environ and sys.platform == "linux" and _has_room_for_tests(_MEMORY):
    os.environ[_DISK_VARIABLE] = tempfile.gettempdir()  # for the workers, too
    os.environ["TMPDIR"] = _MEMORY
    tempfile.tempdir = None  # chosen anew


@pytest.fixture(scope="module")
def disk_directory() -> Iterator[Path]:
    """A directory on a disk, for tests whose subject is the page cache: memory cannot be probed."""
    disk = os.environ.get(_DISK_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=disk) as directory:
        yield Path(directory)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector from visiting the test items, which all live until the end.

    They would be visited again and again while they are created, which takes as long as the
    collection itself, and in every full collection during the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_SPARK_AND_DATABASES = ("tests/spark/", "tests/unit/spark/", "tests/unit/client/external_offsets/")


@pytest.hookimpl(trylast=True)  # after the tests that are not selected have been removed
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets one worker start Spark and the databases, and another one Kafka's JVMs.

    Each worker begins with an equal part of the tests, in this order, and in the end the workers
    take tests from each other's ends. Tests of Spark on two workers would start two sessions, each
    of which compiles the same Java code.
    """
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    moved = [item for item in items if item.nodeid.startswith(_SPARK_AND_DATABASES)]
    others = [item for item in items if not item.nodeid.startswith(_SPARK_AND_DATABASES)]
    second_part = len(items) // workers
    items[:] = [*others[:second_part], *moved, *others[second_part:]]
