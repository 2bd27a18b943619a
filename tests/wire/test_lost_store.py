"""The metadata store of `penstock serve --brokers` is lost, and the logs of all brokers are not."""

import shutil
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.client.admin import NewTopic
from penstock.client.admin.admin import Admin
from penstock.core.ids import TopicPartition
from tests.support.broker.process import BrokerError, PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.waiting import wait_until

BROKERS = 3
CLUSTER_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "zookeeper.session.timeout.ms": "3000",
}
penstock = Cli()


def consume(broker: PenstockBroker, topic: str) -> list[str]:
    return sorted(Cli(broker.bootstrap)("consume", topic, "--exit").stdout.splitlines())


@pytest.mark.long
def test_the_logs_of_all_brokers_are_adopted(tmp_path: Path) -> None:
    """R4, S1: one partition with all of its replicas, led by one that lacks nothing."""
    cluster = PenstockBroker(tmp_path, CLUSTER_SETTINGS, brokers=BROKERS)
    stale = tmp_path / "stale"
    with cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        wait_until(lambda: len(admin.describe_cluster().nodes) == BROKERS)
        admin.create_topics([NewTopic("orders", num_partitions=3, replication_factor=3)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(30):
                producer.send("orders", str(number).encode(), partition=number % 3).result()
        admin.alter_group_offsets("g", {TopicPartition("orders", 0): 7})
        topic_id = admin.describe_topics(["orders"])["orders"].topic_id
    shutil.copytree(cluster.data, stale)
    with cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(30, 60):
            producer.send("orders", str(number).encode(), partition=number % 3).result()
    # The first broker has old logs: without the others, the records from 30 on would be lost.
    for partition in range(3):
        shutil.rmtree(cluster.data / f"orders-{partition}")
        shutil.copytree(stale / f"orders-{partition}", cluster.data / f"orders-{partition}")
    (cluster.data / "penstock-metadata.db").unlink()

    survey = penstock("cluster", "adopt", "--set", f"log.dirs={cluster.data}")
    assert "penstock serve --brokers 3" in survey.stderr
    [orders] = [line.split() for line in survey.stdout.splitlines() if line.startswith("orders")]
    assert orders[1:3] == ["3", "9"]
    with pytest.raises(BrokerError, match="start all of them: penstock serve --brokers 3"):
        PenstockBroker(tmp_path, CLUSTER_SETTINGS).start()

    with cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:

        def has_recovered() -> bool:
            described = admin.describe_topics(["orders"])["orders"]
            assert described.topic_id == topic_id
            return all(len(partition.isr) == BROKERS for partition in described.partitions)

        assert consume(cluster, "orders") == sorted(map(str, range(60)))
        wait_until(has_recovered)
        partitions = admin.describe_topics(["orders"])["orders"].partitions
        assert {partition.leader for partition in partitions} == {1, 2}
        [offset] = admin.list_group_offsets(["g"])["g"].values()
        assert offset is not None
        assert offset.offset == 7
    assert not list(cluster.data.rglob("*-stray"))


@pytest.mark.long
def test_a_log_that_cannot_be_read_stops_the_adoption(tmp_path: Path) -> None:
    """It may be the only one that has everything: nothing is registered without it."""
    cluster = PenstockBroker(tmp_path, CLUSTER_SETTINGS, brokers=2)
    with cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        wait_until(lambda: len(admin.describe_cluster().nodes) == 2)
        admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=2)])
    (cluster.data / "penstock-metadata.db").unlink()
    metadata = cluster.data / "broker.1" / "orders-0" / "partition.metadata"
    content = metadata.read_bytes()
    metadata.write_bytes(b"garbage")
    with pytest.raises(BrokerError, match="not all logs of broker 1 can be read"):
        cluster.start()
    metadata.write_bytes(content)
    with cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        wait_until(lambda: admin.describe_topics(["orders"])["orders"].partitions[0].isr != ())
