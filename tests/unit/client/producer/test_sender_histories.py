"""P5: no record is lost, duplicated or out of order, whatever fails."""

import pytest

from tests.support.client.producer_histories import PARTITIONS, History

SEEDS = range(30)


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
    """What is behind a batch that the broker refuses gets new sequences; even if its first attempt
    is still on its way, it is written once."""
    history = History(seed, idempotent=True, poison=True)
    history.run(200)
    for index in range(PARTITIONS):
        assert history.partitions[index].log == history.acknowledged(index)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_expire_do_not_affect_others(seed: int) -> None:
    """delivery_timeout_ms is short: some fail that may be in the log. What is there is there once
    and in order, and nothing is missing that was acknowledged."""
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
