"""P4: committed transactions are stored once, complete and in order, whatever fails."""

import pytest

from tests.support.client.transaction_histories import TransactionHistory
from tests.support.seeds import seeds

SEEDS = seeds(30, always=10)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_are_all_or_nothing(seed: int, version: int) -> None:
    history = TransactionHistory(seed, version)
    history.run_transactions(20)
    assert history.committed == history.expected


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_with_expired_batches_are_aborted(seed: int, version: int) -> None:
    """delivery_timeout_ms is short, and some batches are rejected."""
    history = TransactionHistory(seed, version, delivery_timeout_ms=50, poison=True)
    history.run_transactions(20)
    assert history.committed == history.expected
