"""Every broker of Apache Kafka's is replaced by one of Penstock, and back, under load (R6).

A broker continues the directories of its predecessor with the same id. No client gets an error:
producers with acks=all and retries, transactions, and consumers in groups.
"""

from pathlib import Path

import pytest

from tests.support.history.cluster import BROKER_IDS, HistoryCluster
from tests.support.history.consumers import ConfluentGroupWorker, CopyWorker, GroupWorker
from tests.support.history.history import Acknowledged, Committed, Failed, Read
from tests.support.history.history_run import PRODUCERS, Run

CONSUMERS = (GroupWorker, ConfluentGroupWorker, CopyWorker)
"""One member each: a commit during a rebalance would be refused."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_client_gets_an_error_while_all_brokers_are_replaced(tmp_path: Path) -> None:
    settings = {"controlled.shutdown.max.retries": "3"}
    with (
        HistoryCluster(tmp_path, settings, kafka=BROKER_IDS) as cluster,
        Run(cluster, 1, PRODUCERS, CONSUMERS) as run,
    ):
        for kafka in (set[int](), set(BROKER_IDS)):
            for broker_id in BROKER_IDS:
                cluster.replace(broker_id)
                cluster.wait_until_ready()
                cluster.wait_until_in_sync()
                for kind in (Acknowledged, Committed, Read):
                    run.wait_for(kind, 10, timeout_s=120)
            assert cluster.kafka == kafka
        result = run.finish()
    result.check()
    errors = [event for event in run.recorder.events() if isinstance(event, Failed)]
    assert (errors, run.recorder.notes()) == ([], ["the faults have ended"])
