"""Random histories of consumers that stop, fail and overlap: each record counts once (C6)."""

from contextlib import AbstractContextManager, suppress
from random import Random
from threading import Thread

import pytest
from sqlalchemy import URL, Column, Engine, Integer, MetaData, Table, insert, select

from penstock.client.external_offsets.model import OffsetsMovedError
from penstock.client.external_offsets.transaction import ExternalOffsets, Transaction
from penstock.core.ids import TopicPartition
from tests.support.client.fake_consumer import Logs, MemoryReader
from tests.support.spark.databases import engine_for

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
RECORDS = 12

RESULTS = Table(
    "results",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("part", Integer),
    Column("position", Integer),
)

LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


class FailedOnPurposeError(Exception):
    pass


class Worker:
    """A consumer whose transaction stays open during the steps of other consumers."""

    def __init__(self, logs: Logs, engine: Engine) -> None:
        self.reader = MemoryReader(logs)
        self.offsets = ExternalOffsets(self.reader, engine, "g")
        self._block: AbstractContextManager[Transaction] | None = None
        self._tx: Transaction | None = None

    def act(self, rng: Random) -> None:
        """Runs one random step."""
        # Partitions are assigned and revoked regardless of other owners, as for zombies.
        match rng.choice(["assign", "revoke", "poll", "poll", "poll", "end", "end", "fail"]):
            case "assign":
                partitions = rng.sample(PARTITIONS, rng.randint(1, 3))
                new = [
                    partition
                    for partition in partitions
                    if partition not in self.reader.assignment()
                ]
                self.reader.assign(new)
                self.offsets.assigned(new)
            case "revoke":
                revoked = rng.sample(PARTITIONS, rng.randint(1, 3))
                self.offsets.revoked(revoked)
                self.reader.unassign(revoked)
            case "poll":
                self.poll(rng.randint(1, 3))
            case "end":
                with suppress(OffsetsMovedError):
                    self.end(None)
            case _:
                self.end(FailedOnPurposeError())

    def poll(self, max_records: int) -> None:
        if self._block is None:
            self._block = self.offsets.transaction()
            self._tx = self._block.__enter__()
        assert self._tx is not None
        for record in self.reader.poll(max_records):
            row = {"part": record.partition.partition, "position": record.offset}
            self._tx.connection.execute(insert(RESULTS), row)

    def end(self, error: Exception | None) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(type(error) if error is not None else None, error, None)


def positions(engine: Engine) -> dict[int, list[int]]:
    """Returns the offsets in the results by partition, in the order of insertion."""
    results: dict[int, list[int]] = {partition.partition: [] for partition in PARTITIONS}
    with engine.connect() as connection:
        for row in connection.execute(select(RESULTS).order_by(RESULTS.c.id)):
            results[row.part].append(row.position)
    return results


def read_to_the_end(logs: Logs, engine: Engine) -> None:
    last = Worker(logs, engine)
    last.reader.assign(PARTITIONS)
    last.poll(RECORDS)
    last.end(None)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_interleaved_transactions(kind: str, level: str, request: pytest.FixtureRequest) -> None:
    """Steps of three consumers in random order; partitions often have two owners, or none."""
    url: URL = request.getfixturevalue(kind).fresh()
    with engine_for(url, isolation_level=level) as engine:
        for seed in range(6):
            RESULTS.create(engine)
            rng = Random(seed)
            logs: Logs = {partition: ["value"] * RECORDS for partition in PARTITIONS}
            workers = [Worker(logs, engine) for _ in range(3)]
            for _ in range(40):
                rng.choice(workers).act(rng)
            for worker in workers:
                with suppress(OffsetsMovedError):
                    worker.end(None)
            read_to_the_end(logs, engine)
            for partition, results in positions(engine).items():
                assert sorted(results) == list(range(RECORDS)), (
                    f"seed {seed}, partition {partition}"
                )
            with engine.begin() as connection:
                workers[0].offsets.store.delete(connection, "g")
            RESULTS.drop(engine)


def test_two_owners_at_the_same_time(engine: Engine) -> None:
    """Both read all partitions as fast as they can; the later one uses the saved offset."""
    RESULTS.create(engine)
    logs: Logs = {partition: ["value"] * RECORDS for partition in PARTITIONS}
    moved: list[OffsetsMovedError] = []
    failures: list[Exception] = []

    def consume(seed: int) -> None:
        rng = Random(seed)
        worker = Worker(logs, engine)
        worker.reader.assign(PARTITIONS)
        try:
            for _ in range(30):
                try:
                    worker.poll(rng.randint(1, 2))
                    worker.end(None)
                except OffsetsMovedError as error:
                    moved.append(error)
        except Exception as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [Thread(target=consume, args=[seed]) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    read_to_the_end(logs, engine)
    for results in positions(engine).values():
        assert sorted(results) == list(range(RECORDS))
