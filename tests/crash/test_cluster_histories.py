"""Three brokers and ZooKeeper under faults: the history of the clients has no violations (R2, R8).

`tests/support/history` has the cluster, the faults, the workload and the checker. A failure prints
its seed; `python -m bench histories` runs other seeds for an hour.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.history.cluster import BROKER_IDS, HistoryCluster
from tests.support.history.consumers import GroupWorker
from tests.support.history.faults import (
    Cut,
    FullDisk,
    Isolate,
    Kill,
    Pause,
    Step,
)
from tests.support.history.history import Aborted, Acknowledged, OffsetsCommitted, Read
from tests.support.history.history_checker import Kind
from tests.support.history.history_run import Run, run_history
from tests.support.history.network import CLIENTS, ZOOKEEPER, broker_name
from tests.support.history.producers import IdempotentWorker, TransactionalWorker
from tests.support.history.workers import PLAIN, Worker


def test_a_few_faults(tmp_path: Path) -> None:
    with HistoryCluster(tmp_path) as cluster, Run(cluster, seed=1) as run:
        run.wait_for(Acknowledged, 50)
        leader = cluster.leader_of(PLAIN, 0)
        follower = next(number for number in BROKER_IDS if number != leader)
        run.disturb(
            [
                Step(0.0, 0.6, Cut(broker_name(leader), broker_name(follower), one_way=True)),
                Step(0.3, 0.8, FullDisk(follower)),
                Step(0.9, 2.0, Kill(leader)),
                Step(1.5, 2.5, Cut(broker_name(follower), ZOOKEEPER, resets=True)),
                Step(2.2, 2.8, Pause(follower)),
            ]
        )
        result = run.finish()
    result.check()
    assert min(result.counts[kind] for kind in ("Acknowledged", "Committed", "Read")) > 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_minute_of_faults(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed, seconds=60).check()


# --- planted bugs


class Scenario(NamedTuple):
    """A bug, faults that show it, and how the checker must report it."""

    bugs: Sequence[str]
    disturb: Callable[[Run], None]
    kinds: frozenset[Kind]
    """One of these must be reported; none if the logs of the replicas must differ."""
    settings: Mapping[str, str] = {}
    workers: tuple[Sequence[type[Worker]], Sequence[type[Worker]]] = (
        [IdempotentWorker, TransactionalWorker],
        [GroupWorker],
    )


def fail_an_isolated_leader(run: Run) -> None:
    """The leader continues without its followers for a moment, and is killed."""
    leader = run.cluster.leader_of(PLAIN, 0)
    run.disturb([Step(0.0, 8.0, Isolate(leader)), Step(1.2, 8.5, Kill(leader))])


def lose_responses_and_the_leader(run: Run) -> None:
    """Producers send again what the leader has written and copied to its followers."""
    leader = run.cluster.leader_of(PLAIN, 0)
    cut = Cut(broker_name(leader), CLIENTS, one_way=True)
    run.disturb([Step(0.0, 6.0, cut), Step(1.0, 6.0, Kill(leader))])


def restart_followers_without_the_leader(run: Run) -> None:
    """The leader is alone for a while; its followers return when it is down."""
    cluster = run.cluster
    leader = cluster.leader_of(PLAIN, 0)
    followers = [number for number in BROKER_IDS if number != leader]
    for follower in followers:
        cluster.kill(follower)
    cluster.wait_until_led_by(PLAIN, leader)
    run.wait_for(Acknowledged, 50)
    cluster.kill(leader)
    for follower in followers:
        cluster.start(follower)
    run.wait_for(Acknowledged, 50)


def abort_transactions(run: Run) -> None:
    run.wait_for(Aborted, 3)


def replace_members(run: Run) -> None:
    run.wait_for(OffsetsCommitted, 3)
    run.replace_clients(GroupWorker)
    run.wait_for(Read, 50)


SCENARIOS = {
    "acks=all does not wait": Scenario(
        ["acks=all does not wait"], fail_an_isolated_leader, frozenset({Kind.LOST})
    ),
    "the high watermark is the log end offset": Scenario(
        ["the high watermark is the log end offset"],
        fail_an_isolated_leader,
        frozenset({Kind.LOST, Kind.DIVERGED}),
    ),
    "a follower does not truncate": Scenario(
        ["a follower does not truncate"], fail_an_isolated_leader, frozenset()
    ),
    "a follower does not keep the state of producers": Scenario(
        ["a follower does not keep the state of producers"],
        lose_responses_and_the_leader,
        frozenset({Kind.DOUBLED}),
        workers=([IdempotentWorker], [GroupWorker]),
    ),
    "leaders are elected outside the ISR": Scenario(
        [],
        restart_followers_without_the_leader,
        frozenset({Kind.LOST}),
        settings={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    ),
    "aborted transactions are read": Scenario(
        ["aborted transactions are read"], abort_transactions, frozenset({Kind.ABORTED_READ})
    ),
    "committed offsets are forgotten": Scenario(
        ["committed offsets are forgotten"], replace_members, frozenset({Kind.NON_MONOTONIC})
    ),
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_planted_bug_is_reported(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    with (
        HistoryCluster(tmp_path, scenario.settings, scenario.bugs) as cluster,
        Run(cluster, 1, *scenario.workers, recovery_timeout_s=20) as run,
    ):
        run.wait_for(Acknowledged, 50)
        scenario.disturb(run)
        result = run.finish()
    if scenario.kinds:
        kinds = {violation.kind for violation in result.violations}
        assert kinds & scenario.kinds, result.report
    else:
        assert result.differences or result.violations, result.report
