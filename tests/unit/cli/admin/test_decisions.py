"""Small decisions of commands: lags, hanging transactions, changes of settings, times."""

import pytest

from penstock.cli.admin.config import changes
from penstock.cli.admin.group_offsets import OffsetRow, offset_rows
from penstock.cli.admin.hanging_transactions import OpenTransaction, candidates, hanging
from penstock.cli.admin.json_files import Move
from penstock.cli.admin.offsets import time_spec
from penstock.cli.admin.quota import Entity
from penstock.cli.admin.reassignment_steps import log_dir_moves
from penstock.cli.admin.topic_tables import PartitionFilter
from penstock.cli.output import UsageError
from penstock.client.admin import (
    ClientQuotaEntity,
    ConfigOp,
    ConfigOpType,
    MemberDescription,
    PartitionDescription,
    ProducerState,
    Quota,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionState,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.core.ids import TopicPartition

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def test_lag_and_owner_of_partitions() -> None:
    """C2: committed offset, log end offset, lag, member and host."""
    reader = MemberDescription("m1", "i1", "c1", "/h1", (A0, A1))
    idle = MemberDescription("m2", None, "c2", "/h2", ())
    committed = {A0: OffsetAndMetadata(4, "note", 7), A2: OffsetAndMetadata(9)}
    rows = offset_rows([reader, idle], committed, {A0: 10, A1: 5, A2: 8})
    member = ("m1", "/h1", "c1", "i1")
    assert rows == [
        OffsetRow("a", 0, 4, 10, 6, *member, 7, "note"),
        OffsetRow("a", 1, None, 5, None, *member, None, None),
        OffsetRow("a", 2, 9, 8, 0, None, None, None, None, None, None),
        OffsetRow(None, None, None, None, None, "m2", "/h2", "c2", None, None, None),
    ]


def test_a_partition_whose_end_is_unknown_has_no_lag() -> None:
    [row] = offset_rows([], {A0: OffsetAndMetadata(4)}, {})
    assert (row.current_offset, row.log_end_offset, row.lag) == (4, None, None)


def producer(producer_id: int, last_ms: int, start: int | None = 0) -> ProducerState:
    return ProducerState(producer_id, 0, 0, last_ms, None, start)


def test_transactions_that_are_old_enough() -> None:
    old, new, closed = producer(1, 0), producer(2, 900), producer(3, 0, None)
    assert candidates({A0: (old, new, closed)}, 1000, 500) == [OpenTransaction(A0, old)]


def test_transactions_that_no_coordinator_ends() -> None:
    """P4: those whose coordinator does not know of the partition."""
    result = [OpenTransaction(A0, producer(number, 0)) for number in (1, 2, 3, 4)]
    description = TransactionDescription(0, TransactionState.ONGOING, 1, 0, 60_000, 0, (A0,))
    elsewhere = description._replace(partitions=(A1,))
    hanging_transactions = hanging(
        result, {1: "x", 2: "y", 3: "gone"}, {"x": description, "y": elsewhere}
    )
    assert [hanging.producer.producer_id for hanging in hanging_transactions] == [2, 3, 4]


def test_changes_of_settings() -> None:
    assert changes({"a": "0", "b": "1"}, ["a=2"], ["c"], ["d=x", "d=y"], ["e=z"]) == [
        ConfigOp("a", "2"),
        ConfigOp("b", "1"),
        ConfigOp("c", None, ConfigOpType.DELETE),
        ConfigOp("d", "x,y", ConfigOpType.APPEND),
        ConfigOp("e", "z", ConfigOpType.SUBTRACT),
    ]
    with pytest.raises(UsageError, match="a is changed in two ways"):
        changes({}, ["a=1"], ["a"], [], [])


def test_whose_quota() -> None:
    assert Entity("ann", client_defaults=True).resolve() == ClientQuotaEntity(
        "ann", Quota.DEFAULT, None
    )
    with pytest.raises(UsageError, match="choose one of --user and --user-defaults"):
        Entity("ann", user_defaults=True).resolve()
    with pytest.raises(UsageError, match="cannot be combined"):
        Entity("ann", ip="10.0.0.1").resolve()


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("latest", -1),
        ("-2", -2),
        ("max-timestamp", -3),
        ("-6", -6),
        ("1700000000000", 1_700_000_000_000),
        ("5", 5),
        ("1970-01-01T00:00:01Z", 1000),
    ],
)
def test_times_of_offsets(text: str, spec: int) -> None:
    assert time_spec(text) == spec


@pytest.mark.parametrize("text", ["-7", "soon", ""])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--time"):
        time_spec(text)


@pytest.mark.parametrize(
    ("isr", "leader", "needs"),
    [
        ((0, 1, 2), 0, set()),
        ((0, 1), 0, {PartitionFilter.UNDER_REPLICATED, PartitionFilter.AT_MIN_ISR}),
        (
            (0,),
            None,
            {
                PartitionFilter.UNDER_REPLICATED,
                PartitionFilter.UNAVAILABLE,
                PartitionFilter.UNDER_MIN_ISR,
            },
        ),
    ],
)
def test_what_partitions_need(
    isr: tuple[int, ...], leader: int | None, needs: set[PartitionFilter]
) -> None:
    """E7: with min.insync.replicas=2."""
    partition = PartitionDescription(0, leader, 0, (0, 1, 2), isr)
    assert {need for need in PartitionFilter if need.matches(partition, 2)} == needs


def test_directories_of_a_plan() -> None:
    assert log_dir_moves({A0: Move((1, 2), ("any", "/d"))}) == {
        TopicPartitionReplica("a", 0, 2): "/d"
    }
