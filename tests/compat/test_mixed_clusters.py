"""Brokers of Apache Kafka 3.9 and of Penstock in one cluster, on ZooKeeper.

Producers and consumers record a history while each broker is killed and restarted, with the
controller on either side. In the end it has no violations, and the logs of all replicas are the
same byte by byte.
"""

from pathlib import Path

import pytest

from tests.support.history.cluster import BROKER_IDS, HistoryCluster
from tests.support.history.consumers import ConfluentGroupWorker, CopyWorker, GroupWorker
from tests.support.history.history import Acknowledged, Committed, Read
from tests.support.history.history_run import PRODUCERS, Run

CLASSIC_CONSUMERS = (GroupWorker, GroupWorker, ConfluentGroupWorker, CopyWorker)
"""Kafka 3.9 has no groups of KIP-848 with ZooKeeper."""
MAX_KILLS = 8


def wait_for_progress(run: Run) -> None:
    for kind in (Acknowledged, Committed, Read):
        run.wait_for(kind, 10, timeout_s=120)


def kill_controllers(run: Run, kafka: set[int]) -> None:
    """Kills the controller until brokers of both kinds have been it."""
    kinds = set()
    for _ in range(MAX_KILLS):
        controller = run.cluster.controller_id()
        if controller is not None:
            kinds.add(controller in kafka)
            if len(kinds) == 2:
                return
            run.cluster.kill(controller)
            wait_for_progress(run)
            run.cluster.start(controller)
            run.cluster.wait_until_ready()
            run.cluster.wait_until_in_sync()
    pytest.fail(f"in {MAX_KILLS} elections every controller was of one kind")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kafka", [{1}, {1, 2}], ids=["one Kafka", "two Kafkas"])
def test_no_violations_when_brokers_of_both_kinds_fail(tmp_path: Path, kafka: set[int]) -> None:
    with (
        HistoryCluster(tmp_path, kafka=kafka) as cluster,
        Run(cluster, 1, PRODUCERS, CLASSIC_CONSUMERS) as run,
    ):
        wait_for_progress(run)
        kill_controllers(run, kafka)
        for broker_id in BROKER_IDS:
            cluster.kill(broker_id)
            wait_for_progress(run)
            cluster.start(broker_id)
            cluster.wait_until_ready()
            cluster.wait_until_in_sync()
        for broker_id in BROKER_IDS:
            cluster.stop(broker_id)
            wait_for_progress(run)
            cluster.start(broker_id)
            cluster.wait_until_ready()
            cluster.wait_until_in_sync()
        result = run.finish()
    result.check()
