"""The table of offsets, in each database (C6)."""

from collections.abc import Mapping
from threading import Barrier, Thread

import pytest
from sqlalchemy import URL, Connection, Engine, MetaData, inspect, update

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import CommitFailedError, ConfigError
from penstock.client.external_offsets.model import OffsetsMovedError, OffsetUpdate, StoredOffset
from penstock.client.external_offsets.store import OffsetStore
from penstock.core.ids import TopicPartition
from tests.support.spark.databases import engine_for

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
BILLS_0 = TopicPartition("bills", 0)


@pytest.fixture
def store(engine: Engine) -> OffsetStore:
    store = OffsetStore()
    store.create_table(engine)
    return store


def positions(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}


def offsets_in(
    connection: Connection, store: OffsetStore, group: str = "g"
) -> dict[TopicPartition, int]:
    return {
        partition: stored.position.offset
        for partition, stored in store.read(connection, group).items()
    }


def move_all(
    connection: Connection, store: OffsetStore, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetUpdate]:
    stored = store.read(connection, "g")
    return {
        partition: OffsetUpdate(stored[partition], OffsetAndMetadata(offset))
        for partition, offset in offsets.items()
    }


def test_the_table_is_created_once_and_with_any_name(engine: Engine) -> None:
    metadata = MetaData()
    store = OffsetStore("my_offsets", metadata=metadata)
    assert metadata.tables["my_offsets"] is store.table
    for _ in range(2):
        store.create_table(engine)
    names = [column["name"] for column in inspect(engine).get_columns("my_offsets")]
    assert names == [
        "group_id",
        "topic",
        "partition",
        "next_offset",
        "leader_epoch",
        "metadata",
        "version",
        "updated_at",
    ]


def test_concurrent_creation_of_the_table(engine: Engine) -> None:
    failures: list[Exception] = []
    together = Barrier(4)

    def create() -> None:
        store = OffsetStore()
        together.wait()
        try:
            store.create_table(engine)
        except Exception as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert inspect(engine).has_table("penstock_offsets")


def test_offsets_are_read_as_they_were_stored(engine: Engine, store: OffsetStore) -> None:
    first = OffsetAndMetadata(2**62, "nöte \U0001f9ea", 5)
    with engine.begin() as connection:
        store.add(connection, "grüppe", {ORDERS_0: first})
    with engine.begin() as connection:
        assert store.read(connection, "grüppe", [ORDERS_0, ORDERS_1]) == {
            ORDERS_0: StoredOffset(first, 1)
        }
        moved = OffsetAndMetadata(2**62 + 1, "", 6)
        store.save(connection, "grüppe", {ORDERS_0: OffsetUpdate(StoredOffset(first, 1), moved)})
    with engine.connect() as connection:
        assert store.read(connection, "grüppe") == {ORDERS_0: StoredOffset(moved, 2)}


def test_names_that_differ_by_case_are_different(engine: Engine, store: OffsetStore) -> None:
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1, TopicPartition("Orders", 0): 2}))
        store.add(connection, "G", positions({ORDERS_0: 3}))
        assert offsets_in(connection, store) == {ORDERS_0: 1, TopicPartition("Orders", 0): 2}
        assert offsets_in(connection, store, "G") == {ORDERS_0: 3}


def test_many_partitions_are_read_together(engine: Engine, store: OffsetStore) -> None:
    offsets = {TopicPartition(f"t{topic}", part): topic for topic in range(450) for part in (0, 3)}
    with engine.begin() as connection:
        store.add(connection, "g", positions(offsets))
    with engine.connect() as connection:
        requested = [offset for offset in offsets if offset.partition == 3]
        results = store.read(connection, "g", [*requested, BILLS_0])
    assert {key: stored.position.offset for key, stored in results.items()} == {
        entry: offsets[entry] for entry in requested
    }


def test_add_does_not_change_an_existing_offset(engine: Engine, store: OffsetStore) -> None:
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1}))
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 9, ORDERS_1: 9}))
    with engine.connect() as connection:
        assert offsets_in(connection, store) == {ORDERS_0: 1, ORDERS_1: 9}


def test_offsets_are_saved_with_their_transaction_only(engine: Engine, store: OffsetStore) -> None:
    """C6: the store never commits."""
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1}))
    with engine.connect() as connection:
        store.save(connection, "g", move_all(connection, store, {ORDERS_0: 5}))
        store.add(connection, "g", positions({ORDERS_1: 5}))
        store.put(connection, "g", positions({BILLS_0: 5}))
        assert offsets_in(connection, store) == {ORDERS_0: 5, ORDERS_1: 5, BILLS_0: 5}
        connection.rollback()
        store.add(connection, "g", positions({ORDERS_1: 5}))
        connection.rollback()
        store.delete(connection, "g")
        connection.rollback()
        assert offsets_in(connection, store) == {ORDERS_0: 1}


