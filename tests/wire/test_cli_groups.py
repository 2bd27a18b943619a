"""`penstock group` at our broker (C2, C3, C5)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.cli import Cli
from tests.support.coordinator.group_client import commit, find_group
from tests.support.coordinator.group_members import ClassicMember, ConsumerMember
from tests.support.protocol.requests import NOW, batch_of, make_topic, send_batch


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "log.retention.ms": "-1",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    """With a topic of two partitions: ten records a second apart, and none."""
    with broker.connect() as client:
        make_topic(client, "orders", 2)
        for number in range(10):
            send_batch(client, "orders", batch_of(b"v", timestamp=NOW + 1000 * number))
    return Cli(broker.bootstrap_servers)


def committed(
    client: WireClient, group: str, offsets: Mapping[tuple[str, int], int], member: str = ""
) -> None:
    find_group(client, group)
    epoch = 1 if member else -1
    codes = commit(client, group, offsets, member_id=member, epoch=epoch)
    assert set(codes) == {ErrorCode.NONE}


def new_offsets(cli: Cli, group: str, *arguments: str, topic: str = "orders") -> list[int]:
    """What a dry run says."""
    result = cli.json("group", "reset-offsets", group, "--topic", topic, *arguments)
    assert not any(row["executed"] for row in result)
    return [row["new_offset"] for row in result]


def test_a_group_without_members(cli: Cli, client: WireClient) -> None:
    """C2: committed offset, log end offset and lag."""
    committed(client, "empty", {("orders", 0): 4})
    assert ["empty", "Classic", "-", "Empty"] in cli.rows("group", "list")
    described = cli("group", "describe", "empty")
    assert described.stderr == "group empty has no active members; it is Empty\n"
    assert described.stdout.splitlines()[1].split() == [
        *("empty", "orders", "0", "4", "10", "6", "-", "-", "-")
    ]
    assert cli("group", "describe", "empty", "--members").stdout == ""
    [state] = cli.rows("group", "describe", "empty", "--state", "-v")
    assert (state[:3], state[-3:]) == (["empty", "Classic", "Empty"], ["0", "-", "-"])


def test_a_classic_group_with_a_member(cli: Cli, broker: RunningBroker, client: WireClient) -> None:
    """C2: who reads a partition, and from where."""
    with broker.connect(client_id="reader") as own:
        find_group(own, "active")
        member = ClassicMember(own, "active", ["orders"], instance="i1")
        member.joined({"orders": [0, 1]})
        committed(client, "active", {("orders", 0): 7}, member.member_id)
        [described] = cli.json("group", "describe", "active")
        assert (described["state"], described["assignor"]) == ("Stable", "range")
        assert described["coordinator"]["port"] == broker.address[1]
        [member_description] = described["members"]
        assert member_description["assignment"] == [
            {"topic": "orders", "partition": 0},
            {"topic": "orders", "partition": 1},
        ]
        first, second = described["offsets"]
        assert (first["current_offset"], first["log_end_offset"], first["lag"]) == (7, 10, 3)
        assert first["member_id"] == second["member_id"] == member.member_id
        assert (second["current_offset"], second["lag"]) == (None, None)
        assert first["client_id"] == "reader"
        [row] = cli.rows("group", "describe", "active", "--members", "-v")
        assert row[:3] == ["active", member.member_id, "i1"]
        assert row[-4:] == ["2", "-", "orders:0,1", "-"]

        error = cli.refused(
            "group", "reset-offsets", "active", "--all-topics", "--to-earliest", "--execute"
        )
        assert "group active is Stable" in error
        assert "penstock group describe --members active" in error
        dry = cli("group", "reset-offsets", "active", "--all-topics", "--to-earliest")
        assert "stop its members before --execute" in dry.stderr
        assert "(NON_EMPTY_GROUP)" in cli.refused("group", "delete", "active", "--yes")
        assert "(GROUP_SUBSCRIBED_TO_TOPIC)" in cli.refused(
            "group", "delete-offsets", "active", "--topic", "orders", "--yes"
        )
        removed = cli.json("group", "remove-members", "active", "--instance", "i1", "--yes")
        assert removed == {"group_id": "active", "removed": ["i1"]}
    assert cli.json("group", "describe", "active")[0]["state"] == "Empty"
    cli.refused("group", "remove-members", "active", status=2)


def test_a_group_of_the_new_protocol(cli: Cli, broker: RunningBroker) -> None:
    """C3: KIP-848."""
    with broker.connect() as own:
        find_group(own, "modern")
        member = ConsumerMember(own, "modern", "m-1", names=["orders"])
        member.joined()
        member.obey()
        listed = cli.rows("group", "list", "--type", "consumer")
        assert [row[0] for row in listed] == ["modern"]
        [described] = cli.json("group", "describe", "modern")
        assert (described["type"], described["members"][0]["member_id"]) == ("Consumer", "m-1")
        assert len(described["offsets"]) == 2
        member.leave()


def test_groups_are_filtered(cli: Cli, client: WireClient) -> None:
    for name in ("filter.a", "filter.b"):
        committed(client, name, {("orders", 0): 1})
    assert cli.json("group", "list", "--match", "filter.*", "-q") == ["filter.a", "filter.b"]
    assert cli.json("group", "list", "--match", "filter.*", "--state", "stable") == []
    assert len(cli.json("group", "describe", "--match", "filter.*")) == 2
    assert cli.json("group", "delete", "--match", "filter.*", "--yes") == [
        {"group_id": "filter.a", "deleted": True},
        {"group_id": "filter.b", "deleted": True},
    ]
    assert cli.json("group", "list", "--match", "filter.*") == []
    cli.refused("group", "describe", "x", "--all", status=2)
    assert "regular expression" in cli.refused("group", "list", "--match", "(", status=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 0]),
        (["--to-current"], [5, 0]),
        (["--to-offset", "3"], [3, 0]),
        (["--to-offset", "99"], [10, 0]),
        (["--to-datetime", "2023-11-14T22:13:22"], [2, 0]),
        (["--to-datetime", "2023-11-14T23:13:22.500+01:00"], [3, 0]),
        (["--by-duration", "PT1H"], [10, 0]),
        (["--by-duration", "P99999D"], [0, 0]),
    ],
)
def test_offsets_after_a_reset(
    cli: Cli, client: WireClient, arguments: list[str], expected: list[int]
) -> None:
    """C5, Q5: dry runs by every rule."""
    committed(client, "dry", {("orders", 0): 5})
    assert new_offsets(cli, "dry", *arguments) == expected
    assert cli.json("group", "describe", "dry")[0]["offsets"][0]["current_offset"] == 5


def test_a_reset_is_executed_exported_and_brought_back(
    cli: Cli, client: WireClient, tmp_path: Path
) -> None:
    """C5: by shift, and from the file that was exported before."""
    committed(client, "reset", {("orders", 0): 5, ("orders", 1): 0})
    before = cli("group", "reset-offsets", "reset", "--all-topics", "--to-current", "--export")
    assert before.stdout == "orders,0,5\norders,1,0\n"
    file = tmp_path / "offsets.csv"
    file.write_text(before.stdout)

    moved = cli(
        "group", "reset-offsets", "reset", "--topic", "orders:0", "--shift-by", "-2", "--execute"
    )
    assert moved.stdout.splitlines()[1].split() == ["reset", "orders", "0", "5", "3", "-", "yes"]
    assert new_offsets(cli, "reset", "--to-current") == [3, 0]
    cli("group", "reset-offsets", "reset", "--from-file", str(file), "--execute")
    assert new_offsets(cli, "reset", "--to-current") == [5, 0]
    both = cli(
        "group", "reset-offsets", "reset", "fresh", "--topic", "orders:0", "--to-latest", "--export"
    )
    assert both.stdout == "reset,orders,0,10\nfresh,orders,0,10\n"


def test_a_group_that_does_not_exist_can_be_prepared(cli: Cli) -> None:
    cli("group", "reset-offsets", "new", "--topic", "orders", "--to-offset", "2", "--execute")
    assert [
        row["current_offset"] for row in cli.json("group", "describe", "new")[0]["offsets"]
    ] == [2, 0]


def test_what_reset_refuses(cli: Cli) -> None:
    reset = ("group", "reset-offsets")
    topic = ("--topic", "orders")
    assert "name the groups" in cli.refused(*reset, *topic, "--to-latest", status=2)
    assert "name the offsets" in cli.refused(*reset, "g", "--to-latest", status=2)
    assert "choose one target" in cli.refused(*reset, "g", *topic, status=2)
    cli.refused(*reset, "g", *topic, "--to-latest", "--to-earliest", status=2)
    assert "is not a duration" in cli.refused(*reset, "g", *topic, "--by-duration", "1h", status=2)
    assert "needs a committed offset" in cli.refused(
        *reset, "nobody", *topic, "--shift-by", "1", status=2
    )
    assert "there is no topic missing" in cli.refused(
        *reset, "g", "--topic", "missing", "--to-latest"
    )
    assert "No such file" in cli.refused(*reset, "g", "--from-file", "/no/such", status=2)


def test_offsets_of_a_topic_are_deleted(cli: Cli, client: WireClient) -> None:
    committed(client, "forget", {("orders", 0): 5, ("orders", 1): 0})
    cli("group", "delete-offsets", "forget", "--topic", "orders:1", "--yes")
    [remaining_offset] = cli.json("group", "describe", "forget")[0]["offsets"]
    assert remaining_offset["partition"] == 0
    assert "there is no topic other" in cli.refused(
        "group", "delete-offsets", "forget", "--topic", "other", "--yes"
    )


def test_a_group_that_is_missing(cli: Cli) -> None:
    for call in (("describe", "nobody-here"), ("delete", "nobody-here", "--yes")):
        error = cli.refused("group", *call)
        assert "penstock group list" in error
        assert "(GROUP_ID_NOT_FOUND)" in error


def test_patterns_are_checked_as_brokers_do(cli: Cli) -> None:
    assert cli.json("group", "validate-regex", "a.*")["valid"]
    assert "(INVALID_REGULAR_EXPRESSION)" in cli.refused("group", "validate-regex", "(?=a)")
