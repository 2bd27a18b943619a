"""Random histories of a whole broker in which any call of the disk and of the store can fail.

`tests.support.faults.injection` says what must be true after each. `python -m bench faults` runs
many more seeds.
"""

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager
from tests.support.faults.injection import InjectionError, run_seed

SEEDS = 200
PLANTED_SEEDS = range(300)
"""The seeds that may run until a planted fault is found."""


@pytest.mark.parametrize("seed", range(SEEDS))
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


def test_a_flush_that_succeeds_after_a_failed_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the fix: neither the begin nor the end of a flush looks at the log's failure."""

    def begin_flush(log: Log, *, with_indexes: bool = False) -> FlushTask | None:
        return None if log.local.is_busy else log._flush_task(with_indexes=with_indexes)

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
