"""kafka-leader-election.sh, and kafka-topics.sh while brokers are down (R5, R8, M4)."""

import json
from pathlib import Path

import pytest

from penstock.client import Producer
from tests.support.cluster.processes import ClusterView, ProcessCluster
from tests.support.kafka.tools import Shell


def shown(shell: Shell, condition: str) -> set[str]:
    """Returns the partitions that `kafka-topics.sh --describe` lists with a filter."""
    lines = shell("topics", "--describe", f"--{condition}-partitions").lines
    fields = [dict(part.split(": ", 1) for part in line.split("\t")[:4]) for line in lines]
    return {f"{field['Topic']}-{field['Partition']}" for field in fields}


def test_partitions_are_shown_and_led_as_brokers_end_and_return(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, tmp_path: Path
) -> None:
    """Every filter, and elections for one partition, for a file, and for all partitions."""
    view.create_topic("wide", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    view.create_topic("pair", (1, 2), configs={"min.insync.replicas": "1"})
    view.create_topic("alone", (1,), configs={"min.insync.replicas": "1"})
    view.create_topic("strict", (1, 2), configs={"min.insync.replicas": "2"})
    wide = {"wide-0", "wide-1", "wide-2"}
    ours = {*wide, "pair-0", "alone-0", "strict-0"}

    def wait_for(**expected: set[str]) -> None:
        """Waits until each filter shows these partitions: the tool may use any broker."""

        def is_shown() -> bool:
            return all(
                shown(shell, condition.replace("_", "-")) & ours == partitions
                for condition, partitions in expected.items()
            )

        view.wait_until(is_shown, f"partitions {expected}")

    wait_for(
        under_replicated=set(),
        under_min_isr=set(),
        at_min_isr={"alone-0", "strict-0"},
        unavailable=set(),
    )
    cluster.nodes[1].kill()
    wait_for(
        under_replicated={
            *wide,
            "pair-0",
            "strict-0",
        },  # the only replica of a partition stays in its ISR
        under_min_isr={"alone-0", "strict-0"},
        at_min_isr={*wide, "pair-0", "alone-0"},
        unavailable={"alone-0"},
    )
    described = shell("topics", "--describe", "--topic", "strict").lines[-1]
    assert "\tIsr: 2\tElr: 1\tLastKnownElr:" in described
    view.wait_until(lambda: view.leaders("wide")[0] not in (None, 1), "another leader")
    refused = shell.attempt(
        "leader-election", "--election-type", "preferred", "--topic", "wide", "--partition", "0"
    )
    assert refused.exit == 1
    assert "PreferredLeaderNotAvailableException" in refused.text

    cluster.start()
    view.wait_until(lambda: all(map(view.is_in_sync, ("wide", "pair", "alone"))), "all in sync")
    assert view.leaders("alone") == {0: 1}
    assert view.leaders("wide")[0] != 1
    assert view.leaders("pair") == {0: 2}
    one_partition = ("--topic", "wide", "--partition", "0")
    assert shell("leader-election", "--election-type", "preferred", *one_partition).lines == [
        "Successfully completed leader election (PREFERRED) for partitions wide-0"
    ]
    view.wait_for_leader("wide", 0, 1)
    assert view.leaders("pair") == {0: 2}, "no election was requested"
    election_file = tmp_path / "elections.json"
    partitions = [{"topic": "pair", "partition": 0}, {"topic": "wide", "partition": 0}]
    election_file.write_text(json.dumps({"partitions": partitions}))
    by_file = shell(
        *("leader-election", "--election-type", "preferred"),
        *("--path-to-json-file", str(election_file)),
    )
    assert by_file.lines == [
        "Successfully completed leader election (PREFERRED) for partitions pair-0",
        "Valid replica already elected for partitions wide-0",
    ]
    view.wait_for_leader("pair", 0, 1)

    cluster.nodes[2].stop()
    view.wait_until(lambda: view.leaders("wide")[1] not in (None, 2), "another leader")
    cluster.start()
    view.wait_until(lambda: view.is_in_sync("wide"), "all in sync")
    every = shell("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    [line] = every.lines
    assert line.startswith("Successfully completed leader election (PREFERRED) for partitions ")
    assert "wide-1" in line
    view.wait_until(lambda: view.leaders("wide") == {0: 1, 1: 2, 2: 3}, "the preferred leaders")


@pytest.mark.long
def test_an_unclean_election_gives_up_the_records_of_the_last_leader(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, name: str
) -> None:
    """The old leader truncates its log to that of the new one when it returns."""
    view.create_topic(name, (2, 3), configs={"min.insync.replicas": "1"})
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send(name, b"on both").result(60)
        cluster.nodes[3].kill()
        view.wait_until(lambda: view.partition(name).isr == (2,), "the follower leaves the ISR")
        producer.send(name, b"on one").result(60)
    cluster.nodes[2].kill()
    cluster.nodes[3].start()
    view.wait_until(lambda: view.leaders(name) == {0: None}, "no leader")
    assert f"{name}-0" in shown(shell, "unavailable")
    one_partition = ("--topic", name, "--partition", "0")
    refused = shell.attempt("leader-election", "--election-type", "preferred", *one_partition)
    assert refused.exit == 1
    assert view.leaders(name) == {0: None}
    assert shell("leader-election", "--election-type", "unclean", *one_partition).lines == [
        f"Successfully completed leader election (UNCLEAN) for partitions {name}-0"
    ]
    view.wait_for_leader(name, 0, 3)
    assert shell("get-offsets", "--topic", name).lines == [f"{name}:0:1"]
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send(name, b"on the new leader").result(60)
    cluster.start()
    view.wait_until(lambda: view.is_in_sync(name), "both in sync")
    logs = []
    for broker_id in (2, 3):
        directory = cluster.replica_directory(broker_id, name, 0)
        assert directory is not None
        logs.append((directory / ("0" * 20 + ".log")).read_bytes())
    assert logs[0] == logs[1]
    assert b"on the new leader" in logs[0]
    assert b"on one" not in logs[0]
