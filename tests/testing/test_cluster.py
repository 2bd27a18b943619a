"""`penstock.testing.Cluster`: three brokers that fail on demand (T1)."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import ApiKey, BrokerError, Cluster
from tests.support.kafka.broker import wait_until
from tests.testing.test_broker import is_alive

TOPIC = "orders"
SETTINGS = {"zookeeper.session.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    shared.create_topic(TOPIC, partitions=3)
    yield shared
    shared.heal()
    shared.delete_topic(TOPIC)


def write(cluster: Cluster, value: bytes, timeout_s: float = 30.0) -> bool:
    """Returns whether a record to partition 0 is acknowledged by all in-sync replicas."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "message.timeout.ms": int(timeout_s * 1000),
            "log_level": 0,
        }
    )
    outcomes: list[bool] = []
    producer.produce(
        TOPIC, value, partition=0, on_delivery=lambda error, _: outcomes.append(error is None)
    )
    producer.flush(60)
    return outcomes == [True]


def read(cluster: Cluster, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = [message.value() for message in consumer.consume(count, 30)]
    consumer.close()
    return values


def test_leaders_and_replicas_are_spread(cluster: Cluster) -> None:
    assert len(cluster.bootstrap_servers.split(",")) == 3
    assert {cluster.leader(TOPIC, number) for number in range(3)} == {1, 2, 3}
    assert cluster.controller() in cluster.broker_ids
    cluster.wait_until_in_sync(TOPIC)


def test_a_leader_that_is_killed(cluster: Cluster) -> None:
    assert write(cluster, b"before")
    killed = cluster.kill_leader(TOPIC)
    assert not cluster.brokers[killed].is_running
    assert cluster.leader(TOPIC) != killed
    assert write(cluster, b"after")
    with pytest.raises(BrokerError, match=rf"isolated: \[{killed}\].*call start"):
        cluster.wait_until_in_sync()
    cluster.start(killed)
    cluster.wait_until_in_sync()
    assert read(cluster, 2) == [b"before", b"after"]


@pytest.mark.long
def test_heal_restores_the_leaders(cluster: Cluster) -> None:
    leaders = [cluster.leader(TOPIC, number) for number in range(3)]
    cluster.restart(leaders[0])
    assert cluster.leader(TOPIC) != leaders[0], "an orderly stop moves leaderships first"
    cluster.stop(leaders[1])
    cluster.heal()
    assert [cluster.leader(TOPIC, number) for number in range(3)] == leaders


def test_an_isolated_leader_is_replaced_and_acknowledges_nothing(cluster: Cluster) -> None:
    leader = cluster.leader(TOPIC)
    pid = cluster.brokers[leader].pid
    alone = Producer(
        {
            "bootstrap.servers": cluster.brokers[leader].bootstrap_servers,
            "message.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    outcomes: list[bool] = []
    assert write(cluster, b"before")
    alone.list_topics(TOPIC, timeout=30)
    with cluster.isolate(leader):
        alone.produce(
            TOPIC, b"late", partition=0, on_delivery=lambda error, _: outcomes.append(error is None)
        )
        assert cluster.leader(TOPIC) != leader
        assert write(cluster, b"after")
        alone.poll(0)
        assert not outcomes
        assert cluster.brokers[leader].pid == pid, "it still runs"
    assert alone.flush(30) == 0
    assert outcomes == [True], "the bytes arrive late, and it finds the new leader"
    cluster.wait_until_in_sync()
    assert read(cluster, 3) == [b"before", b"after", b"late"]


@pytest.mark.long
def test_a_paused_leader_is_replaced(cluster: Cluster) -> None:
    leader = cluster.leader(TOPIC)
    with cluster.pause(leader):
        assert cluster.leader(TOPIC) != leader
        assert write(cluster, b"value")
    cluster.wait_until_in_sync()
    assert read(cluster, 1) == [b"value"]


@pytest.mark.long
def test_faults_of_clients_do_not_affect_replication(cluster: Cluster) -> None:
    leader = cluster.leader(TOPIC)
    with cluster.refused():
        assert not write(cluster, b"lost", timeout_s=0.3)
        assert cluster.leader(TOPIC) == leader
        cluster.wait_until_in_sync()
    with cluster.losing_replies(ApiKey.PRODUCE, times=1) as lost:
        assert write(cluster, b"value")
        assert lost.count == 1
    assert lost.count == 1
    start = time.monotonic()
    with cluster.slow(latency_ms=100):
        assert write(cluster, b"value")
    assert time.monotonic() - start >= 0.1
    cluster.cut()
    with cluster.brokers[leader].refused():
        assert not write(cluster, b"lost", timeout_s=0.3)


def test_invalid_calls(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match=r"there is no broker 4.*are 1, 2, 3"):
        cluster.kill(4)
    cluster.kill(2)
    with pytest.raises(BrokerError, match=r"broker 2 is not running.*start\(\)"):
        cluster.stop(2)
    with pytest.raises(BrokerError, match=r"call start\(\), or use `with Cluster\(\)`"):
        _ = Cluster().bootstrap_servers
    with pytest.raises(BrokerError, match=r"node.id: .*leave it out"):
        Cluster({"node.id": "7"})
    with pytest.raises(BrokerError, match=r"log.dirs=/data: .*with broker_settings"):
        Cluster({"log.dirs": "/data"})
    with pytest.raises(BrokerError, match=r"broker_settings has 4.*are 1, 2, 3"):
        Cluster(broker_settings={4: {}})
    with pytest.raises(BrokerError, match=r"(?s)the cluster did not start.*num.partitions: 'many'"):
        Cluster({"num.partitions": "many"}).start()


def test_an_unexpected_end_is_reported_once(cluster: Cluster) -> None:
    broker = cluster.brokers[2]
    subprocess.run(["kill", "-9", str(broker.pid)], check=True)
    wait_until(lambda: not broker.is_running, "the end of broker 2")
    with pytest.raises(BrokerError, match=r"broker 2 ended unexpectedly, with -9"):
        cluster.heal()
    cluster.wait_until_in_sync()


@pytest.mark.long
def test_a_folder_is_kept(tmp_path: Path) -> None:
    """A later cluster continues with it. Settings of single brokers, and two brokers."""
    for number in range(2):
        racks = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}}
        with Cluster(SETTINGS, brokers=2, broker_settings=racks, folder=tmp_path) as cluster:
            if number == 0:
                cluster.create_topic(TOPIC)
            assert write(cluster, b"%d" % number)
    assert (tmp_path / "broker-2" / "data" / f"{TOPIC}-0").is_dir()


SCRIPT = """
import os, sys
from penstock.testing import Cluster
cluster = Cluster()
cluster.start()
cluster.pause(2)
cluster.kill(3)
pids = [cluster.brokers[1].pid, cluster.brokers[2].pid, cluster._relays.pid]
print(cluster.folder, *pids, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


@pytest.mark.long
def test_it_never_outlives_the_tests() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        directory, *pids = tests.stdout.readline().split()
        assert all(is_alive(int(pid)) for pid in pids)
        tests.communicate()
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids), "the end of all processes")
    wait_until(lambda: not Path(directory).exists(), "the removal of the directory")
