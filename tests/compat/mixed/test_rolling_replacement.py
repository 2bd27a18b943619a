"""Every broker of Apache Kafka's is replaced by one of Penstock, and back, under load (R6).

A broker continues the directories of its predecessor with the same id. No client gets an error:
producers with acks=all and retries, ours, librdkafka's and Kafka's, transactions, and consumers in
groups.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client import Consumer
from penstock.core.ids import TopicPartition
from tests.support.history.cluster import BROKER_IDS, HistoryCluster
from tests.support.history.consumers import ConfluentGroupWorker, CopyWorker, GroupWorker
from tests.support.history.history import Acknowledged, Committed, Failed, Read
from tests.support.history.history_run import Run
from tests.support.history.producers import (
    ConfluentIdempotentWorker,
    ConfluentTransactionalWorker,
    IdempotentWorker,
    TransactionalWorker,
)
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.tools import KafkaTools, Shell, ToolRun


class FlushingTransactionalWorker(ConfluentTransactionalWorker):
    """Has its partitions in every transaction before it aborts.

    librdkafka sends EndTxn while the coordinator makes it wait with AddPartitionsToTxn, because the
    transaction before has not ended yet. Kafka 3.9 refuses that with INVALID_TXN_STATE.
    """

    flushes_before_abort = True


PRODUCERS = (
    IdempotentWorker,
    ConfluentIdempotentWorker,
    TransactionalWorker,
    FlushingTransactionalWorker,
)
CONSUMERS = (GroupWorker, ConfluentGroupWorker, CopyWorker)
"""One member each: a commit during a rebalance would be refused."""
JAVA_TOPIC = "java"
JAVA_PARTITIONS = 3
RECORDS, RECORDS_PER_S = 2500, 40


def send_with_kafkas_producer(shell: Shell) -> ToolRun:
    return shell(
        *("producer-perf-test", "--topic", JAVA_TOPIC, "--num-records", str(RECORDS)),
        *("--record-size", "100", "--throughput", str(RECORDS_PER_S)),
        *("--command-property", "acks=all"),
        timeout=300,
    )


def count_records(bootstrap: str) -> int:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = [TopicPartition(JAVA_TOPIC, number) for number in range(JAVA_PARTITIONS)]
        return sum(consumer.end_offsets(partitions).values())


def is_commit_to_repeat(note: str) -> bool:
    """librdkafka leaves it to the application to repeat a commit while a coordinator loads."""
    return note.startswith("ConfluentGroupWorker") and "COORDINATOR_LOAD_IN_PROGRESS" in note


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_client_gets_an_error_while_all_brokers_are_replaced(tmp_path: Path) -> None:
    settings = {"controlled.shutdown.max.retries": "3"}
    with (
        HistoryCluster(tmp_path, settings, kafka=BROKER_IDS) as cluster,
        Run(cluster, 1, PRODUCERS, CONSUMERS) as run,
        KafkaTools(KafkaParts.find()) as tools,
        ThreadPoolExecutor(1) as pool,
    ):
        bootstrap = cluster.network.bootstrap
        cluster.create_topics({JAVA_TOPIC: JAVA_PARTITIONS})
        java = pool.submit(send_with_kafkas_producer, Shell(tools, bootstrap))
        for kafka in (set[int](), set(BROKER_IDS)):
            for broker_id in BROKER_IDS:
                cluster.replace(broker_id)
                cluster.wait_until_ready()
                cluster.wait_until_in_sync()
                for kind in (Acknowledged, Committed, Read):
                    run.wait_for(kind, 10, timeout_s=120)
            assert cluster.kafka == kafka
        assert f"{RECORDS} records sent" in java.result().out
        assert count_records(bootstrap) == RECORDS
        result = run.finish()
    result.check()
    errors = [event for event in run.recorder.events() if isinstance(event, Failed)]
    notes = [note for note in run.recorder.notes() if not is_commit_to_repeat(note)]
    assert (errors, notes) == ([], ["the faults have ended"])
