"""`penstock` against Kafka's broker prints the same facts as Kafka's scripts (M4)."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.tools.commands import SETTINGS
from tests.support.client.cli import Cli
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka.once import once_per_run
from tests.support.kafka.tools import KafkaTools, Shell

NOW = 1_700_000_000_000
Facts = tuple[object, object]


def topics(cli: Cli, shell: Shell, directory: Path) -> Facts:
    return cli.json("topic", "list", "-q", "--internal"), shell("topics", "--list").lines


def description(cli: Cli, shell: Shell, directory: Path) -> Facts:
    [ours] = cli.json("topic", "describe", "orders")
    head, *rows = shell("topics", "--describe", "--topic", "orders").lines
    fields = dict(part.split(": ", 1) for part in head.split("\t"))
    partitions = [int(re.findall(r"Leader: (\d+)", row)[0]) for row in rows]
    configs = dict(part.split("=") for part in fields["Configs"].split(","))
    return (
        (
            ours["topic_id"],
            ours["partition_count"],
            ours["configs"],
            [item["leader"] for item in ours["partitions"]],
        ),
        (
            fields["TopicId"],
            int(fields["PartitionCount"]),
            # Kafka also prints settings that the topic inherits from the broker.
            {name: configs[name] for name in configs if name in ours["configs"]},
            partitions,
        ),
    )


def offsets(cli: Cli, shell: Shell, directory: Path) -> Facts:
    def theirs(time: str) -> list[str]:
        return shell("get-offsets", "--topic", "orders", "--time", time).lines

    def ours(time: str) -> list[str]:
        result = cli.json("offsets", "orders", "--time", time)
        return [f"{row['topic']}:{row['partition']}:{row['offset']}" for row in result]

    times = ("earliest", str(NOW + 2))
    return [ours(time) for time in times], [theirs(time) for time in times]


def group(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """C2: committed offset, log end offset, lag."""
    [ours] = cli.json("group", "describe", "billing")
    theirs = shell("consumer-groups", "--describe", "--group", "billing")
    columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    names = ("partition", "current_offset", "log_end_offset", "lag")
    return [[str(row[name]) for name in names] for row in ours["offsets"]], theirs.rows(*columns)


def reset(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """C5: dry runs of every reset option."""
    result: list[list[list[str]]] = []
    expected: list[list[list[str]]] = []
    for how in (
        ("--to-current",),
        ("--shift-by", "-1"),
        ("--to-datetime", "2023-11-14T22:13:20.001"),
        ("--by-duration", "PT1H"),
    ):
        ours = cli.json("group", "reset-offsets", "billing", "--topic", "orders:0", *how)
        result.append([[str(row["partition"]), str(row["new_offset"])] for row in ours])
        reset_offsets = ("--reset-offsets", "--group", "billing", "--topic", "orders:0", *how)
        theirs = shell("consumer-groups", *reset_offsets, "--dry-run")
        expected.append(theirs.rows("PARTITION", "NEW-OFFSET"))
    return result, expected


def settings(cli: Cli, shell: Shell, directory: Path) -> Facts:
    cli("config", "alter", "topic", "other", "-s", "retention.ms=5", "-s", "cleanup.policy=compact")
    cli("config", "alter", "topic", "other", "--append", "cleanup.policy=delete")
    [ours] = cli.json("config", "describe", "topic", "other")
    lines = shell("configs", "--describe", "--topic", "other").lines[1:]
    return (
        [f"{row['name']}={row['value']}" for row in ours["settings"]],
        sorted(line.split()[0] for line in lines),
    )


def rules(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """X3: the producer convenience option creates the same ACLs as Kafka's script."""
    shell("acls", "--add", "--allow-principal", "User:k", "--producer", "--topic", "t", "--force")
    ours = cli.json("acl", "add", "--allow-principal", "User:p", "--producer", "--topic", "t")
    theirs = cli.json("acl", "list", "--principal", "User:k")
    cli("acl", "remove", "--topic", "t", "--yes")
    remaining = [line for line in shell("acls", "--list").lines if "User:" in line]
    keys = ("resource", "name", "pattern", "host", "operation", "permission")

    def facts(some: list[dict[str, str]]) -> list[list[str]]:
        return sorted([row[key] for key in keys] for row in some)

    return (facts(ours), []), (facts(theirs), remaining)


