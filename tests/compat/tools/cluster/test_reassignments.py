"""kafka-reassign-partitions.sh on a cluster: moves, throttles, progress, cancellation (R8)."""

import json
from pathlib import Path

import pytest

from penstock.client import Producer
from tests.support.cluster.processes import ClusterView, ProcessCluster
from tests.support.kafka.reassignments import LISTS, NO_THROTTLES, RATES, Plan, throttles
from tests.support.kafka.tools import Shell

TITLES = ("Current partition replica assignment", "Proposed partition reassignment configuration")
SLOW, FAST = "20000", "100000000"
"""Bytes per second: the copy of a partition takes a minute, or no time."""
RECORDS = 60


@pytest.fixture
def topic(cluster: ProcessCluster, view: ClusterView, name: str) -> str:
    """A topic with 1.2 MB in its only partition, on broker 1."""
    view.create_topic(name, (1,), configs={"min.insync.replicas": "1"})
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        sent = [producer.send(name, b"%020000d" % number) for number in range(RECORDS)]
        assert [future.result(60).offset for future in sent] == list(range(RECORDS))
    return name


def values(directory: Path) -> bytes:
    return (directory / ("0" * 20 + ".log")).read_bytes()


def test_a_generated_plan_is_executed(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, name: str, tmp_path: Path
) -> None:
    """--generate, --execute, --verify: the replicas that were moved away are removed from disk."""
    view.create_topic(name, (1,), (1,))
    topics_file = tmp_path / "topics.json"
    topics_file.write_text(json.dumps({"topics": [{"topic": name}], "version": 1}))
    lines = shell(
        *("reassign-partitions", "--generate", "--broker-list", "2,3"),
        *("--topics-to-move-json-file", str(topics_file)),
    ).lines
    current, proposed = (json.loads(lines[lines.index(title) + 1]) for title in TITLES)
    assert [partition["replicas"] for partition in current["partitions"]] == [[1], [1]]
    assert sorted(row["replicas"] for row in proposed["partitions"]) == [[2], [3]]

    plan = Plan(shell, tmp_path, {})
    plan.write(proposed["partitions"])
    started = plan("--execute").lines
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in started
    view.wait_until(lambda: not view.admin.list_partition_reassignments(), "the end of the moves")
    verified = plan("--verify").lines
    for row in proposed["partitions"]:
        number, [replica] = row["partition"], row["replicas"]
        assert f"Reassignment of partition {name}-{number} is completed." in verified
        assert view.partition(name, number).replicas == (replica,)
        view.wait_for_leader(name, number, replica)
        assert cluster.replica_directory(replica, name, number)
    view.wait_until(
        lambda: not any(cluster.replica_directory(1, name, number) for number in (0, 1)),
        "the removal of the old replicas",
    )


def test_a_throttled_move_shows_its_progress_and_ends_when_the_throttle_is_raised(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, topic: str, tmp_path: Path
) -> None:
    plan = Plan(shell, tmp_path, {(topic, 0): (2, 3)})
    started = plan("--execute", "--throttle", SLOW).lines
    assert f"The inter-broker throttle limit was set to {SLOW} B/s" in started
    assert any(line.startswith("Warning: You must run --verify") for line in started)
    assert throttles(shell, topic) == (
        {LISTS[0]: "0:1", LISTS[1]: "0:2,0:3"},
        dict.fromkeys((1, 2, 3), dict.fromkeys(RATES, SLOW)),
    )
    assert shell("reassign-partitions", "--list").lines == [
        "Current partition reassignments:",
        f"{topic}-0: replicas: 2,3,1. adding: 2,3. removing: 1.",
    ]
    in_progress = f"Reassignment of partition {topic}-0 is still in progress."
    assert in_progress in plan("--verify").lines
    assert view.partition(topic).leader == 1
    log = cluster.replica_directory(1, topic, 0)
    assert log is not None
    whole_log = values(log)
    view.wait_until(lambda: cluster.replica_directory(2, topic, 0) is not None, "a new replica")
    copy = cluster.replica_directory(2, topic, 0)
    assert copy is not None
    assert len(values(copy)) < len(whole_log)

    plan("--execute", "--additional", "--throttle", FAST)
    view.wait_until(lambda: not view.admin.list_partition_reassignments(), "the end of the move")
    assert throttles(shell, topic)[1] == dict.fromkeys((1, 2, 3), dict.fromkeys(RATES, FAST))
    verified = plan("--verify").lines
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    assert throttles(shell, topic) == NO_THROTTLES
    view.wait_for_leader(topic, 0, 2)
    assert values(copy) == whole_log
    view.wait_until(lambda: cluster.replica_directory(1, topic, 0) is None, "the old replica")


def test_a_move_is_cancelled(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, topic: str, tmp_path: Path
) -> None:
    """The partition has its old replicas, the new ones are removed, and so are the throttles."""
    plan = Plan(shell, tmp_path, {(topic, 0): (3,)})
    plan("--execute", "--throttle", SLOW)
    view.wait_until(lambda: cluster.replica_directory(3, topic, 0) is not None, "a new replica")
    again = shell.attempt(
        *("reassign-partitions", "--execute"),
        *("--reassignment-json-file", str(tmp_path / "plan.json")),
    )
    assert again.exit == 1
    assert "Cannot execute because there is an existing partition assignment." in again.out

    cancelled = plan("--cancel").lines
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert shell("reassign-partitions", "--list").lines == ["No partition reassignments found."]
    assert view.partition(topic).replicas == (1,)
    assert view.partition(topic).leader == 1
    assert throttles(shell, topic) == NO_THROTTLES
    view.wait_until(lambda: cluster.replica_directory(3, topic, 0) is None, "the new replica")
    offsets = shell("get-offsets", "--topic", topic).lines
    assert offsets == [f"{topic}:0:{RECORDS}"]
    idle = plan("--cancel").lines
    assert "None of the specified partition reassignments are active." in idle


def test_replicas_move_between_brokers_and_log_directories_at_once(
    shell: Shell,
    cluster: ProcessCluster,
    view: ClusterView,
    name: str,
    tmp_path: Path,
) -> None:
    """The log directories of a plan are those of its replicas, on any broker."""
    view.create_topic(name, (1, 2), configs={"min.insync.replicas": "1"})
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send(name, b"value").result(60)
    present = cluster.replica_directory(1, name, 0)
    assert present is not None
    [target] = set(cluster.log_dirs[1]) - {present.parent}
    new_home = cluster.log_dirs[3][1]
    plan = Plan(shell, tmp_path, {})
    log_dirs = [str(target), str(new_home)]
    plan.write([{"topic": name, "partition": 0, "replicas": [1, 3], "log_dirs": log_dirs}])
    started = plan("--execute").lines
    for broker_id, directory in ((1, target), (3, new_home)):
        assert (
            f"Successfully started moving log directory to {directory} for replica {name}-0 with "
            f"broker {broker_id}"
        ) in started

    def has_moved() -> bool:
        verified = plan("--verify").lines
        return {
            f"Reassignment of partition {name}-0 is completed.",
            f"Reassignment of replica {name}-0-1 completed successfully.",
            f"Reassignment of replica {name}-0-3 completed successfully.",
        } <= set(verified)

    view.wait_until(has_moved, "both moves")
    assert cluster.replica_directory(1, name, 0) == target / f"{name}-0"
    assert cluster.replica_directory(3, name, 0) == new_home / f"{name}-0"
    view.wait_until(lambda: cluster.replica_directory(2, name, 0) is None, "the old replica")
