"""Random histories of a whole broker in which any call of disk, store and sockets can fail.

`tests.support.faults.injection` says what must be true after each. `python -m bench faults` runs
many more seeds.
"""

import errno

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.net.server.acceptor import Acceptor
from penstock.net.server.connection import Connection
from penstock.net.server.transport import PlaintextTransport
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager
from tests.support.faults.injection import InjectionError, run_seed
from tests.support.seeds import seeds

PLANTED_SEEDS = range(300)
"""The seeds that may run until a planted fault is found."""


@pytest.mark.parametrize("seed", seeds(200, always=40))
def test_a_seed(seed: int) -> None:
    run_seed(seed)


def first_failure(*, only_syncs: bool = False) -> str:
    """Returns the message of the first seed that fails."""
    for seed in PLANTED_SEEDS:
        try:
            run_seed(seed, only_syncs=only_syncs)
        except InjectionError as error:
            return str(error)
    raise AssertionError(f"{len(PLANTED_SEEDS)} seeds found nothing")


@pytest.mark.long
def test_a_flush_that_succeeds_after_a_failed_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the fix: neither the begin nor the end of a flush looks at the log's failure."""

    def begin_flush(log: Log, *, with_indexes: bool = False) -> FlushTask | None:
        return None if log.local.is_busy else log._flushes._task(with_indexes=with_indexes)

    def finish_flush(log: Log, task: FlushTask, error: Exception | None = None) -> None:
        log.local.finish_flush(task, succeeded=error is None)
        if error is not None:
            log.guard.fail(error)

    monkeypatch.setattr(Log, "begin_flush", begin_flush)
    monkeypatch.setattr(Log, "finish_flush", finish_flush)
    failure = first_failure(only_syncs=True)
    assert "has lost" in failure or "was committed" in failure


def test_a_broken_partition_that_keeps_the_broker_from_starting_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the fix: a lookup of a partition that could not be loaded raises its error."""

    def get(manager: LogManager, partition: TopicPartition) -> Log | None:
        for log_dir in manager.dirs:
            if log_dir.has(partition):
                return log_dir.log(partition)
        return None

    monkeypatch.setattr(LogManager, "get", get)
    failure = first_failure()
    assert "partition.metadata" in failure or KafkaStorageError.__name__ in failure


def test_a_socket_that_is_not_closed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(transport: PlaintextTransport) -> None:
        transport._stop_reading()
        if transport._writing:
            transport._loop.remove_writer(transport._fd)

    monkeypatch.setattr(PlaintextTransport, "abort", abort)
    assert "sockets were not closed" in first_failure()


@pytest.mark.long
def test_a_socket_that_is_watched_after_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(transport: PlaintextTransport) -> None:
        transport._stop_reading()
        transport._sock.close()

    monkeypatch.setattr(PlaintextTransport, "abort", abort)
    failure = first_failure()
    assert "is closed, and the loop watches it" in failure or "that is closed" in failure


def test_a_listener_that_polls_after_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def pause_after(acceptor: Acceptor, error: OSError) -> None:
        """Without the pause, the connection in the queue wakes the loop at once."""

    monkeypatch.setattr(Acceptor, "_pause_after", pause_after)
    monkeypatch.setattr("tests.support.faults.injection.SOCKET_ERRORS", {"accept": (errno.EMFILE,)})
    monkeypatch.setattr("tests.support.faults.injection.SOCKET_FAULT_CALLS", (1 << 30,))
    assert "again and again" in first_failure()


@pytest.mark.long
def test_memory_that_a_broken_connection_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_drop_requests", lambda connection: None)
    failure = first_failure()
    assert "memory of requests" in failure or "requests are counted" in failure
