"""kafka-consumer-groups.sh and kafka-groups.sh against our broker (M4, C2, C3)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka.broker import wait_until
from tests.support.kafka.tools import Shell

RECORDS = 6
MEMBERS = ("by-name", "by-regex")
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
NEW = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")


@pytest.fixture
def topic(shell: Shell, name: str) -> str:
    """A topic with `RECORDS` records in each of its two partitions."""
    shell("topics", "--create", "--topic", name, "--partitions", "2")
    producer = Producer({"bootstrap.servers": shell.bootstrap})
    for number in range(2 * RECORDS):
        producer.produce(name, b"value", partition=number % 2)
    producer.flush()
    return name


@pytest.fixture
def group(shell: Shell, topic: str, name: str) -> str:
    """A group without members that has committed the end of the topic."""
    reset = ("consumer-groups", "--reset-offsets", "--group", name, "--topic", topic)
    shell(*reset, "--to-latest", "--execute")
    return name


@pytest.fixture
def member(shell: Shell, topic: str, name: str) -> Iterator[str]:
    """A group with one member, which has read all of the topic and committed it."""
    consumer = Consumer(
        {
            "bootstrap.servers": shell.bootstrap,
            "group.id": name,
            "group.instance.id": "instance-1",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    for _ in range(2 * RECORDS):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
    consumer.commit(asynchronous=False)
    yield name
    consumer.close()


@pytest.fixture
def members(shell: Shell, topic: str, name: str) -> Iterator[list[Consumer]]:
    """Members of a consumer-protocol group with one partition each, which have read all records.

    The second subscribes with a regular expression. Both are static: without an instance id, the
    tool prints an empty cell in the middle of a row.
    """
    settings = {
        "bootstrap.servers": shell.bootstrap,
        "group.id": name,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    both = [
        Consumer({**settings, "client.id": member, "group.instance.id": f"{member}-1"})
        for member in MEMBERS
    ]
    both[0].subscribe([topic])
    both[1].subscribe([f"^{topic[:-1]}.$"])
    try:
        wait_until(lambda: all(_owns_one(item) for item in both), "one partition for each")
        for element in both:
            [place] = element.assignment()
            read = TopicPartition(topic, place.partition, RECORDS, leader_epoch=0)
            element.commit(offsets=[read], asynchronous=False)
        yield both
    finally:
        for entry in both:
            entry.close()


def _owns_one(consumer: Consumer) -> bool:
    message = consumer.poll(0.05)
    assert message is None or message.error() is None
    return len(consumer.assignment()) == 1


def test_a_group_with_a_member_is_described(shell: Shell, topic: str, member: str) -> None:
    describe = ("consumer-groups", "--describe", "--group", member)
    assert shell(*describe).rows(*OFFSETS, "HOST", "CLIENT-ID") == [
        [member, topic, partition, "6", "6", "0", "/127.0.0.1", "reader"] for partition in "01"
    ]
    members = shell(*describe, "--members", "--verbose")
    columns = ("GROUP", "GROUP-INSTANCE-ID", "CLIENT-ID", "#PARTITIONS", "CURRENT-ASSIGNMENT")
    assert members.rows(*columns) == [[member, "instance-1", "reader", "2", f"{topic}:0,1"]]
    state = shell(*describe, "--state").lines[1].split()
    assert state[0] == member
    assert state[-3:] == ["range", "Stable", "1"]
    stable = shell("consumer-groups", "--list", "--state", "stable")
    assert [member, "Stable"] in stable.rows("GROUP", "STATE")
    listed = shell("groups", "--list", "--protocol", "consumer")
    assert [member, "Classic", "consumer"] in listed.rows("GROUP", "TYPE", "PROTOCOL")


def test_a_group_with_a_member_cannot_be_changed(shell: Shell, topic: str, member: str) -> None:
    deleted = shell("consumer-groups", "--delete", "--group", member)
    assert "GroupNotEmptyException" in deleted.text
    reset = ("consumer-groups", "--reset-offsets", "--group", member, "--topic", topic)
    refused = shell.attempt(*reset, "--to-earliest", "--execute")
    assert "can only be reset if the group" in refused.text
    assert member in shell("consumer-groups", "--list").lines


def test_a_group_without_members_is_described(shell: Shell, topic: str, group: str) -> None:
    described = shell("consumer-groups", "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in described.err
    assert described.rows(*OFFSETS, "CONSUMER-ID") == [
        [group, topic, partition, "6", "6", "0", "-"] for partition in "01"
    ]
    assert group in shell("consumer-groups", "--list").lines
    unknown = shell.attempt("consumer-groups", "--describe", "--group", "missing")
    assert "GroupIdNotFoundException: Group missing not found." in unknown.out


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-offset", "4"], 4),
        (["--shift-by", "-2"], 4),
        (["--to-datetime", "2001-01-01T00:00:00.000"], 0),
        (["--by-duration", "PT0S"], 6),
        (["--to-current"], 6),
    ],
)
def test_offsets_are_reset(
    shell: Shell, topic: str, group: str, target: list[str], offset: int
) -> None:
    """C5, Q5."""
    reset = ("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, *target)
    new = [[group, topic, partition, str(offset)] for partition in "01"]
    assert shell(*reset, "--dry-run").rows(*NEW) == new
    assert _lags(shell, group) == [0, 0]
    assert shell(*reset, "--execute").rows(*NEW) == new
    assert _lags(shell, group) == [RECORDS - offset] * 2


def _lags(shell: Shell, group: str) -> list[int]:
    described = shell("consumer-groups", "--describe", "--group", group)
    return [int(lag) for [lag] in described.rows("LAG")]


def test_offsets_and_groups_are_deleted(shell: Shell, topic: str, group: str) -> None:
    offsets = ("consumer-groups", "--delete-offsets", "--group", group, "--topic")
    assert "Successful" in shell(*offsets, f"{topic}:0").out
    assert shell("consumer-groups", "--describe", "--group", group).rows("PARTITION") == [["1"]]
    deleted = shell("consumer-groups", "--delete", "--group", group)
    assert deleted.lines == [f"Deletion of requested consumer groups ('{group}') was successful."]
    assert group not in shell("consumer-groups", "--list").lines
    again = shell("consumer-groups", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in again.text


def test_a_consumer_protocol_group_is_described(
    shell: Shell, topic: str, name: str, members: list[Consumer]
) -> None:
    """C3: KIP-848."""
    named = zip(MEMBERS, members, strict=True)
    owned = {item: str(consumer.assignment()[0].partition) for item, consumer in named}
    describe = ("consumer-groups", "--describe", "--group", name)
    offsets = shell(*describe, "--offsets", "--verbose")
    assert offsets.rows(*OFFSETS, "HOST", "CLIENT-ID", "LEADER-EPOCH") == sorted(
        [name, topic, partition, "6", "6", "0", "/127.0.0.1", item, "0"]
        for item, partition in owned.items()
    )
    state = shell(*describe, "--state", "--verbose").lines[1].split()
    *_, strategy, state_name, group_epoch, target_epoch, count = state
    assert (strategy, state_name, count) == ("uniform", "Stable", "2")
    assert group_epoch == target_epoch

    columns = ("CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH")
    assignments = ("CURRENT-ASSIGNMENT", "TARGET-ASSIGNMENT")
    described = shell(*describe, "--members", "--verbose")
    assert described.rows(*columns) == [
        [member, "1", group_epoch, group_epoch] for member in MEMBERS
    ]
    assert described.rows(*assignments) == sorted(
        [f"{topic}:{partition}"] * 2 for partition in owned.values()
    )
    brief = shell(*describe, "--members")
    assert brief.rows("CLIENT-ID", "GROUP-INSTANCE-ID") == [
        [member, f"{member}-1"] for member in MEMBERS
    ]


def test_groups_are_listed_by_their_type(shell: Shell, name: str, members: list[Consumer]) -> None:
    """C3."""
    del members
    listed = ("consumer-groups", "--list", "--type")
    assert [name, "Consumer"] in shell(*listed, "consumer").rows("GROUP", "TYPE")
    assert [name] not in shell(*listed, "classic").rows("GROUP")
    both = shell(*listed, "consumer", "--state", "stable,empty")
    assert [name, "Consumer", "Stable"] in both.rows("GROUP", "TYPE", "STATE")
    groups = ("groups", "--list")
    columns = ("GROUP", "TYPE", "PROTOCOL")
    for options in ([], ["--group-type", "consumer"], ["--protocol", "consumer"], ["--consumer"]):
        assert [name, "Consumer", "consumer"] in shell(*groups, *options).rows(*columns)
    for options in (["--group-type", "classic"], ["--share"]):
        assert [name] not in shell(*groups, *options).rows("GROUP")


def test_a_consumer_protocol_group_with_members_cannot_be_changed(
    shell: Shell, topic: str, name: str, members: list[Consumer]
) -> None:
    del members
    deleted = shell("consumer-groups", "--delete", "--group", name)
    assert "GroupNotEmptyException" in deleted.text
    of_topic = ("--group", name, "--topic", topic)
    refused = shell("consumer-groups", "--reset-offsets", *of_topic, "--to-earliest", "--execute")
    assert "can only be reset if the group" in refused.text
    rejected = shell("consumer-groups", "--delete-offsets", *of_topic)
    assert rejected.text.count("GroupSubscribedToTopicException") == 2
    assert _lags(shell, name) == [0, 0]


def test_an_empty_consumer_protocol_group_is_reset_and_deleted(
    shell: Shell, topic: str, name: str, tmp_path: Path
) -> None:
    """C3, C5, Q5: its offsets are reset by each option and deleted, then the group."""
    read = ("--max-messages", str(2 * RECORDS), "--from-beginning")
    protocol = ("--command-property", "group.protocol=consumer")
    shell("console-consumer", "--topic", topic, "--group", name, *protocol, *read)
    state = shell("consumer-groups", "--describe", "--group", name, "--state").lines[-1].split()
    assert state[-3:] == ["uniform", "Empty", "0"]

    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,3\n{topic},1,3\n")
    of_topic = ("--group", name, "--topic", topic)
    for target, offset in (
        (["--to-earliest"], 0),
        (["--shift-by", "5"], 5),
        (["--to-current"], 5),
        (["--to-offset", "99"], 6),
        (["--to-datetime", "2001-01-01T00:00:00.000"], 0),
        (["--by-duration", "PT0S"], 6),
        (["--from-file", str(plan)], 3),
        (["--to-latest"], 6),
    ):
        reset = shell("consumer-groups", "--reset-offsets", *of_topic, *target, "--execute")
        assert reset.rows(*NEW) == [[name, topic, number, str(offset)] for number in "01"]
        assert _lags(shell, name) == [RECORDS - offset] * 2

    assert "Successful" in shell("consumer-groups", "--delete-offsets", *of_topic[:3], topic).out
    assert "was successful" in shell("consumer-groups", "--delete", "--group", name).out
    assert name not in shell("consumer-groups", "--list").lines
