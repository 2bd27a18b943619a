"""A disk does not respond while logs are created, deleted or moved between log directories.

Requests get a response in bounded time, other directories and partitions are served, the disk is
used again when it responds, and the broker stops in bounded time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from penstock.broker.app import STOP_S
from penstock.broker.replica.log_dir_probe import PROBE_S
from penstock.broker.replica.log_dir_startup import STALL_S as STARTUP_STALL_S
from penstock.broker.replica.log_dir_startup import LogDirStartup
from penstock.broker.replica.log_lifecycle import CREATION_STALL_S, DELETION_S
from penstock.broker.replica.log_mover import STALL_S
from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.storage.manager.log_discovery import StrayLog
from tests.support.faults.simulated_broker import Machine, SimulatedBroker
from tests.support.protocol.requests import batch_of
from tests.support.storage.crash_nodes import CrashMode

FLUSHED = {"flush.messages": "1"}
PARTITIONS = 6
PROMPT_S = 2.0
"""What does not wait for the disk takes less, in simulated time."""
HANG_S = 600.0
CREATION_CALLS = ("sync", "sync_directory", "create", "rename")


def hang(machine: Machine, pattern: str, *operations: str) -> None:
    for operation in operations or CREATION_CALLS:
        machine.disk.hang_on(operation, pattern)


async def time_of(work: Awaitable[object]) -> float:
    """Returns how long it took; fails if it does not end."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.timeout(HANG_S):
        await work
    return loop.time() - start


def directory_of(broker: SimulatedBroker, topic: str, index: int = 0) -> str:
    directory = broker.broker.replicas.find(topic, index).log.directory
    return "/" + directory.split("/")[1]


async def partitions_in(broker: SimulatedBroker, topic: str, log_dir: str) -> list[int]:
    return [n for n in range(PARTITIONS) if directory_of(broker, topic, n) == log_dir]


async def produce_to_all(broker: SimulatedBroker, topic: str) -> None:
    for index in range(PARTITIONS):
        response = await broker.produce(topic, batch_of(b"served"), index)
        assert response.error_code == 0


async def delete_topic(broker: SimulatedBroker, topic: str) -> int:
    body = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5000)
    code: int = (await broker.request(body, 6)).responses[0].error_code
    return code


async def move(broker: SimulatedBroker, partition: TopicPartition, path: str) -> int:
    topic = AlterReplicaLogDirTopic(partition.topic, [partition.partition])
    body = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [topic])])
    code: int = (await broker.request(body, 2)).results[0].partitions[0].error_code
    return code


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.1)


# --- creation


@pytest.mark.parametrize("operation", CREATION_CALLS)
def test_logs_are_created_in_another_directory(operation: str) -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("others", PARTITIONS) == 0
        hang(machine, "/a/*", operation)
        if operation == "sync_directory":
            hang(machine, "/a", operation)
        creation = asyncio.create_task(broker.create_topic("first", PARTITIONS))
        await asyncio.sleep(1)
        await produce_to_all(broker, "others")
        assert not creation.done()
        assert await time_of(creation) < CREATION_STALL_S + PROMPT_S
        assert creation.result() == 0
        assert not await partitions_in(broker, "first", "/a")
        # The directory is known to hang: nothing waits for it any more.
        assert await time_of(broker.create_topic("second", PARTITIONS)) < PROMPT_S
        assert not await partitions_in(broker, "second", "/a")
        await produce_to_all(broker, "second")
        broker.release_hangs()
        await asyncio.sleep(1)
        assert not [name for name in machine.disk.names("/a") if name.startswith("first")]
        assert await broker.create_topic("third", PARTITIONS) == 0
        assert await partitions_in(broker, "third", "/a")

    machine.run(work)

    async def check(broker: SimulatedBroker) -> None:
        for topic in ("first", "second", "third"):
            await produce_to_all(broker, topic)

    machine.run(check)


