"""`penstock cluster rebalance` at three brokers (R8)."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Admin, Producer
from penstock.client.admin.model_topics import NewTopic
from penstock.testing import Cluster
from tests.support.client.cli import Cli
from tests.support.coordinator.group_client import wait_until

PARTITIONS = 6
VALUE = bytes(100_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker 3 has two log directories."""
    base: Path = tmp_path_factory.mktemp("dirs")
    log_dirs = {3: {"log.dirs": f"{base / 'a'},{base / 'b'}"}}
    with Cluster(broker_settings=log_dirs) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cli(cluster: Cluster) -> Cli:
    return Cli(cluster.bootstrap_servers)


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """All of its replicas are on brokers 1 and 2, and broker 1 leads."""
    name = str(request.node.name)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assignments = dict.fromkeys(range(PARTITIONS), (1, 2))
        admin.create_topics([NewTopic(name, assignments=assignments)])
    cluster.wait_until_in_sync()
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(PARTITIONS):
            producer.send(name, VALUE, partition=number)
        producer.flush()
    yield name
    cluster.delete_topic(name)


def replicas(cluster: Cluster, topic: str) -> dict[int, tuple[int, ...]]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        partitions = admin.describe_topics([topic])[topic].partitions
    return {partition.partition: partition.replicas for partition in partitions}


def test_leaders_and_disks(cluster: Cluster, cli: Cli, topic: str) -> None:
    plan = cli.json("cluster", "rebalance")
    assert not plan["executed"]
    assert [broker["leaders"] for broker in plan["brokers"]] == [PARTITIONS, 0, 0]
    assert [broker["leaders_after"] for broker in plan["brokers"]] == [2, 2, 2]
    assert plan["bytes"] >= 4 * len(VALUE)
    assert set(replicas(cluster, topic).values()) == {(1, 2)}, "nothing has changed"
    assert "--yes" in cli.refused("cluster", "rebalance", "--execute", status=2)

    limit = ("--throttle", "10000000")
    assert cli.json("cluster", "rebalance", "--execute", "--yes", *limit)["executed"]
    after = replicas(cluster, topic)
    leaders = {number: cluster.leader(topic, number) for number in after}
    assert leaders == {number: item[0] for number, item in after.items()}
    assert Counter(leaders.values()) == {1: 2, 2: 2, 3: 2}
    held = Counter(broker for item in after.values() for broker in item)
    assert held == {1: 4, 2: 4, 3: 4}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        directories = admin.describe_log_dirs([3])[3].values()
    assert [len(directory.replicas) for directory in directories] == [2, 2]
    assert not any(
        "throttled" in row["name"] for row in cli.json("config", "describe", "topic", topic)
    )

    again = cli.json("cluster", "rebalance", "--execute", "--yes")
    assert again["steps"] == []
    assert "nothing to do" in cli("cluster", "rebalance").output


def test_only_leaders(cluster: Cluster, cli: Cli, topic: str) -> None:
    cli("cluster", "rebalance", "--leaders-only", "--execute", "--yes")
    after = replicas(cluster, topic)
    assert {frozenset(item) for item in after.values()} == {frozenset({1, 2})}
    assert Counter(item[0] for item in after.values()) == {1: 3, 2: 3}


@pytest.mark.long
def test_cancel(cluster: Cluster, cli: Cli, topic: str) -> None:
    """It stops the moves of another process, which ends."""
    # A throttle does not limit the first fetch, which has up to 1 MiB of each partition.
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(40 * PARTITIONS):
            producer.send(topic, VALUE, partition=number % PARTITIONS).result(60)
    command = ("cluster", "rebalance", "--execute", "--yes", "--throttle", "10")
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *command, "-b", cluster.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as execution:
        # Not yet while only the order of replicas is changed, which ends at once.
        wait_until(lambda: any(row["adding"] for row in cli.json("log", "move", "list")))
        assert "rebalance --cancel" in cli.refused("cluster", "rebalance")
        assert cli.json("cluster", "rebalance", "--cancel", "--yes")
        _, errors = execution.communicate(timeout=60)
    assert execution.returncode == 1
    assert b"somebody cancelled it" in errors
    assert {frozenset(item) for item in replicas(cluster, topic).values()} == {frozenset({1, 2})}
    assert "nothing moves" in cli("cluster", "rebalance", "--cancel").output
    assert "exclude" in cli.refused("cluster", "rebalance", "--cancel", "--execute", status=2)
