"""P4: what is committed is there once, whole and in order, whatever fails on the way."""

import pytest

from tests.support.client.transaction_histories import TransactionHistory

SEEDS = range(30)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_all_or_nothing(seed: int, version: int) -> None:
    history = TransactionHistory(seed, version)
    history.run_transactions(20)
    assert history.committed == history.expected


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_of_which_something_is_given_up_are_aborted(seed: int, version: int) -> None:
    """delivery_timeout_ms is short, and some batches are refused."""
    history = TransactionHistory(seed, version, delivery_timeout_ms=50, poison=True)
    history.run_transactions(20)
    assert history.committed == history.expected
