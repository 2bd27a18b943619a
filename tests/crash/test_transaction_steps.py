"""A broker that dies before, after and in the middle of every append of a transaction (P4, S7).

A script of transactions runs against a broker that dies at its n-th append: to
`__transaction_state`, to a partition, or of a marker. The next broker loads the logs, and one of
three things happens: the producers send their requests again, other producers replace them, or no
producer returns and the transactions time out. In the end each transaction is entirely committed or
entirely aborted, in every partition and in the group's offsets, as its producer was notified.

`PENSTOCK_CRASH_SEEDS=1` tries every append, moment and continuation instead of some.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from enum import Enum
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.broker.coordinator.log import append_records
from penstock.coordinator.txn.metadata import MAX_EPOCH, record_of
from penstock.coordinator.txn.records import encode_record
from penstock.records.batch import split
from tests.crash.harness import SEEDS
from tests.support.broker.dying_broker import DIED, BrokerForge, Death, DyingBroker, Moment
from tests.support.broker.in_process import RunningBroker, running_broker
from tests.support.coordinator.transaction_client import Generation
from tests.support.coordinator.transaction_script import (
    SETTINGS,
    Account,
    BrokerDiedError,
    ScriptRunner,
)

pytestmark = pytest.mark.long

LOOKS_FOR_TIMEOUTS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
PATIENT = {**SETTINGS, LOOKS_FOR_TIMEOUTS: "600000"}
STRICT = {**SETTINGS, LOOKS_FOR_TIMEOUTS: "10"}
MOMENTS: tuple[Moment, ...] = ("before", "after", "torn")
FEW = 5
"""Points of each script that are tried every day."""


class Continuation(Enum):
    """What happens after the crash."""

    SAME_PRODUCERS = 1
    """They send the requests without a response again, and continue."""
    NEW_PRODUCERS = 2
    """With the same transactional ids: open transactions are aborted."""
    TIMEOUT = 3
    """No producer returns; the coordinator aborts the open transactions."""


# --- scripts


@contextmanager
def preparing(
    directory: Path, account: Account | None = None
) -> Iterator[tuple[RunningBroker, ScriptRunner]]:
    """A broker of this process, which stops well in the end."""

    with running_broker(directory, PATIENT) as broker:
        runner = ScriptRunner(broker.connect, not_to_die, account)
        try:
            yield broker, runner
        finally:
            runner.close()


def topics_only(directory: Path) -> Account:
    with preparing(directory) as (_, runner):
        runner.make_topics()
        return runner.account


def commits_and_aborts(runner: ScriptRunner, generation: Generation) -> None:
    runner.producer("x", generation)
    runner.whole("x", commit=True)
    runner.whole("x", commit=False)
    runner.whole("x", commit=True)


def two_producers(runner: ScriptRunner) -> None:
    """Their transactions overlap in the same partitions."""
    runner.producer("x")
    runner.producer("y", Generation.V1)
    for commit in (True, False):
        first, second = runner.begin("x"), runner.begin("y")
        runner.write(first, [0, 1])
        runner.write(second, [1, 2])
        runner.commit_offset(first)
        runner.write(first, [1, 2])
        runner.commit_offset(second)
        runner.end(second, commit=commit)
        runner.end(first, commit=not commit)
        runner.finish(first)
        runner.finish(second)


def fencing(runner: ScriptRunner) -> None:
    """A producer is replaced in the middle of its transaction."""
    runner.producer("x")
    remaining = runner.begin("x")
    runner.write(remaining)
    runner.commit_offset(remaining)
    runner.producer("x")
    runner.whole("x", commit=True)


def almost_out_of_epochs(directory: Path) -> Account:
    """x has one epoch left, y has none."""
    with preparing(directory) as (broker, runner):
        runner.make_topics()
        runner.producer("x")
        runner.producer("y", Generation.V1)
        broker.call(lambda inside: wear_out(inside, "x", MAX_EPOCH - 2))
        broker.call(lambda inside: wear_out(inside, "y", MAX_EPOCH - 1))
        return runner.account


def wear_out(inside: Broker, transactional_id: str, epoch: int) -> None:
    """The coordinator will find in its log that so many epochs have been used."""
    coordinator = inside.transactions
    partition = coordinator.partition_for(transactional_id)
    assert partition is not None
    shard = coordinator._shards[partition]
    assert shard is not None
    worn = replace(shard.transactions[transactional_id], producer_epoch=epoch)
    record = encode_record(record_of(worn, 2))
    replica = inside.replicas.find(coordinator.topic, partition)
    append_records(replica, [record], worn.last_update_ms, atomic=True)


def out_of_epochs(runner: ScriptRunner) -> None:
    """Both get another producer id: one with the end of its transaction, one at its start."""
    runner.producer("x")
    runner.producer("y", Generation.V1)
    for name, commit in (("x", True), ("x", False), ("y", True)):
        runner.whole(name, commit=commit)


def left_open(directory: Path) -> Account:
    """Of x, and of y, which has used all its epochs."""
    with preparing(directory) as (broker, runner):
        runner.make_topics()
        runner.producer("y")
        broker.call(lambda inside: wear_out(inside, "y", MAX_EPOCH - 2))
    with preparing(directory, runner.account) as (broker, runner):
        for name in ("x", "y"):
            runner.producer(name)
            transaction = runner.begin(name)
            runner.write(transaction)
            runner.commit_offset(transaction)
        return runner.account


def out_of_time(runner: ScriptRunner) -> None:
    """The coordinator aborts them automatically."""
    runner.wait_until_decided()


class Script(NamedTuple):
    prepare: Callable[[Path], Account]
    """Makes the data that the script starts with."""
    run: Callable[[ScriptRunner], None]
    settings: dict[str, str] = PATIENT


SCRIPTS = {
    "version 1": Script(topics_only, lambda runner: commits_and_aborts(runner, Generation.V1)),
    "version 2": Script(topics_only, lambda runner: commits_and_aborts(runner, Generation.V2)),
    "two producers": Script(topics_only, two_producers),
    "fencing": Script(topics_only, fencing),
    "epochs": Script(almost_out_of_epochs, out_of_epochs),
    "timeouts": Script(left_open, out_of_time, STRICT),
}


# --- crashes


class Point(NamedTuple):
    deaths: tuple[Death, ...]
    """Of the broker, and of the one that comes after it, if that dies too."""
    continuation: Continuation


class CrashRun:
    """One script with its crashes, and what follows."""

    def __init__(
        self, forge: BrokerForge, directory: Path, script: Script, point: Point, account: Account
    ) -> None:
        self._forge = forge
        self._directory = directory
        self._script = script
        self._deaths = list(point.deaths)
        self._continuation = point.continuation
        self._resumes = point.continuation is Continuation.SAME_PRODUCERS
        """Whether a broker that has died is followed by the next one at once."""
        self._has_died = False
        self._settings = script.settings
        self._broker = self._start()
        self._runner = ScriptRunner(lambda: self._broker.connect(), self._died, account)

    def run(self) -> None:
        try:
            try:
                self._script.run(self._runner)
            except BrokerDiedError:
                self._recover()
            assert self._has_died, "there is no such append"
            self._runner.wait_until_decided()
            self._runner.check(is_complete=self._continuation is Continuation.SAME_PRODUCERS)
            self._run_further_transactions()
        finally:
            self._runner.close()
            self._broker.kill()
        assert "Traceback" not in (self._directory / "broker.log").read_text()

    def _start(self) -> DyingBroker:
        death = self._deaths[0] if self._deaths else None
        return self._forge.start(self._directory, self._settings, death)

    def _died(self) -> None:
        assert self._broker.wait() == DIED
        self._deaths.pop(0)
        self._has_died = True
        if not self._resumes:
            raise BrokerDiedError
        self._broker = self._start()

    def _recover(self) -> None:
        self._resumes = True
        if self._continuation is Continuation.TIMEOUT:
            self._settings = STRICT
        self._broker = self._start()
        if self._continuation is Continuation.NEW_PRODUCERS:
            for name in self._names():
                self._runner.producer(name)

    def _run_further_transactions(self) -> None:
        """Runs further transactions, which must succeed."""
        for name in self._names():
            self._runner.producer(name, timeout_ms=60_000)
            self._runner.whole(name, commit=True)
        self._runner.check(is_complete=self._continuation is Continuation.SAME_PRODUCERS)

    def _names(self) -> list[str]:
        return sorted(
            {transaction.transactional_id for transaction in self._runner.account.transactions}
        )


class Stage:
    """The data of a script, of which every point gets a copy."""

    def __init__(self, forge: BrokerForge, directory: Path, script: Script) -> None:
        self._forge = forge
        self._directory = directory
        self._script = script
        self._account = script.prepare(directory / "prepared")
        self._before = batches_in(directory / "prepared")

    def appends(self) -> int:
        """Returns the number of appends when the broker does not die."""
        with self._copy() as directory:
            broker = self._forge.start(directory, self._script.settings)
            runner = ScriptRunner(broker.connect, not_to_die, deepcopy(self._account))
            try:
                self._script.run(runner)
            finally:
                runner.close()
                broker.kill()
            return batches_in(directory) - self._before

    def try_point(self, point: Point) -> None:
        with self._copy() as directory:
            account = deepcopy(self._account)
            CrashRun(self._forge, directory, self._script, point, account).run()

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        directory = self._directory / "completed"
        shutil.copytree(self._directory / "prepared", directory)
        try:
            yield directory
        finally:
            shutil.rmtree(directory)


def batches_in(directory: Path) -> int:
    return sum(1 for file in directory.rglob("*.log") for _ in split(file.read_bytes()))


def not_to_die() -> None:
    raise BrokerDiedError


def all_points(appends: int) -> list[Point]:
    second = cycle([(), (Death(1, "after"),), (Death(2, "before"),), (Death(1, "torn"),)])
    return [
        Point((Death(step, moment), *next(second)), continuation)
        for step, moment, continuation in product(range(1, appends + 1), MOMENTS, Continuation)
    ]


@pytest.fixture(scope="module")
def forge() -> Iterator[BrokerForge]:
    with BrokerForge() as broker:
        yield broker


@pytest.mark.timeout(3600 if SEEDS else 300)
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_step(
    forge: BrokerForge,
    tmp_path: Path,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    """P4, S7: entirely committed or entirely aborted, wherever the broker died."""
    stage = Stage(forge, tmp_path, SCRIPTS[name])
    points = all_points(stage.appends())
    chosen = points if SEEDS else Random(name).sample(points, FEW)
    for number, point in enumerate(chosen):
        try:
            stage.try_point(point)
        except BaseException as error:
            error.add_note(f"{name}, {number + 1} of {len(chosen)} points: {point}")
            raise
    record_property("points", f"{len(chosen)} of {len(points)}")
