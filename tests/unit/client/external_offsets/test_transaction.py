"""Results and offsets in one transaction, over a consumer in memory (C6)."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from sqlalchemy import (
    URL,
    Column,
    Engine,
    Integer,
    MetaData,
    PoolProxiedConnection,
    String,
    Table,
    event,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import ConfigError, IllegalStateError
from penstock.client.external_offsets.model import OffsetsMovedError
from penstock.client.external_offsets.store import OffsetStore
from penstock.client.external_offsets.transaction import ExternalOffsets, Transaction
from penstock.core.ids import TopicPartition
from tests.support.client.fake_consumer import Logs, MemoryReader, Read
from tests.support.spark.databases import engine_for

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)

RESULTS = Table(
    "results",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("value", String(20)),
)

Attach = Callable[[MemoryReader], ExternalOffsets]


@pytest.fixture
def logs() -> Logs:
    return {partition: [f"{partition}:{n}" for n in range(5)] for partition in (P0, P1)}


@pytest.fixture
def attach(engine: Engine) -> Attach:
    RESULTS.create(engine)
    return lambda reader: ExternalOffsets(reader, engine, "g")


def consume(
    offsets: ExternalOffsets,
    max_records: int = 2,
    then: Callable[[Transaction], object] | None = None,
) -> list[str]:
    """Runs one iteration of the usual loop; `then` is called at the end of the transaction."""
    reader = offsets.reader
    assert isinstance(reader, MemoryReader)
    with offsets.transaction() as tx:
        records = reader.poll(max_records)
        insert_all(tx, records)
        if then is not None:
            then(tx)
    return [record.value for record in records]


def insert_all(tx: Transaction, records: Sequence[Read]) -> None:
    for record in records:
        tx.connection.execute(insert(RESULTS), {"value": record.value})


def fail(tx: Transaction) -> None:
    raise ZeroDivisionError


def results(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(RESULTS.c.value).order_by(RESULTS.c.id)))


def stored(engine: Engine) -> dict[TopicPartition, int]:
    with engine.connect() as connection:
        matches = OffsetStore().read(connection, "g")
    return {partition: item.position.offset for partition, item in matches.items()}


def test_offsets_are_saved_with_the_results(engine: Engine, attach: Attach, logs: Logs) -> None:
    """C6."""
    reader = MemoryReader(logs)
    reader.assign([P0, P1])
    offsets = attach(reader)
    assert consume(offsets) == ["orders-0:0", "orders-0:1", "orders-1:0", "orders-1:1"]
    assert stored(engine) == {P0: 2, P1: 2}
    assert results(engine) == ["orders-0:0", "orders-0:1", "orders-1:0", "orders-1:1"]
    with engine.connect() as connection:
        epochs = {
            item.position.leader_epoch for item in OffsetStore().read(connection, "g").values()
        }
    assert epochs == {7}


def test_another_consumer_continues_from_the_saved_offsets(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    """C6: sought on start."""
    first = MemoryReader(logs)
    first.assign([P0])
    consume(attach(first), max_records=3)
    second = MemoryReader(logs)
    second.assign([P0])
    assert consume(attach(second), max_records=3) == ["orders-0:3", "orders-0:4"]
    assert results(engine) == logs[P0]


def test_a_failed_transaction_stores_nothing_and_its_records_are_read_again(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    consume(offsets)
    with pytest.raises(ZeroDivisionError):
        consume(offsets, then=fail)
    assert reader.sought[-1] == (P0, 2)
    assert stored(engine) == {P0: 2}
    assert results(engine) == logs[P0][:2]
    assert consume(offsets) == logs[P0][2:4]
    assert results(engine) == logs[P0][:4]


def test_a_failed_statement_rolls_back_the_transaction(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    with pytest.raises(DBAPIError):
        consume(offsets, then=lambda tx: tx.connection.execute(insert(RESULTS), {"id": 1}))
    assert stored(engine) == {P0: 0}
    assert results(engine) == []
    assert consume(offsets) == logs[P0][:2]


def test_offsets_of_records_without_results_are_saved_too(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    with offsets.transaction():
        reader.poll()
    assert stored(engine) == {P0: 2}


def test_records_polled_before_the_transaction_belong_to_it(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    offsets.prepare()
    reader.poll()
    reader.poll()
    with offsets.transaction():
        pass
    assert stored(engine) == {P0: 4}


def test_an_empty_poll_does_not_use_the_database(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    consume(offsets, max_records=5)
    engine.dispose()
    connected: list[object] = []
    event.listen(engine, "connect", lambda connection, record: connected.append(connection))
    with offsets.transaction():
        assert reader.poll() == []
    assert connected == []
    assert stored(engine) == {P0: 5}


def test_the_starting_offset_is_stored_before_records_are_read(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    """A crash with auto_offset_reset=latest must not skip records produced before the restart."""
    first = MemoryReader(logs, first=-1)
    first.assign([P0])
    assert consume(attach(first)) == []
    assert stored(engine) == {P0: 5}
    logs[P0].append("orders-0:5")
    second = MemoryReader(logs, first=-1)
    second.assign([P0])
    assert consume(attach(second)) == ["orders-0:5"]


def test_assigned_partitions_are_sought_to_their_saved_offsets(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    """C6: sought on rebalance."""
    first, second = MemoryReader(logs), MemoryReader(logs)
    owner, new_owner = attach(first), attach(second)
    first.assign([P0])
    owner.assigned([P0])
    consume(owner)
    owner.revoked([P0])
    first.unassign([P0])
    second.assign([P0])
    new_owner.assigned([P0])
    assert second.sought == [(P0, 2)]
    assert consume(owner) == []
    assert consume(new_owner) == logs[P0][2:4]


def test_a_partition_revoked_during_the_transaction_is_saved_if_no_other_owner_saved_it(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0, P1])
    offsets = attach(reader)
    with offsets.transaction() as tx:
        insert_all(tx, reader.poll())
        offsets.revoked([P0])
        reader.unassign([P0])
    assert stored(engine) == {P0: 2, P1: 2}
    assert len(results(engine)) == 4


def test_a_partition_reassigned_during_the_transaction_is_not_read_twice(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    for max_records in (2, 0):
        with offsets.transaction() as tx:
            polled = reader.poll()
            offsets.revoked([P0])
            reader.unassign([P0])
            reader.assign([P0])
            offsets.assigned([P0])
            insert_all(tx, [*polled, *reader.poll(max_records)])
    assert results(engine) == logs[P0]
    assert stored(engine) == {P0: 5}


def test_a_partition_reassigned_at_the_end_of_the_transaction(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    """It is assigned again before the listener is called."""
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    consume(offsets)
    offsets.revoked([P0])
    reader.unassign([P0])
    with offsets.transaction():
        reader.assign([P0])
    assert consume(offsets) == logs[P0][2:4]


def test_a_partition_assigned_during_the_transaction(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    """Its first offset can be stored although the transaction has already changed rows."""
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)

    def assign_partition(tx: Transaction) -> None:
        reader.assign([P1])
        offsets.assigned([P1])
        insert_all(tx, [item for item in reader.poll() if item.partition == P1])

    def assign_partition_and_fail(tx: Transaction) -> None:
        assign_partition(tx)
        fail(tx)

    consume(offsets, max_records=5, then=assign_partition)
    assert stored(engine) == {P0: 5, P1: 2}
    reader.unassign([P1])
    offsets.revoked([P1])
    with pytest.raises(ZeroDivisionError):
        consume(offsets, then=assign_partition_and_fail)
    assert consume(offsets) == logs[P1][2:4]
    assert results(engine) == [*logs[P0], *logs[P1][:4]]


def test_the_first_partition_assigned_during_the_transaction(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    offsets = attach(reader)
    with offsets.transaction() as tx:
        tx.connection.execute(insert(RESULTS), {"value": "before"})
        reader.assign([P0])
        offsets.assigned([P0])
        insert_all(tx, reader.poll())
    assert results(engine) == ["before", *logs[P0][:2]]
    assert stored(engine) == {P0: 2}


def test_a_database_in_memory(logs: Logs) -> None:
    """All users of an in-memory database share one connection."""
    reader = MemoryReader(logs)
    with engine_for(URL.create("sqlite")) as engine:
        RESULTS.create(engine)
        offsets = ExternalOffsets(reader, engine, "g")
        with pytest.raises(ZeroDivisionError):
            consume(offsets, then=fail)
        reader.assign([P0])
        while consume(offsets):
            offsets.revoked([P0])
            offsets.assigned([P0])
        assert results(engine) == logs[P0]


def test_a_former_owner_of_a_partition_cannot_save(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    """C6: the first of two owners to commit wins."""
    first, second = MemoryReader(logs), MemoryReader(logs)
    zombie, owner = attach(first), attach(second)
    first.assign([P0])
    second.assign([P0])
    zombie.prepare()
    first.poll()
    assert consume(owner) == logs[P0][:2]
    with pytest.raises(OffsetsMovedError), zombie.transaction() as tx:
        tx.connection.execute(insert(RESULTS), {"value": "twice"})
    assert results(engine) == logs[P0][:2]
    assert consume(zombie) == logs[P0][2:4], "it continues from the stored offset"
    with pytest.raises(OffsetsMovedError):
        consume(owner)
    assert consume(owner) == logs[P0][4:]
    assert results(engine) == logs[P0]


def test_a_revoked_partition_saved_by_another_owner_rolls_back_the_transaction(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    first, second = MemoryReader(logs), MemoryReader(logs)
    zombie, owner = attach(first), attach(second)
    first.assign([P0, P1])
    zombie.prepare()
    polled = first.poll()
    zombie.revoked([P0])
    first.unassign([P0])
    second.assign([P0])
    owner.assigned([P0])
    consume(owner, max_records=1)
    first.assign([P0])
    zombie.assigned([P0])
    with pytest.raises(OffsetsMovedError):
        consume(zombie, then=lambda tx: insert_all(tx, polled))
    assert results(engine) == logs[P0][:1]
    assert consume(zombie) == [*logs[P1][:2], *logs[P0][1:3]]


def test_saved_offsets_are_mirrored_to_the_group(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    received: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
    reader = MemoryReader(logs)
    reader.assign([P0, P1])
    attach(reader)
    offsets = ExternalOffsets(reader, engine, "g", mirror=received.append)
    with offsets.transaction():
        reader.poll()
        offsets.revoked([P1])
        reader.unassign([P1])
    with offsets.transaction():
        pass
    with pytest.raises(ZeroDivisionError):
        consume(offsets, then=fail)
    assert received == [{P0: OffsetAndMetadata(2, leader_epoch=7)}]


def test_a_commit_without_a_response_is_found_in_the_database(
    engine: Engine, attach: Attach, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the database knows whether a commit without a response was applied."""
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)
    offsets.prepare()
    commit = engine.dialect.do_commit

    def commit_and_fail(connection: PoolProxiedConnection) -> None:
        monkeypatch.setattr(engine.dialect, "do_commit", commit)
        commit(connection)
        raise ConnectionError("the response was lost")

    monkeypatch.setattr(engine.dialect, "do_commit", commit_and_fail)
    with pytest.raises(ConnectionError):
        consume(offsets)
    assert consume(offsets) == logs[P0][2:4]
    assert results(engine) == logs[P0][:4]