def test_a_save_from_an_old_version_is_refused(engine: Engine, store: OffsetStore) -> None:
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1, ORDERS_1: 1}))
        old = move_all(connection, store, {ORDERS_0: 4, ORDERS_1: 4})
        store.save(connection, "g", move_all(connection, store, {ORDERS_1: 2}))
    with engine.connect() as connection:
        with pytest.raises(OffsetsMovedError, match=r"'g'.*penstock_offsets.*orders-0, orders-1"):
            store.save(connection, "g", old)
        connection.rollback()
        assert offsets_in(connection, store) == {ORDERS_0: 1, ORDERS_1: 2}


def test_a_save_after_two_opposite_moves_is_refused(engine: Engine, store: OffsetStore) -> None:
    """The offset is the same; only the version has changed."""
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1}))
        old = move_all(connection, store, {ORDERS_0: 4})
        for offset in (2, 1):
            store.save(connection, "g", move_all(connection, store, {ORDERS_0: offset}))
        with pytest.raises(OffsetsMovedError):
            store.save(connection, "g", old)


def test_a_save_after_a_manual_change_is_refused(engine: Engine, store: OffsetStore) -> None:
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1}))
        old = move_all(connection, store, {ORDERS_0: 4})
        connection.execute(update(store.table).values(next_offset=0))
        with pytest.raises(CommitFailedError):
            store.save(connection, "g", old)


def test_put_overwrites_offsets_and_fences_open_transactions(
    engine: Engine, store: OffsetStore
) -> None:
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1}))
        old = move_all(connection, store, {ORDERS_0: 4})
        store.put(connection, "g", positions({ORDERS_0: 1, ORDERS_1: 8}))
        assert offsets_in(connection, store) == {ORDERS_0: 1, ORDERS_1: 8}
        with pytest.raises(OffsetsMovedError):
            store.save(connection, "g", old)


def test_deleted_offsets_cannot_be_saved(engine: Engine, store: OffsetStore) -> None:
    with engine.begin() as connection:
        store.add(connection, "g", positions({ORDERS_0: 1, ORDERS_1: 2, BILLS_0: 3}))
        store.add(connection, "other", positions({ORDERS_0: 1}))
        old = move_all(connection, store, {ORDERS_0: 4})
        store.delete(connection, "g", [ORDERS_0])
        assert offsets_in(connection, store) == {ORDERS_1: 2, BILLS_0: 3}
        with pytest.raises(OffsetsMovedError):
            store.save(connection, "g", old)
        store.delete(connection, "g")
        assert offsets_in(connection, store) == {}
        assert offsets_in(connection, store, "other") == {ORDERS_0: 1}


@pytest.mark.parametrize("group", ["", "x" * 256, "trailing "])
def test_a_group_id_that_the_table_cannot_store_is_refused(group: str) -> None:
    with (
        engine_for(URL.create("sqlite")) as engine,
        engine.connect() as connection,
        pytest.raises(ConfigError, match="group_id"),
    ):
        OffsetStore().add(connection, group, {})


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("reads_first", [False, True])
def test_only_one_of_two_open_transactions_saves(
    level: str, kind: str, reads_first: bool, request: pytest.FixtureRequest
) -> None:
    """C6: the second transaction waits for the first, then fails, at every isolation level."""
    url: URL = request.getfixturevalue(kind).fresh()
    store = OffsetStore()
    with engine_for(url, isolation_level=level) as engine:
        store.create_table(engine)
        with engine.begin() as connection:
            store.add(connection, "g", positions({ORDERS_0: 1, ORDERS_1: 1}))
            moves = move_all(connection, store, {ORDERS_0: 3, ORDERS_1: 3})
        outcome: list[str] = []

        def save_second() -> None:
            with engine.connect() as connection:
                if reads_first:  # so that it has a snapshot from before
                    connection.execute(store.table.select().with_only_columns(store.table.c.topic))
                about_to_save.wait()
                try:
                    store.save(connection, "g", moves)
                    connection.commit()
                    outcome.append("saved")
                except OffsetsMovedError:
                    outcome.append("moved")

        about_to_save = Barrier(2)
        thread = Thread(target=save_second)
        with engine.connect() as connection:
            if level != "SERIALIZABLE" or kind != "mariadb" or not reads_first:
                store.save(connection, "g", moves)
                thread.start()
                about_to_save.wait()
                connection.commit()
            else:  # its readers lock what they read: the first one could not save before it
                store.save(connection, "g", moves)
                connection.commit()
                thread.start()
                about_to_save.wait()
        thread.join()
        assert outcome == ["moved"]
        with engine.connect() as connection:
            assert offsets_in(connection, store) == {ORDERS_0: 3, ORDERS_1: 3}
            assert {item.version for item in store.read(connection, "g").values()} == {2}
