"""Apache Kafka 3.9 joins a cluster that Penstock has created (R6)."""

from pathlib import Path

import pytest

from penstock.client import Consumer, Producer
from penstock.core.ids import TopicPartition
from tests.support.history.cluster import BROKER_IDS, RECOVERY_TIMEOUT_S, HistoryCluster
from tests.support.history.replica_logs import differences

KAFKA = 1
PARTITIONS = 3
RECORDS = 300
TOPIC = "shared"


def missing_leaders(cluster: HistoryCluster) -> str:
    leaders = {cluster.leader_of(TOPIC, number) for number in range(PARTITIONS)}
    return "" if leaders == set(BROKER_IDS) else f"only {leaders} lead"


@pytest.mark.timeout(120)
def test_kafka_joins_a_cluster_of_penstock(tmp_path: Path) -> None:
    """Penstock's setting keeps the feature levels at those of Kafka 3.9; all replicas are equal."""
    settings = {"inter.broker.protocol.version": "3.9"}
    with HistoryCluster(tmp_path, settings, kafka={KAFKA}, starts_with_kafka=False) as cluster:
        assert cluster.controller_id() != KAFKA
        cluster.create_topics({TOPIC: PARTITIONS})
        cluster.poll(lambda: missing_leaders(cluster), RECOVERY_TIMEOUT_S)
        cluster.wait_until_in_sync()
        bootstrap = cluster.network.bootstrap
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            sent = [
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                for number in range(RECORDS)
            ]
            for future in sent:
                future.result(60)
        with Consumer(bootstrap_servers=bootstrap) as consumer:
            ends = consumer.end_offsets(partitions)
        assert sum(ends.values()) == RECORDS
        cluster.stop_all()
        directories = {number: cluster.data_directory(number) for number in BROKER_IDS}
        assert differences(directories, [f"{TOPIC}-{number}" for number in range(3)]) == []