def test_a_creation_is_refused_if_no_directory_responds(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("others", PARTITIONS) == 0
        hang(machine, "/[ab]/first-*")
        creation = asyncio.create_task(broker.create_topic("first", PARTITIONS))
        assert await time_of(creation) < CREATION_STALL_S + PROMPT_S
        assert creation.result() == ErrorCode.KAFKA_STORAGE_ERROR
        code = await broker.create_topic("second")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        await produce_to_all(broker, "others")
        broker.release_hangs()
        await asyncio.sleep(1)
        assert await broker.create_topic("first", PARTITIONS) == 0
        await produce_to_all(broker, "first")

    machine.run(work)
    assert "does not respond" in caplog.text or "the disk may hang" in caplog.text


def test_a_slow_creation_is_not_given_up() -> None:
    """Each log takes long, but there is progress."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        hang(machine, "/[ab]/slow-*", "sync_directory")
        started = asyncio.get_running_loop().time()
        creation = asyncio.create_task(broker.create_topic("slow", 4 * PARTITIONS))
        while not creation.done():
            await asyncio.sleep(3)
            assert machine.loop is not None
            machine.loop.release_jobs()
        assert asyncio.get_running_loop().time() - started > CREATION_STALL_S
        assert creation.result() == 0
        assert {directory_of(broker, "slow", index) for index in range(4)} == {"/a", "/b"}
        broker.release_hangs()

    machine.run(work)


# --- deletion


def test_a_deletion_that_hangs_delays_no_others() -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        for topic in ("first", "second", "others"):
            assert await broker.create_topic(topic, PARTITIONS) == 0
        hang(machine, "/a/*", "rename")
        hang(machine, "/a", "sync_directory")
        deletion = asyncio.create_task(delete_topic(broker, "first"))
        assert await time_of(deletion) < DELETION_S + PROMPT_S
        assert deletion.result() == 0
        assert await time_of(delete_topic(broker, "second")) < 2 * PROMPT_S
        # Also under the name that is being deleted.
        for topic in ("first", "third"):
            assert await time_of(broker.create_topic(topic, PARTITIONS)) < 2 * PROMPT_S
            assert not await partitions_in(broker, topic, "/a")
            await produce_to_all(broker, topic)
        await produce_to_all(broker, "others")
        broker.release_hangs()
        await asyncio.sleep(5)
        assert not [name for name in machine.disk.names("/a") if name.startswith("second")]
        assert broker.values("first", 0) == [b"served"]
        assert await broker.create_topic("fourth", PARTITIONS) == 0
        assert await partitions_in(broker, "fourth", "/a")

    machine.run(work)

    async def check(broker: SimulatedBroker) -> None:
        for topic in ("first", "third"):
            for index in range(PARTITIONS):
                assert broker.values(topic, index) == [b"served"]

    machine.run(check)


def test_a_topic_is_created_again_after_its_slow_deletion() -> None:
    """Its directory still has the name, in a log directory that counts as responding."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS) == 0
        hang(machine, "/[ab]/orders-*", "rename")
        deletion = asyncio.create_task(delete_topic(broker, "orders"))
        await until(lambda: "orders" not in broker.broker.image.topics)
        creation = asyncio.create_task(broker.create_topic("orders", PARTITIONS))
        await asyncio.sleep(5)
        assert not deletion.done()
        assert not creation.done()
        broker.release_hangs()
        assert await time_of(creation) < PROMPT_S
        assert (await deletion, creation.result()) == (0, 0)
        assert {directory_of(broker, "orders", index) for index in range(2)} == {"/a", "/b"}
        await produce_to_all(broker, "orders")

    machine.run(work)

    async def check(broker: SimulatedBroker) -> None:
        for index in range(PARTITIONS):
            assert broker.values("orders", index) == [b"served"]

    machine.run(check)


# --- moves


THREE_DIRS = {"log.dirs": "/a,/b,/c"}


@pytest.mark.parametrize("step", ["copy", "flush", "rename"])
def test_a_move_that_hangs_delays_no_others(step: str) -> None:
    """The partition that is moved is flushed after a while, although a move locks its files."""
    machine = Machine(settings=THREE_DIRS)

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS, FLUSHED) == 0
        assert await broker.create_topic("others", PARTITIONS, FLUSHED) == 0
        for topic in ("orders", "others"):
            await produce_to_all(broker, topic)
        (moved, *_) = await partitions_in(broker, "orders", "/a")
        (other, *_) = await partitions_in(broker, "others", "/a")
        if step == "copy":
            hang(machine, f"/b/orders-{moved}.*", "write", "create", "open")
        elif step == "flush":
            hang(machine, f"/b/orders-{moved}.*/*", "sync")
        else:
            hang(machine, f"/b/orders-{moved}.*-future", "rename")
        assert await move(broker, TopicPartition("orders", moved), "/b") == 0
        await asyncio.sleep(1)
        assert await move(broker, TopicPartition("others", other), "/c") == 0
        await until(lambda: directory_of(broker, "others", other) == "/c")
        await asyncio.sleep(STALL_S)
        assert directory_of(broker, "orders", moved) == "/a"
        assert await time_of(produce_to_all(broker, "orders")) < PROMPT_S
        assert await time_of(produce_to_all(broker, "others")) < PROMPT_S
        broker.release_hangs()
        await asyncio.sleep(5)
        if step != "rename":
            await until(lambda: directory_of(broker, "orders", moved) == "/b")
        else:  # it was cancelled, and can be requested again
            assert directory_of(broker, "orders", moved) == "/a"
            assert await move(broker, TopicPartition("orders", moved), "/b") == 0
            await until(lambda: directory_of(broker, "orders", moved) == "/b")
        await produce_to_all(broker, "orders")
        assert broker.values("orders", moved) == [b"served"] * 3

    machine.run(work)

    async def check(broker: SimulatedBroker) -> None:
        for index in range(PARTITIONS):
            assert broker.values("orders", index) == [b"served"] * 3

    machine.run(check)


