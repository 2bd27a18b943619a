"""Kafka's tools for topics, log directories, settings and versions on a cluster (M1, M4)."""

import json
import re
from pathlib import Path

from penstock.broker.handlers.table import HANDLERS
from penstock.client import Producer
from penstock.client.errors import RecordTooLargeError
from tests.compat.tools.test_cluster import TELEMETRY
from tests.support.cluster.processes import ClusterView, ProcessCluster
from tests.support.kafka.tools import Shell


def test_a_topic_with_given_replicas_is_created_and_extended(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, name: str
) -> None:
    create = ("topics", "--create", "--topic", name, "--replica-assignment")
    assert shell(*create, "1:2,2:3,3:1").lines == [f"Created topic {name}."]
    view.wait_until(lambda: len(view.partitions(name)) == 3 and view.is_in_sync(name), "in sync")
    head, *rows = shell("topics", "--describe", "--topic", name).lines
    assert "PartitionCount: 3\tReplicationFactor: 2" in head
    matches = [re.search(r"Leader: (\d)\tReplicas: (\S+)\tIsr: (\S+)", row) for row in rows]
    assert [match and match.groups() for match in matches] == [
        ("1", "1,2", "1,2"),
        ("2", "2,3", "2,3"),
        ("3", "3,1", "3,1"),
    ]
    alter = ("topics", "--alter", "--topic", name, "--partitions", "5")
    shell(*alter, "--replica-assignment", "1:2,2:3,3:1,3:2,1:3")
    view.wait_until(lambda: len(view.partitions(name)) == 5 and view.is_in_sync(name), "in sync")
    assert [partition.replicas for partition in view.partitions(name)][3:] == [(3, 2), (1, 3)]
    assert cluster.replica_directory(2, name, 3)
    shell("topics", "--alter", "--topic", name, "--partitions", "6")
    view.wait_until(lambda: len(view.partitions(name)) == 6 and view.is_in_sync(name), "in sync")
    assert len(view.partition(name, 5).replicas) == 2
    refused = shell.attempt(*create, "1:7")
    assert refused.exit == 1

    shell("topics", "--delete", "--topic", name)
    view.wait_until(
        lambda: all(
            cluster.replica_directory(broker_id, name, number) is None
            for broker_id in cluster.nodes
            for number in range(6)
        ),
        "the removal of all replicas",
    )


def test_log_dirs_of_all_brokers_are_described(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, name: str
) -> None:
    view.create_topic(name, (1, 2), (2, 3))
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(2):
            producer.send(name, b"value", partition=number).result(60)
    _, second, described = shell("log-dirs", "--describe", "--topic-list", name).lines
    assert second == "Received log directory information from brokers 1,2,3"
    replicas: dict[tuple[int, str], int] = {}
    for broker in json.loads(described)["brokers"]:
        directories = {Path(row["logDir"]) for row in broker["logDirs"]}
        assert directories == set(cluster.log_dirs[broker["broker"]])
        for row in broker["logDirs"]:
            assert row["error"] is None
            for partition in row["partitions"]:
                segment = Path(row["logDir"], partition["partition"], "0" * 20 + ".log")
                assert partition["size"] == segment.stat().st_size > 0
                assert (partition["offsetLag"], partition["isFuture"]) == (0, False)
                replicas[broker["broker"], partition["partition"]] = partition["size"]
    assert set(replicas) == {
        (1, f"{name}-0"),
        (2, f"{name}-0"),
        (2, f"{name}-1"),
        (3, f"{name}-1"),
    }
    some = shell("log-dirs", "--describe", "--broker-list", "3,1").lines
    assert [row["broker"] for row in json.loads(some[-1])["brokers"]] == [1, 3]


def test_dynamic_settings_hold_for_one_broker_or_for_all(
    shell: Shell, cluster: ProcessCluster, view: ClusterView, name: str
) -> None:
    """A setting of a broker overrides that of all brokers, and both survive a restart."""
    view.create_topic(name, (1,), (2,), (3,), configs={"min.insync.replicas": "1"})
    setting = "message.max.bytes"

    def values() -> list[str]:
        lines = [
            line
            for number in ("1", "2", "3")
            for line in shell("configs", "--describe", "--broker", number, "--all").lines
        ]
        return [line.split()[0].partition("=")[2] for line in lines if line.startswith(setting)]

    def accepting_brokers() -> set[int]:
        """Returns the brokers that accept a record of 10 kB."""
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            sent = [producer.send(name, bytes(10_000), partition=number) for number in range(3)]
            errors = [future.exception(60) for future in sent]
        assert all(error is None or isinstance(error, RecordTooLargeError) for error in errors), (
            errors
        )
        return {number for number, error in enumerate(errors, 1) if error is None}

    def change(*entity: str) -> None:
        shell("configs", "--alter", *entity)

    assert values() == ["30000"] * 3
    change("--broker-defaults", "--add-config", f"{setting}=5000")
    change("--broker", "2", "--add-config", f"{setting}=20000")
    view.wait_until(lambda: values() == ["5000", "20000", "5000"], "the settings on all brokers")
    assert accepting_brokers() == {2}
    assert shell("configs", "--describe", "--broker-defaults").lines[1:] == [
        f"{setting}=5000 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{setting}=5000}}"
    ]
    cluster.nodes[2].stop()
    cluster.nodes[2].start()
    view.wait_for_leader(name, 1, 2)
    assert values() == ["5000", "20000", "5000"]
    assert accepting_brokers() == {2}
    change("--broker", "2", "--delete-config", setting)
    change("--broker-defaults", "--delete-config", setting)
    view.wait_until(lambda: values() == ["30000"] * 3, "the settings on all brokers")
    assert accepting_brokers() == {1, 2, 3}


def test_every_broker_advertises_the_same_versions(shell: Shell, cluster: ProcessCluster) -> None:
    """E4: those of the handler table, with the requests between brokers."""
    text = shell("broker-api-versions").out
    brokers = re.findall(
        r"(\S+) \(id: (\d) rack: one isFenced: false\) -> \((.*?)^\)",
        text,
        re.DOTALL | re.MULTILINE,
    )
    assert {int(broker_id) for _, broker_id, _ in brokers} == {1, 2, 3}
    assert {address for address, _, _ in brokers} == set(cluster.bootstrap.split(","))
    [apis] = {apis for _, _, apis in brokers}
    keys = {int(key) for key in re.findall(r"\((\d+)\): \d", apis)}
    assert keys == HANDLERS.keys() - TELEMETRY


def test_the_brokers_of_the_cluster_are_listed(shell: Shell, cluster: ProcessCluster) -> None:
    _, *rows = shell("cluster", "list-endpoints").lines
    addresses = [broker.bootstrap.split(":") for broker in cluster.nodes.values()]
    assert [row.split() for row in rows] == [
        [str(number), host, port, "one", "unfenced", "broker"]
        for number, (host, port) in enumerate(addresses, 1)
    ]
