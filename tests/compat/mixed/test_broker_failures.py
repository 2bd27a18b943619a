"""Brokers of Apache Kafka 3.9 and of Penstock in one cluster, on ZooKeeper.

Producers and consumers record a history while each broker is killed and restarted, with the
controller on either side. In the end it has no violations, and the logs of all replicas are the
same byte by byte.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.history.cluster import BROKER_IDS, HistoryCluster
from tests.support.history.consumers import ConfluentGroupWorker, CopyWorker, GroupWorker
from tests.support.history.history import Acknowledged, Committed, Read
from tests.support.history.history_run import PRODUCERS, Run

CLASSIC_CONSUMERS = (GroupWorker, GroupWorker, ConfluentGroupWorker, CopyWorker)
"""Kafka 3.9 has no groups of KIP-848 with ZooKeeper."""


def wait_for_progress(run: Run) -> None:
    for kind in (Acknowledged, Committed, Read):
        run.wait_for(kind, 10, timeout_s=120)


def move_the_controller(cluster: HistoryCluster, kafka: set[int]) -> None:
    """Kills controllers of Kafka's, and starts them again when a broker of Penstock's controls."""
    killed: list[int] = []
    while (controller := wait_for_controller(cluster, killed)) in kafka:
        cluster.kill(controller)
        killed.append(controller)
    assert killed, "the first controller is the broker that was started first, which is Kafka's"
    for broker_id in killed:
        cluster.start(broker_id)
    cluster.wait_until_ready()
    cluster.wait_until_in_sync()


def wait_for_controller(cluster: HistoryCluster, killed: Sequence[int]) -> int:
    deadline = time.monotonic() + 60
    while (controller := cluster.controller_id()) is None or controller in killed:
        assert time.monotonic() < deadline, f"no controller but {controller}"
        time.sleep(0.1)
    return controller


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kafka", [{1}, {1, 2}], ids=["one Kafka", "two Kafkas"])
def test_no_violations_when_brokers_of_both_kinds_fail(tmp_path: Path, kafka: set[int]) -> None:
    with (
        HistoryCluster(tmp_path, kafka=kafka) as cluster,
        Run(cluster, 1, PRODUCERS, CLASSIC_CONSUMERS) as run,
    ):
        wait_for_progress(run)
        move_the_controller(cluster, kafka)
        wait_for_progress(run)
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
