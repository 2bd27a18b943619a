"""kafka-consumer-groups.sh and kafka-groups.sh against our broker (M4, C2, C3)."""

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.kafka_tools import Shell, ToolRun

RECORDS = 6
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")


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
    """A group without members that has read all of the topic."""
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


def _rows(run: ToolRun, columns: Sequence[str]) -> list[list[str]]:
    """The chosen columns of a table that a tool printed, after any remarks of the tool.

    Cells have no blanks in them.
    """
    table = [line.split() for line in run.lines]
    while columns[0] not in table[0]:
        del table[0]
    head, *rows = table
    places = [head.index(column) for column in columns]
    return sorted([row[place] for place in places] for row in rows)


def test_a_group_with_a_member(shell: Shell, topic: str, member: str) -> None:
    describe = ("consumer-groups", "--describe", "--group", member)
    assert _rows(shell(*describe), (*OFFSETS, "HOST", "CLIENT-ID")) == [
        [member, topic, partition, "6", "6", "0", "/127.0.0.1", "reader"] for partition in "01"
    ]
    members = shell(*describe, "--members", "--verbose")
    columns = ("GROUP", "GROUP-INSTANCE-ID", "CLIENT-ID", "#PARTITIONS", "CURRENT-ASSIGNMENT")
    assert _rows(members, columns) == [[member, "instance-1", "reader", "2", f"{topic}:0,1"]]
    state = shell(*describe, "--state").lines[1].split()
    assert state[0] == member
    assert state[-3:] == ["range", "Stable", "1"]
    assert [member, "Stable"] in _rows(
        shell("consumer-groups", "--list", "--state", "stable"), ("GROUP", "STATE")
    )
    assert [member, "Classic", "consumer"] in _rows(
        shell("groups", "--list", "--protocol", "consumer"), ("GROUP", "TYPE", "PROTOCOL")
    )


def test_a_group_with_a_member_is_not_changed(shell: Shell, topic: str, member: str) -> None:
    deleted = shell("consumer-groups", "--delete", "--group", member)
    assert "GroupNotEmptyException" in deleted.text
    reset = ("consumer-groups", "--reset-offsets", "--group", member, "--topic", topic)
    refused = shell.attempt(*reset, "--to-earliest", "--execute")
    assert "can only be reset if the group" in refused.text
    assert member in shell("consumer-groups", "--list").lines


def test_a_group_without_members(shell: Shell, topic: str, group: str) -> None:
    described = shell("consumer-groups", "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in described.err
    assert _rows(described, (*OFFSETS, "CONSUMER-ID")) == [
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
    columns = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    assert _rows(shell(*reset, "--dry-run"), columns) == new
    assert _lags(shell, group) == [0, 0]
    assert _rows(shell(*reset, "--execute"), columns) == new
    assert _lags(shell, group) == [RECORDS - offset] * 2


def _lags(shell: Shell, group: str) -> list[int]:
    described = shell("consumer-groups", "--describe", "--group", group)
    return [int(lag) for [lag] in _rows(described, ("LAG",))]


def test_offsets_and_groups_are_deleted(shell: Shell, topic: str, group: str) -> None:
    offsets = ("consumer-groups", "--delete-offsets", "--group", group, "--topic")
    assert "Successful" in shell(*offsets, f"{topic}:0").out
    assert _rows(shell("consumer-groups", "--describe", "--group", group), ("PARTITION",)) == [
        ["1"]
    ]
    deleted = shell("consumer-groups", "--delete", "--group", group)
    assert deleted.lines == [f"Deletion of requested consumer groups ('{group}') was successful."]
    assert group not in shell("consumer-groups", "--list").lines
    again = shell("consumer-groups", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in again.text
