"""`penstock doctor --cluster` at three brokers with planted problems (E6, E7, E9)."""

import json
from typing import Any

import pytest

from penstock.client import Admin
from penstock.client.admin.model_topics import NewTopic
from penstock.testing import Cluster
from tests.support.client.cli import Cli

STEPS = [
    *("brokers", "metadata", "replicas", "redundancy", "balance", "disks"),
    *("settings", "versions", "clocks", "network"),
]


def examine(cluster: Cluster, *options: str, status: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Returns the results by step. The round trips depend on the machine: they may be a warning."""
    cli = Cli(cluster.bootstrap_servers)
    result = cli.attempt("doctor", "--cluster", "--json", *options)
    assert result.exit_code == status, result.output
    steps: dict[str, list[dict[str, Any]]] = {}
    for step in json.loads(result.stdout)["steps"]:
        steps.setdefault(step["step"], []).append(step)
    assert list(steps) == STEPS
    return steps


def problems(steps: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """Returns what is wrong, each with its remedy, by step."""
    return {
        name: [step["text"] for step in results if step["todo"]]
        for name, results in steps.items()
        if name != "network" and any(step["todo"] for step in results)
    }


def test_a_cluster_and_what_can_go_wrong() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        healthy = examine(cluster)
        assert problems(healthy) == {}
        assert "reached broker 1 at 127.0.0.1" in healthy["brokers"][0]["text"]
        assert "broker 3: " in healthy["network"][0]["text"]

        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert set(admin.list_topics()) == {"orders"}, "the temporary topic is gone"
            assignments = dict.fromkeys(range(8), (1, 2, 3))
            admin.create_topics([NewTopic("skewed", assignments=assignments)])
            admin.create_topics([NewTopic("single", assignments={0: (2,)})])
        cluster.wait_until_in_sync()
        risks = problems(examine(cluster, "--read-only"))
        assert risks["redundancy"] == ["one replica only: single"]
        [leaders, *_] = risks["balance"]
        assert leaders.startswith("leaders are uneven: broker 1 has 9")

        cluster.kill(2)
        cluster.leader("orders", 0)
        failed = problems(examine(cluster, "--read-only", status=1))
        assert failed["replicas"][0] == "no leader: single-0"
        assert "broker 2 is down and has replicas of 12 partitions" in failed["replicas"]
    assert "exclude" in Cli().refused("doctor", "--cluster", "--topic", "t", status=2)


@pytest.mark.long
def test_brokers_that_differ() -> None:
    """Broker 2 advertises a name that does not exist, and broker 3 has other settings."""
    settings = {
        2: {"advertised.listeners": "PLAINTEXT://broker2.invalid:9092"},
        3: {"min.insync.replicas": "1", "message.max.bytes": "2000000"},
    }
    with Cluster(broker_settings=settings) as cluster:
        results = problems(examine(cluster, "--read-only", status=1))
    unreachable, *local = results["brokers"]
    assert "broker 2 was found through" in unreachable
    assert "broker2.invalid" in unreachable
    assert [text.split(",")[0] for text in local] == [
        "broker 1 advertises 127.0.0.1",
        "broker 3 advertises 127.0.0.1",
    ]
    assert results["settings"] == [
        "min.insync.replicas differs: 2 on broker 1, 1 on broker 3",
        "message.max.bytes differs: 1048588 on broker 1, 2000000 on broker 3",
    ]
