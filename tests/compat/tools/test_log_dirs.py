"""kafka-log-dirs.sh, kafka-reassign-partitions.sh and kafka-leader-election.sh (M4, S1, R8)."""

import json
from pathlib import Path

import pytest

from tests.support.kafka.broker import wait_until
from tests.support.kafka.tools import Shell

TITLES = ("Current partition replica assignment", "Proposed partition reassignment configuration")


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    shell("topics", "--create", "--topic", name, "--partitions", "2")
    lines = "".join(f"key-{number}\tvalue-{number}\n" for number in range(100))
    shell("console-producer", "--topic", name, "--reader-property", "parse.key=true", stdin=lines)
    return name


def _partition_directories(shell: Shell, topic: str) -> dict[str, Path]:
    """Returns the log directory of each partition, which must have records and one replica."""
    first, second, described = shell("log-dirs", "--describe", "--topic-list", topic).lines
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    [broker] = json.loads(described)["brokers"]
    assert broker["broker"] == 1
    result: dict[str, Path] = {}
    for directory in broker["logDirs"]:
        assert directory["error"] is None
        for partition in directory["partitions"]:
            if partition["isFuture"]:
                continue
            assert partition["partition"] not in result
            assert partition["offsetLag"] == 0
            segment = Path(directory["logDir"], partition["partition"], "0" * 20 + ".log")
            assert partition["size"] == segment.stat().st_size > 0
            result[partition["partition"]] = Path(directory["logDir"])
    return result


def test_every_log_directory_is_described(
    shell: Shell, topic: str, log_dirs: tuple[Path, Path]
) -> None:
    described = json.loads(shell("log-dirs", "--describe", "--broker-list", "1").lines[-1])
    assert described["version"] == 1
    assert {Path(row["logDir"]) for row in described["brokers"][0]["logDirs"]} == set(log_dirs)
    directories = _partition_directories(shell, topic)
    assert set(directories) == {f"{topic}-0", f"{topic}-1"}
    assert set(directories.values()) <= set(log_dirs)


def test_an_unknown_broker_is_an_error(shell: Shell) -> None:
    refused = shell.attempt("log-dirs", "--describe", "--broker-list", "7")
    assert refused.exit == 1
    assert "do not exist from --broker-list: 7" in refused.err


def test_a_partition_moves_to_the_other_log_directory(
    shell: Shell, topic: str, log_dirs: tuple[Path, Path], tmp_path: Path
) -> None:
    before = _partition_directories(shell, topic)
    [target] = set(log_dirs) - {before[f"{topic}-0"]}
    plan = _plan(tmp_path, topic, [1], str(target))
    started = shell("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert (
        f"Successfully started moving log directory to {target} for replica {topic}-0 with broker 1"
        in started.lines
    )
    finished = f"Reassignment of replica {topic}-0-1 completed successfully."

    def has_moved() -> bool:
        verify = shell("reassign-partitions", "--verify", "--reassignment-json-file", plan)
        assert f"Reassignment of partition {topic}-0 is completed." in verify.lines
        return finished in verify.lines

    wait_until(has_moved, "the move of a partition to another directory", 20)
    assert _partition_directories(shell, topic) == {**before, f"{topic}-0": target}
    assert not (before[f"{topic}-0"] / f"{topic}-0").exists()
    offsets = shell("get-offsets", "--topic", topic).lines
    assert sum(int(line.split(":")[2]) for line in offsets) == 100


def test_a_reassignment_plan_is_generated(shell: Shell, topic: str, tmp_path: Path) -> None:
    topics_file = tmp_path / "topics.json"
    topics_file.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    lines = shell(
        *("reassign-partitions", "--generate", "--broker-list", "1"),
        *("--topics-to-move-json-file", str(topics_file)),
    ).lines
    current, proposed = (json.loads(lines[lines.index(title) + 1]) for title in TITLES)
    assert [partition["replicas"] for partition in current["partitions"]] == [[1], [1]]
    assert {
        f"{topic}-{partition['partition']}": Path(partition["log_dirs"][0])
        for partition in current["partitions"]
    } == _partition_directories(shell, topic)
    assert [row["log_dirs"] for row in proposed["partitions"]] == [["any"], ["any"]]


def test_a_reassignment_to_the_same_replicas_completes(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    plan = ("--reassignment-json-file", _plan(tmp_path, topic, [1], "any"))
    started = shell("reassign-partitions", "--execute", *plan)
    assert f"Successfully started partition reassignment for {topic}-0" in started.lines
    assert shell("reassign-partitions", "--list").lines == ["No partition reassignments found."]
    cancelled = shell("reassign-partitions", "--cancel", *plan)
    assert "None of the specified partition reassignments are active." in cancelled.lines


def test_a_reassignment_to_an_unknown_broker_is_rejected(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    """E1."""
    plan = _plan(tmp_path, topic, [1, 2], "any")
    refused = shell.attempt("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert (refused.exit, refused.lines[0]) == (1, "Error: Unknown broker id 2")


def _plan(directory: Path, topic: str, replicas: list[int], log_dir: str) -> str:
    partition = {
        "topic": topic,
        "partition": 0,
        "replicas": replicas,
        "log_dirs": [log_dir for _ in replicas],
    }
    plan = directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return str(plan)


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
def test_an_election_with_the_preferred_leader_does_nothing(
    shell: Shell, topic: str, kind: str
) -> None:
    partition_options = ("--topic", topic, "--partition", "0")
    assert shell("leader-election", "--election-type", kind, *partition_options).lines == [
        f"Valid replica already elected for partitions {topic}-0"
    ]
    every = shell("leader-election", "--election-type", kind, "--all-topic-partitions")
    assert every.text == ""
