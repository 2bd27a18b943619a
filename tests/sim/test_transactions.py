"""Transactions under seeded faults: crashes, broken connections, late markers.

The broker is the real one except for sockets, threads, clock and disk (P3, P4, C4). `txn_checks`
lists the invariants. A failure contains the seed and its events, and can be replayed exactly:
`PENSTOCK_SIM_SEEDS=1234:1235` runs that seed, `PENSTOCK_SIM_SEEDS=5000` the first 5000.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from penstock.broker.coordinator import transaction_coordinator
from penstock.coordinator.group.offsets.pending import PendingOffsets
from penstock.coordinator.txn import initialize
from penstock.coordinator.txn.metadata import TransactionMetadata, prepare_epoch
from penstock.core.errors import ErrorCode
from penstock.storage.log.local_log import LocalLog
from tests.sim.txn_followers import Attempt
from tests.sim.txn_simulation import Simulation, SimulationError, run_seed
from tests.support.seeds import seeds

_DEFAULT_SEEDS = seeds(24, always=8)


def chosen_seeds() -> Sequence[int | ParameterSet]:
    chosen = os.environ.get("PENSTOCK_SIM_SEEDS")
    if chosen is None:
        return _DEFAULT_SEEDS
    first, _, end_of = chosen.rpartition(":")
    return range(int(first or 0), int(end_of))


@cache
def attempts_of(seed: int) -> list[Attempt]:
    """Runs the seed once, however many tests look at it."""
    return list(run_seed(seed).checks.attempts.values())


def digest(simulation: Simulation) -> str:
    """Returns a digest of all events."""
    return sha256("\n".join(simulation.notes).encode()).hexdigest()


@pytest.mark.parametrize("seed", chosen_seeds())
def test_transactions_are_atomic_despite_faults(seed: int) -> None:
    """P4, C4: a transaction is committed everywhere or nowhere; each input is processed once."""
    assert attempts_of(seed)


def test_most_seeds_commit_transactions() -> None:
    """In a few, producers with the same transactional id fence each other all the time."""
    committed = [any(attempt.commit_acked for attempt in attempts_of(seed)) for seed in range(3)]
    assert sum(committed) >= 2


def test_a_seed_has_the_same_events_in_every_process() -> None:
    program = (
        "from tests.sim.txn_simulation import run_seed\n"
        "from tests.sim.test_transactions import digest\n"
        "print(digest(run_seed(2)))"
    )
    root = Path(__file__).parents[2]
    path = f"{root / 'src'}{os.pathsep}{root}"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == digest(run_seed(2))


# --- the simulation detects bugs


def show_aborted_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalLog, "aborted_transactions", lambda log, start, end: [])


def count_aborted_offsets(patch: pytest.MonkeyPatch) -> None:
    end = PendingOffsets.end
    patch.setattr(
        PendingOffsets,
        "end",
        lambda offsets, producer_id, commit: end(offsets, producer_id, commit=True),
    )


def leave_out_markers(patch: pytest.MonkeyPatch) -> None:
    written = transaction_coordinator._WRITTEN_CODES | {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    patch.setattr(transaction_coordinator, "_WRITTEN_CODES", written)


def fence_nobody(patch: pytest.MonkeyPatch) -> None:
    def same_epoch(
        metadata: TransactionMetadata, timeout_ms: int, now: int, *, epoch: int, last_epoch: int
    ) -> TransactionMetadata:
        epoch = max(epoch - 1, 0)
        return prepare_epoch(metadata, timeout_ms, now, epoch=epoch, last_epoch=last_epoch)

    patch.setattr(initialize, "prepare_epoch", same_epoch)


@pytest.mark.parametrize(
    "fault", [show_aborted_records, count_aborted_offsets, leave_out_markers, fence_nobody]
)
def test_a_bug_in_the_broker_is_detected(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure contains the seed."""
    fault(monkeypatch)

    def run() -> None:
        for seed in range(10):
            run_seed(seed)

    with pytest.raises(SimulationError, match=r"^seed \d+: (.|\n)*again: PENSTOCK_SIM_SEEDS="):
        run()
