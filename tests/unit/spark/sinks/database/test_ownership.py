"""One owner at a time, and progress that is stored together with the results (D3)."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pyarrow as pa
import pytest
from sqlalchemy import URL, Connection, Engine, text

from penstock.core.ids import TopicPartition
from penstock.spark.errors import FencedError, PipelineError, ProgressError
from penstock.spark.progress import Batch, SourceOffsets, StoredProgress
from penstock.spark.sinks.database import bookkeeping
from penstock.spark.sinks.database.dead_letters import headers_from_json
from penstock.spark.sinks.database.sink import DatabaseSink
from penstock.spark.sinks.database.tables import OWN_TABLES, create_missing
from penstock.spark.sinks.database.writers import RowWriter, writer_for
from penstock.spark.sinks.port import WriteResult
from tests.support.spark.database_sinks import (
    KEY,
    at,
    batch_of,
    begin,
    by,
    count_of,
    letters_at,
    rows_of,
    sink_for,
    spec_for,
)

ROWS = pa.table({"n": [1, 2]})


def test_progress_is_read_by_the_next_owner(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url)) as sink:
        assert sink.open("one") is None
        assert sink.open("one") is None
        sink.begin_at(at(0))
        assert sink.open("one") == StoredProgress(at(0), "", -1)
        assert sink.write_table(ROWS, batch_of(0)) == WriteResult(2)
        assert sink.open("one") == StoredProgress(at(10), "q1", 0)
    with sink_for(spec_for(database_url)) as sink:
        assert sink.open("two") == StoredProgress(at(10), "q1", 0)
        assert sink.write_table(ROWS, batch_of(1)) == WriteResult(2)
        assert sink.open("two") == StoredProgress(at(20), "q1", 1)
    (row,) = rows_of(engine, "penstock_pipeline")
    assert (row["pipeline"], row["owner"], row["epoch"]) == (KEY, "two", 6)
    last = max(rows_of(engine, "penstock_batch"), key=lambda row: str(row["batch_id"]))
    assert (last["rows"], last["dead_letters"], last["epoch"]) == (2, 0, 5)
    assert json.loads(str(last["end_offsets"])) == {"orders": at(20)["orders"].to_json()}


def test_a_batch_that_is_stored_is_not_stored_again(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        for _ in range(2):
            assert sink.write_table(ROWS, batch_of(0)) == WriteResult(2)
        # Another checkpoint counts its batches from 0.
        assert sink.write_table(ROWS, Batch("q2", 0, at(10), at(20))) == WriteResult(2)
        with pytest.raises(ProgressError, match="stored 20, the batch goes from 30 to 40"):
            sink.write_table(ROWS, batch_of(3))
        assert sink.open("one") == StoredProgress(at(20), "q2", 0)
    assert count_of(engine, "results") == 4


def test_partitions_and_topics_are_added_and_removed(database_url: URL, engine: Engine) -> None:
    def progress(**offsets: int) -> dict[str, SourceOffsets]:
        result = {TopicPartition(name[0], int(name[1])): at for name, at in offsets.items()}
        ids = {name[0]: f"id of {name[0]}" for name in offsets}
        return {"s": SourceOffsets(result, ids, "s"), "t": SourceOffsets(result, {}, "t")}

    steps = [progress(a0=1), progress(a0=1, a1=2, b0=0), progress(a1=5), progress(a1=5, B0=1)]
    with sink_for(spec_for(database_url)) as sink:
        sink.open("one")
        sink.begin_at(steps[0])
        for number in range(3):
            sink.write_table(ROWS, Batch("q", number, steps[number], steps[number + 1]))
            assert sink.open("one") == StoredProgress(steps[number + 1], "q", number)
    assert count_of(engine, "penstock_offset") == 4


def test_batches_that_read_nothing(database_url: URL, engine: Engine) -> None:
    """A stateful query closes its windows in them."""
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        for _ in range(2):
            assert sink.write_table(ROWS, Batch("q", 0, at(0), at(0))) == WriteResult(2)
        assert sink.write_table(ROWS, Batch("q", 1, at(0), at(0))) == WriteResult(2)
    assert count_of(engine, "results") == 4


def test_old_batches_are_forgotten(
    database_url: URL, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookkeeping, "MAX_BATCHES", 3)
    with sink_for(spec_for(database_url)) as sink:
        begin(sink)
        for number in range(5):
            sink.write_table(ROWS, batch_of(number))
        assert sorted(str(row["batch_id"]) for row in rows_of(engine, "penstock_batch")) == [
            "2",
            "3",
            "4",
        ]
        sink.write_table(ROWS, Batch("q2", 0, at(50), at(60)))
        assert sink.open("one") == StoredProgress(at(60), "q2", 0)
    assert count_of(engine, "penstock_batch") == 1


def test_a_replaced_owner_is_refused(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url)) as old, sink_for(spec_for(database_url)) as new:
        begin(old, "driver on host a")
        old.write_table(ROWS, batch_of(0))
        assert new.open("driver on host b") == StoredProgress(at(10), "q1", 0)
        with pytest.raises(FencedError, match="taken over by 'driver on host b'"):
            old.write_table(ROWS, batch_of(1))
        with pytest.raises(FencedError):
            old.begin_at(at(0))
        with pytest.raises(FencedError):
            old.clear()
        new.write_table(ROWS, batch_of(1))
    assert count_of(engine, "results") == 4


class Holding(RowWriter):
    """Waits during a batch."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer
        self.reached, self.go_on = Event(), Event()

    def append(self, connection: Connection, target: object, rows: pa.Table) -> None:
        self._writer.append(connection, target, rows)  # type: ignore[arg-type]
        self.reached.set()
        assert self.go_on.wait(30)

    def upsert(self, connection: Connection, target: object, rows: pa.Table) -> None:
        raise AssertionError

    def delete(self, connection: Connection, target: object, keys: pa.Table) -> None:
        raise AssertionError


