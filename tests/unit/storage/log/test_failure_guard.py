"""A failed log refuses changes with one error, however often."""

from typing import cast

import pytest

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.log.failure_guard import FailureGuard
from penstock.storage.log.local_log import LocalLog


def frames_of(error: BaseException) -> int:
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + 1, trace.tb_next
    return count


def test_the_failure_does_not_collect_the_frames_of_all_that_met_it() -> None:
    guard = FailureGuard(TopicPartition("t", 0), cast("LocalLog", None), lambda error: None)
    guard.stop(KafkaStorageError("the disk is broken"))
    for _ in range(20):
        with pytest.raises(KafkaStorageError):
            guard.require_writable()
    assert guard.failure is not None
    assert frames_of(guard.failure) <= 2
