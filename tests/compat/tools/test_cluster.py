"""kafka-broker-api-versions.sh and other tools that look at the whole cluster (M4)."""

import re

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api_key import ApiKey
from tests.support.broker.process import PenstockBroker
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.tools import MAIN_CLASSES, Shell

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def _advertised(shell: Shell) -> dict[int, tuple[int, int]]:
    """Returns the versions of each API that the tool prints."""
    head, *apis, end = shell("broker-api-versions").lines
    assert head == f"{shell.bootstrap} (id: 1 rack: null isFenced: false) -> ("
    assert end == ")"
    advertised: dict[int, tuple[int, int]] = {}
    for line in apis:
        match = re.fullmatch(r"\w+\((\d+)\): (?:(UNSUPPORTED)|(\d+)(?: to (\d+))? \[.*\]),?", line)
        assert match is not None, line
        key, unsupported, lowest, highest = match.groups()
        if not unsupported:
            assert "[usable: " in line  # a version that Kafka's client supports exists
            advertised[int(key)] = (int(lowest), int(highest or lowest))
    return advertised


def test_the_advertised_apis_are_those_of_the_handler_table(shell: Shell, name: str) -> None:
    """E4: exactly the supported APIs are advertised, with their versions.

    Telemetry is advertised only while a subscription exists, and APIs between brokers only by
    brokers that share a metadata store.
    """
    table = {
        key: (served.min_version, served.max_version)
        for key, served in HANDLERS.items()
        if key not in CLUSTER_APIS
    }
    assert _advertised(shell) == {key: table[key] for key in table.keys() - TELEMETRY}
    shell("client-metrics", "--alter", "--name", name, "--metrics", "", "--interval", "60000")
    try:
        assert _advertised(shell) == table
    finally:
        shell("client-metrics", "--delete", "--name", name)


def test_a_tool_prints_the_same_in_its_own_process(kafka_parts: KafkaParts, shell: Shell) -> None:
    """Its output equals that in the JVM that the tests share."""
    tool = "broker-api-versions"
    alone = kafka_parts.run(MAIN_CLASSES[tool], "--bootstrap-server", shell.bootstrap)
    assert alone.stdout == shell(tool).out


def test_the_cluster_and_its_brokers_are_shown(shell: Shell, broker: PenstockBroker) -> None:
    [line] = shell("cluster", "cluster-id").lines
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", line)
    head, row = shell("cluster", "list-endpoints").lines
    assert head.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    host, port = broker.bootstrap.split(":")
    assert row.split() == ["1", host, port, "null", "unfenced", "broker"]


def test_finalized_features_are_within_the_supported_range(shell: Shell) -> None:
    lines = shell("features", "describe").lines
    result = [
        re.match(
            r"Feature: (\S+)\s+SupportedMinVersion: (\d+)\s+SupportedMaxVersion: (\d+)"
            r"\s+FinalizedVersionLevel: (\d+)\s+Epoch: \d+",
            line,
        )
        for line in lines
    ]
    assert all(result), lines
    names = {item[1] for item in result if item}
    assert {"group.version", "transaction.version"} <= names
    for entry in result:
        assert entry is not None
        assert int(entry[2]) <= int(entry[4]) <= int(entry[3])


def test_the_producers_of_a_partition_are_described(shell: Shell, name: str) -> None:
    """P3: an idempotent producer's last sequence is that of its last record."""
    shell("topics", "--create", "--topic", name, "--partitions", "1")
    shell("console-producer", "--topic", name, stdin="a\nb\nc\n")
    described = ("transactions", "describe-producers", "--topic", name, "--partition", "0")
    head, row = (line.split() for line in shell(*described).lines)
    assert head[:4] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"]
    assert row[1:4] == ["0", "-1", "2"]
    assert row[5] == "None"


def test_unsupported_apis_are_an_error(shell: Shell) -> None:
    """E4."""
    refused = shell.attempt("share-groups", "--describe", "--group", "none")
    assert "The node does not support SHARE_GROUP_DESCRIBE" in refused.err
