"""P5: no record is lost, duplicated or out of order, whatever fails."""

import pytest

from tests.support.client.producer_histories import PARTITIONS, History
from tests.support.seeds import seeds

SEEDS = seeds(30, always=10)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idempotent_producer_writes_each_record_once_and_in_order(seed: int) -> None:
    """Leaders move, connections break, responses are lost, requests come in long after their
    retries, batches are split."""
    history = History(seed, idempotent=True)
    history.run(200)
    assert history.failed() == []
    for index in range(PARTITIONS):
        assert history.partitions[index].log == history.acknowledged(index)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_fail_permanently_do_not_affect_others(seed: int) -> None:
    """Batches after one that the broker refuses get new sequences; they are written once, even if
    their first attempt is still in flight."""
    history = History(seed, idempotent=True, poison=True)
    history.run(200)
    for index in range(PARTITIONS):
        assert history.partitions[index].log == history.acknowledged(index)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_expire_do_not_affect_others(seed: int) -> None:
    """delivery_timeout_ms is short, so some failed batches may be in the log. Records in the log
    are unique and in order, and none that was acknowledged is missing."""
    history = History(seed, idempotent=True, delivery_timeout_ms=60)
    history.run(200)
    for index in range(PARTITIONS):
        log = history.partitions[index].log
        acknowledged = history.acknowledged(index)
        sent = [value for partition, value, _ in history.sent if partition == index]
        assert log == [value for value in sent if value in log]
        assert acknowledged == [value for value in log if value in acknowledged]


@pytest.mark.parametrize("seed", SEEDS)
def test_without_idempotence_a_partition_keeps_its_order_with_one_request_in_flight(
    seed: int,
) -> None:
    """Lost responses cause duplicates; the first copies are in order, and none is missing."""
    history = History(seed, idempotent=False, zombies=False)
    history.run(200)
    assert history.failed() == []
    for index in range(PARTITIONS):
        first_of_each = list(dict.fromkeys(history.partitions[index].log))
        assert first_of_each == history.acknowledged(index)