def hold(sink: DatabaseSink) -> Holding:
    holding = Holding(writer_for(sink._kind))
    sink._writer = holding
    return holding


def test_a_new_owner_waits_for_the_current_batch(database_url: URL, engine: Engine) -> None:
    """The new owner sees everything that the old one has committed."""
    with (
        ThreadPoolExecutor(2) as pool,
        sink_for(spec_for(database_url)) as old,
        sink_for(spec_for(database_url)) as new,
    ):
        begin(old)
        new._create_tables()
        holding = hold(old)
        writing = pool.submit(old.write_table, ROWS, batch_of(0))
        assert holding.reached.wait(30)
        opening = pool.submit(new.open, "two")
        assert not opening.done()
        holding.go_on.set()
        assert writing.result(30) == WriteResult(2)
        assert opening.result(30) == StoredProgress(at(10), "q1", 0)
        with pytest.raises(FencedError):
            old.write_table(ROWS, batch_of(1))


def test_a_new_owner_waits_for_a_limited_time(database_url: URL) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        sink_for(spec_for(database_url)) as old,
        sink_for(spec_for(database_url), lock_wait_seconds=1) as new,
    ):
        begin(old, "the old one")
        holding = hold(old)
        writing = pool.submit(old.write_table, ROWS, batch_of(0))
        assert holding.reached.wait(30)
        try:
            with pytest.raises(PipelineError, match="another session holds a lock") as caught:
                new.open("two")
            if database_url.get_backend_name() != "sqlite":
                assert "The owner is 'the old one'" in str(caught.value)
        finally:
            holding.go_on.set()
        assert writing.result(30) == WriteResult(2)


def test_two_drivers_start_at_once(database_url: URL, engine: Engine) -> None:
    """Both create the tables; each gets an epoch of its own."""
    with ThreadPoolExecutor(4) as pool:

        def start(number: int) -> str:
            with sink_for(spec_for(database_url)) as sink:
                try:
                    begin(sink, f"driver {number}")
                    sink.write_table(ROWS, batch_of(0))
                except FencedError:
                    return "fenced"
                return "stored"

        outcomes = list(pool.map(start, range(4)))
    assert "stored" in outcomes
    assert count_of(engine, "results") == 2
    (row,) = rows_of(engine, "penstock_pipeline")
    assert row["epoch"] == 4


def test_drivers_that_start_together_while_one_of_them_dies(
    database_url: URL, engine: Engine
) -> None:
    """Drivers that wait for its row deadlock in MySQL, which must not surface."""
    with (
        sink_for(spec_for(database_url)) as first,
        ThreadPoolExecutor(3) as pool,
        ExitStack() as sinks,
    ):
        create_missing(first._engine, OWN_TABLES)
        later_sinks = [sinks.enter_context(sink_for(spec_for(database_url))) for _ in range(3)]
        with first._engine.connect() as dying:
            first._bookkeeping.add(dying)
            opening = [pool.submit(sink.open, "driver") for sink in later_sinks]
            if engine.dialect.name == "mysql":
                await_locks(engine, 3)
        assert [future.result(30) for future in opening] == [None] * 3
    (row,) = rows_of(engine, "penstock_pipeline")
    assert row["epoch"] == 3