def quotas_and_users(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """X2, X4."""
    cli("quota", "alter", "--user", "ann", "-s", "producer_byte_rate=1024")
    cli("user", "create", "ann", "--password-stdin", stdin="secret\n")
    described = shell("configs", "--describe", "--user", "ann").lines
    return (
        [
            "Quota configs for user-principal 'ann' are producer_byte_rate=1024.0",
            "SCRAM credential configs for user-principal 'ann' are SCRAM-SHA-512=iterations=4096",
        ],
        sorted(described),
    )


def transactions(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """P4."""
    ours = cli.json("txn", "list")
    columns = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
    names = ("transactional_id", "coordinator", "producer_id", "state")
    return (
        [[str(row[name]) for name in names] for row in ours],
        shell("transactions", "list").rows(*columns),
    )


def features(cli: Cli, shell: Shell, directory: Path) -> Facts:
    ours = {row["feature"]: row["finalized_level"] for row in cli.json("cluster", "features")}
    lines = shell("features", "describe").lines
    theirs = {}
    for line in lines:
        [name, level] = re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", line)[0]
        theirs[name] = level
    del ours["metadata.version"], theirs["metadata.version"]  # a number here, a name there
    return {name: str(level) for name, level in ours.items()}, theirs


def versions(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """E4."""
    [served] = cli.json("cluster", "versions")
    ours = {(api["api_key"], api["min_version"], api["max_version"]) for api in served["apis"]}
    text = shell("broker-api-versions").text
    theirs = set()
    for key, low, high in re.findall(r"\((\d+)\): (\d+)(?: to (\d+))?", text):
        theirs.add((int(key), int(low), int(high or low)))
    return sorted(ours), sorted(theirs)


def directories(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """S1: sizes of partitions."""
    [ours] = cli.json("log", "dirs", "--topic", "orders")
    text = shell("log-dirs", "--describe", "--topic-list", "orders").lines[-1]
    [theirs] = json.loads(text)["brokers"][0]["logDirs"]
    return (
        {f"{row['topic']}-{row['partition']}": row["size"] for row in ours["partitions"]},
        {row["partition"]: row["size"] for row in theirs["partitions"]},
    )


def plan(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """R8: Kafka's script accepts our plan and reports it as complete."""
    path = directory / "plan.json"
    cli("log", "move", "generate", "orders", "-o", str(path))
    cli("log", "move", "execute", str(path), "--yes", "--wait")
    states = [row["state"] for row in cli.json("log", "move", "verify", str(path))]
    verified = shell("reassign-partitions", "--reassignment-json-file", str(path), "--verify").text
    theirs = re.findall(r"Reassignment of partition orders-\d is (completed)", verified)
    return states, [word.removesuffix("d") for word in theirs]


def quorum(cli: Cli, shell: Shell, directory: Path) -> Facts:
    """The KRaft quorum, which our broker does not have."""
    result = cli.json("cluster", "quorum")
    return (result["leader_id"], [row["replica_id"] for row in result["voters"]]), (1, [1])


CHECKS: dict[str, Callable[[Cli, Shell, Path], Facts]] = {
    check.__name__: check
    for check in (
        *(topics, description, offsets, group, reset, settings, rules, quotas_and_users),
        *(transactions, features, versions, directories, plan, quorum),
    )
}


def prepare(cli: Cli, bootstrap: str) -> None:
    """Two topics, one of them with records, a group and a transactional id."""
    cli("topic", "create", "orders", "-p", "2", "-r", "1", "-c", "retention.ms=-1")
    cli("topic", "create", "other")
    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer(quiet)
    for number in range(6):
        producer.produce("orders", b"%d" % number, partition=number % 2, timestamp=NOW + number)
    assert producer.flush(20) == 0
    consumer = Consumer({**quiet, "group.id": "billing"})
    offsets = [TopicPartition("orders", 0, 2), TopicPartition("orders", 1, 3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    writer = Producer({**quiet, "transactional.id": "tx"})
    writer.init_transactions(20)
    writer.begin_transaction()
    writer.produce("other", b"x")
    writer.commit_transaction(20)


@pytest.fixture(scope="session")
def facts(
    kafka_parts: KafkaParts, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Facts | str]:
    """The facts of our CLI and of Kafka's scripts, or the failure of either."""

    def collect(directory: Path) -> dict[str, Facts | str]:
        settings = {
            **SETTINGS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        result: dict[str, Facts | str] = {}
        with KafkaBroker(kafka_parts, directory, settings) as kafka:
            cli, shell = Cli(kafka.bootstrap), Shell(tools, kafka.bootstrap)
            prepare(cli, kafka.bootstrap)
            for name, check in CHECKS.items():
                try:
                    result[name] = check(cli, shell, directory)
                except Exception as error:  # noqa: BLE001 - reported by that test
                    result[name] = f"{type(error).__name__}: {error}"
        return result

    return once_per_run(tmp_path_factory, "our-cli", collect)


@pytest.mark.parametrize("name", CHECKS)
def test_both_print_the_same_facts(facts: dict[str, Facts | str], name: str) -> None:
    """M4."""
    result = facts[name]
    assert not isinstance(result, str), result
    ours, theirs = result
    assert ours == theirs