def test_a_transaction_that_the_user_commits_is_an_error(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    reader.assign([P0])
    offsets = attach(reader)

    def commit_and_continue(tx: Transaction) -> None:
        tx.connection.commit()
        tx.connection.execute(text("SELECT 1"))

    with pytest.raises(IllegalStateError, match="leave commit and rollback"):
        consume(offsets, then=commit_and_continue)
    assert stored(engine) == {P0: 0}


def test_transactions_do_not_nest_and_close_their_connection(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    offsets = attach(MemoryReader(logs))
    with offsets.transaction() as tx:
        assert tx.connection.in_transaction()
        with pytest.raises(IllegalStateError, match="nest"):
            offsets.transaction().__enter__()
    with pytest.raises(IllegalStateError, match="ended"):
        tx.connection.commit()
    with offsets.transaction():
        pass


def test_records_polled_before_their_partition_was_prepared_are_refused(
    engine: Engine, attach: Attach, logs: Logs
) -> None:
    reader = MemoryReader(logs)
    offsets = attach(reader)

    def poll_a_new_partition(tx: Transaction) -> None:
        reader.assign([P0])
        insert_all(tx, reader.poll())

    with pytest.raises(IllegalStateError, match=r"orders-0.*before the first poll"):
        consume(offsets, then=poll_a_new_partition)
    assert results(engine) == []
    assert consume(offsets) == logs[P0][:2]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_engine_without_transactions_is_refused(
    kind: str, logs: Logs, request: pytest.FixtureRequest
) -> None:
    url: URL = request.getfixturevalue(kind).fresh()
    reader = MemoryReader(logs)
    reader.assign([P0])
    with engine_for(url, isolation_level="AUTOCOMMIT") as engine:
        offsets = ExternalOffsets(reader, engine, "g")
        with pytest.raises(ConfigError, match="AUTOCOMMIT"):
            offsets.prepare()