def await_locks(engine: Engine, count: int) -> None:
    """Waits until `count` transactions wait for a lock."""
    query = text("SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
    with engine.connect() as connection:
        while connection.execute(query).scalar_one() < count:
            # MySQL refreshes this view only if it was not read for 100 ms.
            time.sleep(0.15)


def test_starting_offsets_are_stored_once(database_url: URL) -> None:
    with sink_for(spec_for(database_url)) as sink:
        with pytest.raises(PipelineError, match="`open` the sink first"):
            sink.begin_at(at(0))
        sink.open("one")
        for _ in range(2):
            sink.begin_at(at(3))
        with pytest.raises(ProgressError):
            sink.begin_at(at(4))
        sink.write_table(ROWS, Batch("q", 0, at(3), at(5)))
        with pytest.raises(ProgressError, match="has begun already"):
            sink.begin_at(at(5))


def test_starting_offsets_without_partitions(database_url: URL) -> None:
    """A pattern that no topic matches yet."""
    with sink_for(spec_for(database_url)) as sink:
        sink.open("one")
        sink.begin_at({})
        assert sink.open("one") == StoredProgress({}, "", -1)
        sink.write_table(ROWS, Batch("q", 0, {}, at(0)))
        assert sink.open("one") == StoredProgress(at(0), "q", 0)


def test_dead_letters_are_stored_with_the_results(database_url: URL, engine: Engine) -> None:
    """E3"""
    with sink_for(spec_for(database_url), dead_letter_table="letters") as sink:
        assert sink.takes_dead_letters
        begin(sink)
        assert sink.write_table(ROWS, batch_of(0), letters_at(3, 4)) == WriteResult(2, 2)
        # A record that is still unreadable after a replay.
        sink.write_table(ROWS, batch_of(1), letters_at(4, 11, reason="again"))
        with pytest.raises(ProgressError):
            sink.write_table(ROWS, batch_of(5), letters_at(50))
    result = by(rows_of(engine, "letters"), "offset")
    assert {offset: row["reason"] for offset, row in result.items()} == {
        3: "not JSON\N{REPLACEMENT CHARACTER}",
        4: "again",
        11: "again",
    }
    row = result[3]
    assert (row["pipeline"], row["source"], row["topic"]) == (KEY, "orders", "orders")
    assert (row["topic_id"], row["partition"]) == ("id-1", 0)
    assert (row["key"], row["value"], row["replayed_at"]) == (None, b"\x00\xff{", None)
    assert str(row["timestamp"]).startswith("2023-11-14 22:13:20.000003")
    headers = [{"key": "h", "value": b"\x01"}, {"key": "n", "value": None}]
    assert headers_from_json(str(row["headers"])) == headers


def test_a_dead_letter_with_an_invalid_time_is_stored_without_it(
    database_url: URL, engine: Engine
) -> None:
    """A producer that sends microseconds as milliseconds must not stop the pipeline."""
    letters = letters_at(1, 2)
    times = pa.array([1_700_000_000_000_000_000, None], pa.timestamp("us", "UTC"))
    letters = letters.set_column(letters.schema.get_field_index("timestamp"), "timestamp", times)
    with sink_for(spec_for(database_url), dead_letter_table="letters") as sink:
        begin(sink)
        assert sink.write_table(ROWS, batch_of(0), letters) == WriteResult(2, 2)
    assert [row["timestamp"] for row in rows_of(engine, "letters")] == [None, None]


def test_dead_letters_need_a_table(database_url: URL, engine: Engine) -> None:
    with sink_for(spec_for(database_url)) as sink:
        assert not sink.takes_dead_letters
        begin(sink)
        with pytest.raises(PipelineError, match="no table for dead letters"):
            sink.write_table(ROWS, batch_of(0), letters_at(1))
    assert count_of(engine, "penstock_batch") == 0


def test_clear_removes_all_rows_of_the_query(database_url: URL, engine: Engine) -> None:
    """Rows of other queries stay."""
    with (
        sink_for(spec_for(database_url), dead_letter_table="letters") as sink,
        sink_for(
            spec_for(database_url, table="others"), "other.sink", dead_letter_table="letters"
        ) as other_sink,
    ):
        begin(sink)
        sink.clear()
        sink.begin_at(at(0))
        sink.write_table(ROWS, batch_of(0), letters_at(1))
        begin(other_sink)
        other_sink.write_table(ROWS, batch_of(0), letters_at(1))
        sink.clear()
        assert sink.open("one") is None
        assert other_sink.open("one") == StoredProgress(at(10), "q1", 0)
        counts = {
            name: count_of(engine, name)
            for name in ("results", "others", "letters", "penstock_offset", "penstock_batch")
        }
        assert counts == {
            "results": 0,
            "others": 2,
            "letters": 1,
            "penstock_offset": 1,
            "penstock_batch": 1,
        }
        sink.begin_at(at(0))
        assert sink.write_table(ROWS, batch_of(0)) == WriteResult(2)


def test_foreign_tables_with_the_names_of_penstock_are_refused(
    database_url: URL, engine: Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE penstock_offset (pipeline integer)"))
    with (
        sink_for(spec_for(database_url)) as sink,
        pytest.raises(PipelineError, match="penstock_offset exists but is not Penstock's"),
    ):
        sink.open("one")


def test_a_dead_letter_table_whose_name_differs_in_case(database_url: URL, engine: Engine) -> None:
    """The same table to SQLite, another one to other databases."""
    for number, name in enumerate(("letters", "Letters")):
        with sink_for(spec_for(database_url), dead_letter_table=name) as sink:
            begin(sink)
            sink.write_table(ROWS, batch_of(number), letters_at(number))
    assert count_of(engine, "letters") == (2 if engine.dialect.name == "sqlite" else 1)
