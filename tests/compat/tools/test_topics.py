"""kafka-topics.sh against our broker (M4)."""

import re

import pytest

from tests.support.kafka.tools import Shell


def test_a_topic_is_created_described_grown_and_deleted(shell: Shell, name: str) -> None:
    """M1, M4: partitions can be added, never removed."""
    create = shell(
        "topics", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "1"
    )
    assert create.lines == [f"Created topic {name}."]
    assert name in shell("topics", "--list").lines

    head, *partitions = shell("topics", "--describe", "--topic", name).lines
    assert re.fullmatch(
        rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs:",
        head,
    )
    assert partitions == [_partition(name, 0), _partition(name, 1)]

    assert shell("topics", "--alter", "--topic", name, "--partitions", "4").text == ""
    assert shell("topics", "--describe", "--topic", name).lines[1:] == [
        _partition(name, number) for number in range(4)
    ]
    for count in ("3", "4"):
        refused = shell.attempt("topics", "--alter", "--topic", name, "--partitions", count)
        assert refused.exit == 1
        assert "InvalidPartitionsException" in refused.err
        assert f"already has 4 partitions, and {count} is no increase" in refused.out

    assert shell("topics", "--delete", "--topic", name).text == ""
    assert name not in shell("topics", "--list").lines
    again = shell.attempt("topics", "--delete", "--topic", name)
    assert (again.exit, again.lines) == (
        1,
        [f"Error while executing topic command : Topic '{name}' does not exist as expected"],
    )
    assert shell("topics", "--delete", "--topic", name, "--if-exists").text == ""


def _partition(topic: str, number: int) -> str:
    return (
        f"Topic: {topic}\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:"
    )


def test_a_description_shows_the_settings_of_the_topic(shell: Shell, name: str) -> None:
    settings = ("cleanup.policy=compact,delete", "retention.ms=60000")
    options = [option for setting in settings for option in ("--config", setting)]
    shell("topics", "--create", "--topic", name, *options)
    head, *partitions = shell("topics", "--describe", "--topic", name).lines
    assert head.endswith(f"\tConfigs: {','.join(settings)}")
    assert len(partitions) == 2  # num.partitions
    overridden = shell("topics", "--describe", "--topics-with-overrides").lines
    assert head in overridden


def test_a_topic_is_described_by_its_id(shell: Shell, name: str) -> None:
    shell("topics", "--create", "--topic", name)
    by_name = shell("topics", "--describe", "--topic", name).lines
    match = re.search(r"TopicId: (\S+)", by_name[0])
    assert match is not None
    by_id = shell("topics", "--describe", "--topic-id", match[1]).lines
    assert by_id[0] == by_name[0]
    assert len(by_id) == len(by_name)


def test_a_topic_is_created_with_a_replica_assignment(shell: Shell, name: str) -> None:
    shell("topics", "--create", "--topic", name, "--replica-assignment", "1,1,1")
    assert len(shell("topics", "--describe", "--topic", name).lines) == 1 + 3
    refused = shell.attempt("topics", "--create", "--topic", "x", "--replica-assignment", "1,7")
    assert refused.exit == 1
    assert "InvalidReplicaAssignmentException" in refused.err
    assert "brokers that are not up, [7]" in refused.out


def test_filters_list_only_affected_partitions(shell: Shell, name: str) -> None:
    shell("topics", "--create", "--topic", name)
    for need in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert shell("topics", "--describe", "--topic", name, need).lines == []
    at_minimum = shell("topics", "--describe", "--topic", name, "--at-min-isr-partitions")
    assert at_minimum.lines == [_partition(name, 0), _partition(name, 1)]


def test_too_large_a_replication_factor_is_rejected(shell: Shell, name: str) -> None:
    """E1: the message contains the number of brokers and the remedy."""
    refused = shell.attempt("topics", "--create", "--topic", name, "--replication-factor", "3")
    assert refused.exit == 1
    assert "InvalidReplicationFactorException" in refused.err
    assert refused.lines == [
        "Error while executing topic command : replication factor 3 is larger than the 1 "
        "broker that is up: start more brokers, or use a replication factor of 1 or less"
    ]
    assert name not in shell("topics", "--list").lines


def test_creating_an_existing_topic_is_an_error(shell: Shell, name: str) -> None:
    shell("topics", "--create", "--topic", name)
    again = shell.attempt("topics", "--create", "--topic", name)
    assert (again.exit, again.lines) == (
        1,
        [f"Error while executing topic command : Topic '{name}' already exists."],
    )
    assert "TopicExistsException" in again.err
    assert shell("topics", "--create", "--topic", name, "--if-not-exists").text == ""


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("min.insync.replicas=0", "min.insync.replicas"),
        ("compression.type=zip", "compression.type"),
        ("no.such.setting=1", "no.such.setting"),
    ],
)
def test_an_invalid_config_is_rejected(shell: Shell, name: str, setting: str, reason: str) -> None:
    refused = shell.attempt("topics", "--create", "--topic", name, "--config", setting)
    assert refused.exit == 1
    assert reason in refused.out
    assert name not in shell("topics", "--list").lines


def test_an_invalid_topic_name_is_rejected(shell: Shell) -> None:
    refused = shell.attempt("topics", "--create", "--topic", "bad name!")
    assert refused.exit == 1
    assert "InvalidTopicException" in refused.err
    assert "'bad name!' has characters that are not allowed" in refused.out