# --- compaction


def test_a_compaction_that_hangs_delays_no_others(caplog: pytest.LogCaptureFixture) -> None:
    """S5: other directories are compacted, and this one when its disk responds again."""
    machine = Machine(settings={"log.cleaner.backoff.ms": "1000", "log.cleaner.enable": "true"})
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS, compacted) == 0
        hang(machine, "/a/*.cleaned", "create")
        for _ in range(40):
            for index in range(PARTITIONS):
                batch = batch_of(b"v" * 100, key=b"k")
                assert (await broker.produce("orders", batch, index)).error_code == 0

        def compacted_partitions(log_dir: str) -> list[int]:
            return [
                index
                for index in range(PARTITIONS)
                if directory_of(broker, "orders", index) == log_dir
                and len(broker.values("orders", index)) < 20
            ]

        await until(lambda: len(compacted_partitions("/b")) == PARTITIONS // 2, 10 * HANG_S)
        assert not compacted_partitions("/a")
        broker.release_hangs()
        await until(lambda: len(compacted_partitions("/a")) == PARTITIONS // 2, HANG_S)

    machine.run(work)
    assert caplog.text.count("the compaction in /a has made no progress") == 1


# --- start


def test_a_start_does_not_wait_for_a_disk_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """The directory is offline, with one line, and the others are used."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS) == 0
        await produce_to_all(broker, "orders")

    machine.run(work)
    hang(machine, "/b", "sync_directory")
    hang(machine, "/b/*", "open", "create", "rename", "sync", "sync_directory")

    async def check(broker: SimulatedBroker) -> None:
        for index in range(PARTITIONS):
            response = await broker.produce("orders", batch_of(b"more"), index)
            is_online = response.error_code == 0
            assert is_online or response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            if is_online:
                assert broker.values("orders", index) == [b"served", b"more"]
        assert await broker.create_topic("new", PARTITIONS) == 0
        assert await partitions_in(broker, "new", "/a") == list(range(PARTITIONS))

    caplog.clear()
    started = machine._now_s
    machine.run_and_kill(check)
    assert machine._now_s - started < PROBE_S + 10
    lines = [line for line in caplog.messages if "has not responded for 60 s" in line]
    assert len(lines) == 1


def hang_when_loading(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]) -> None:
    """Calls `begin` after the disks have responded to the first probe."""
    original = LogDirStartup.load

    async def load(*args: Any) -> list[StrayLog]:
        begin()
        return await original(*args)

    monkeypatch.setattr(LogDirStartup, "load", load)


@pytest.mark.parametrize("operation", ["open", "rename", "names"])
def test_a_disk_that_hangs_while_its_logs_are_loaded_is_offline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    """Others are served, and nothing is lost: after a restart the records are there (S7)."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS) == 0
        await produce_to_all(broker, "orders")

    machine.run_and_kill(work)
    with monkeypatch.context() as patches:

        def begin() -> None:
            for path in ("/b", "/b/*"):
                hang(machine, path, operation, "sync_directory")

        hang_when_loading(patches, begin)

        async def check(broker: SimulatedBroker) -> None:
            codes = [
                (await broker.produce("orders", batch_of(b"more"), index)).error_code
                for index in range(PARTITIONS)
            ]
            assert sorted(codes) == [0] * 3 + [ErrorCode.KAFKA_STORAGE_ERROR] * 3
            assert await broker.create_topic("new", PARTITIONS) == 0
            broker.release_hangs()
            await asyncio.sleep(10)
            assert not await partitions_in(broker, "new", "/b")

        started = machine._now_s
        machine.run(check)
        assert machine._now_s - started < STARTUP_STALL_S + PROBE_S + 30
    assert len([line for line in caplog.messages if "has not responded for 60 s" in line]) == 1

    async def check_all(broker: SimulatedBroker) -> None:
        for index in range(PARTITIONS):
            assert broker.values("orders", index)[0] == b"served"
        await produce_to_all(broker, "orders")

    machine.run(check_all)


def test_a_log_that_is_loaded_slowly_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk responds: recovery of a large log takes its time."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS) == 0
        await produce_to_all(broker, "orders")

    machine.run_and_kill(work)

    def begin() -> None:
        hang(machine, "/b/*", "open")
        loop = machine.loop
        assert loop is not None
        loop.call_later(10 * STARTUP_STALL_S, machine.disk.stop_hanging)
        loop.call_later(10 * STARTUP_STALL_S, loop.release_jobs)

    hang_when_loading(monkeypatch, begin)

    async def check(broker: SimulatedBroker) -> None:
        await produce_to_all(broker, "orders")

    started = machine._now_s
    machine.run(check)
    assert machine._now_s - started > 10 * STARTUP_STALL_S


def test_a_start_fails_if_no_disk_responds() -> None:
    machine = Machine()

    async def create(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0

    machine.run(create)
    hang(machine, "/[ab]", "sync_directory")

    async def work(broker: SimulatedBroker) -> None:
        raise AssertionError("it has started")

    with pytest.raises(KafkaStorageError, match="the disk of /a has not responded"):
        machine.run(work)


# --- stop


@pytest.mark.parametrize("work_on_disk", ["creation", "deletion", "move"])
def test_a_broker_stops_in_bounded_time(work_on_disk: str) -> None:
    machine = Machine()
    stopped: list[float] = []

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", PARTITIONS, FLUSHED) == 0
        assert await broker.create_topic("deleted", PARTITIONS) == 0
        await produce_to_all(broker, "orders")
        (moved, *_) = await partitions_in(broker, "orders", "/b")
        hang(machine, "/a/*")
        hang(machine, "/a", "sync_directory")
        requests = {
            "creation": lambda: broker.create_topic("new", PARTITIONS),
            "deletion": lambda: delete_topic(broker, "deleted"),
            "move": lambda: move(broker, TopicPartition("orders", moved), "/a"),
        }
        request = asyncio.create_task(requests[work_on_disk]())
        await asyncio.sleep(1)
        stopped.append(await time_of(broker.app.stop()))
        request.cancel()

    machine.run_and_kill(work)
    assert stopped[0] < CREATION_STALL_S + DELETION_S + 2 * STOP_S + 10
    machine.disk.heal()
    machine.disk = machine.disk.after_power_failure(CrashMode.DURABLE, Random(0))

    async def check(broker: SimulatedBroker) -> None:
        for index in range(PARTITIONS):
            assert broker.values("orders", index) == [b"served"]
        await produce_to_all(broker, "orders")
        assert await broker.create_topic("last", PARTITIONS) == 0

    machine.run(check)
