"""A sync of the disk does not return, for a long time or forever.

Other partitions are served, nothing is acknowledged that is not durable, requests that wait time
out and do not pile up, and the broker stops in bounded time. The disk and the clock are simulated.
"""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

import pytest

from penstock.broker.app import STOP_S
from penstock.broker.replica.delayed_produce import DurableResponse
from penstock.broker.replica.log_flusher import STALL_S
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from tests.support.faults.simulated_broker import LOG_DIRS, Machine, SimulatedBroker
from tests.support.faults.simulated_clients import commit_offset, fetch_offset
from tests.support.protocol.requests import batch_of
from tests.support.storage.crash_nodes import CrashMode

FLUSHED = {"flush.messages": "1"}
ORDERS = TopicPartition("orders", 0)
TIMEOUT_MS = 10_000
PARTITIONS = 12


async def create_topics(broker: SimulatedBroker) -> None:
    assert await broker.create_topic("orders", configs=FLUSHED) == 0
    assert await broker.create_topic("others", PARTITIONS, FLUSHED) == 0
    assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0


def hang_on(machine: Machine, partition: TopicPartition) -> None:
    machine.disk.hang_on("sync", f"/*/{partition}/*.log")


async def time_of(broker: SimulatedBroker, work: Awaitable[object]) -> float:
    """Returns how long the work takes, in simulated seconds."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await work
    return loop.time() - start


def test_a_request_that_waits_for_a_flush_times_out() -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        hang_on(machine, ORDERS)
        loop = asyncio.get_running_loop()
        started = loop.time()
        responses = await asyncio.gather(
            *(
                broker.produce("orders", batch_of(b"waits %d" % n), timeout_ms=TIMEOUT_MS)
                for n in range(3)
            )
        )
        assert {response.error_code for response in responses} == {ErrorCode.REQUEST_TIMED_OUT}
        assert TIMEOUT_MS / 1000 <= loop.time() - started < TIMEOUT_MS / 1000 + 1
        broker.release_hangs()
        response = await broker.produce("orders", batch_of(b"last"))
        assert response.error_code == 0
        assert broker.values("orders")[-1] == b"last"

    machine.run(work)


def test_other_partitions_are_flushed() -> None:
    """Also if more flushes of one directory hang than a pool has threads."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        log_dirs = {
            index: broker.broker.replicas.find("others", index).log.directory.split("/")[1]
            for index in range(PARTITIONS)
        }
        hanging = [index for index, name in log_dirs.items() if name == "a"]
        assert len(hanging) > 4
        for index in hanging:
            hang_on(machine, TopicPartition("others", index))
        waiting = [
            asyncio.create_task(broker.produce("others", batch_of(b"waits"), index))
            for index in hanging
        ]
        await asyncio.sleep(1)
        for index in log_dirs.keys() - hanging:
            took = await time_of(broker, broker.produce("others", batch_of(b"served"), index))
            assert took < 1
        # Cold reads of the directory whose syncs hang, and its checkpoints, are not delayed.
        assert (await broker.fetch(TopicPartition("others", hanging[0]), 0)).error_code == 0
        await asyncio.sleep(10)
        assert not any(task.done() for task in waiting)
        broker.release_hangs()
        for task in waiting:
            assert (await task).error_code == 0

    machine.run(work)


def test_a_checkpoint_that_hangs_delays_no_other_directory() -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        machine.disk.hang_on("sync", "/a/*checkpoint*")
        await asyncio.sleep(10)
        before = machine.disk.read_file("/b/recovery-point-offset-checkpoint")
        for index in range(PARTITIONS):
            assert (await broker.produce("others", batch_of(b"more"), index)).error_code == 0
        await asyncio.sleep(10)
        assert machine.disk.read_file("/b/recovery-point-offset-checkpoint") != before
        broker.release_hangs()

    machine.run(work)


def test_a_stalled_log_accepts_no_records_until_its_flush_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        hang_on(machine, ORDERS)
        first = await broker.produce("orders", batch_of(b"waits"), timeout_ms=TIMEOUT_MS)
        assert first.error_code == ErrorCode.REQUEST_TIMED_OUT
        await asyncio.sleep(STALL_S)
        log = broker.broker.replicas.find(*ORDERS).log
        end_offset = log.log_end_offset
        for _ in range(3):
            response = await broker.produce("orders", batch_of(b"refused"))
            assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log.log_end_offset == end_offset
        assert (await broker.fetch(ORDERS, 0)).error_code == 0
        broker.release_hangs()
        await asyncio.sleep(1)
        assert (await broker.produce("orders", batch_of(b"last"))).error_code == 0
        assert log.failure is None

    machine.run(work)
    assert caplog.text.count("orders-0 accepts no records: its flush has been running") == 1
    assert "the flush of orders-0 has ended after" in caplog.text


def test_nothing_is_kept_of_clients_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(has_network=True)
    responses: list[DurableResponse] = []
    create = DurableResponse.__init__

    def note(response: DurableResponse, *args: Any) -> None:
        responses.append(response)
        create(response, *args)

    monkeypatch.setattr(DurableResponse, "__init__", note)

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        hang_on(machine, ORDERS)
        for _ in range(50):
            request = asyncio.create_task(broker.produce("orders", batch_of(b"waits")))
            await asyncio.sleep(0.1)
            broker.disconnect()
            await asyncio.wait([request])
            assert request.exception() is not None
        await asyncio.sleep(5)
        assert broker.app._workers.memory.used == 0
        assert len(responses) > 50
        assert not any(response._flushes or response._response for response in responses)
        broker.release_hangs()

    machine.run(work)


def test_a_coordinator_whose_flush_hangs_responds_and_recovers() -> None:
    machine = Machine(settings={"log.flush.interval.messages": "1"})

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0
        assert await commit_offset(broker, "readers", ORDERS, 1) == 0
        groups = broker.broker.groups
        partition = groups.partition_for("readers")
        assert partition is not None
        hang_on(machine, TopicPartition("__consumer_offsets", partition))
        took = await time_of(broker, commit_offset(broker, "readers", ORDERS, 2))
        assert 5 <= took < 10
        for _ in range(20):
            code = await commit_offset(broker, "readers", ORDERS, 3)
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not groups._waiting, "requests that have their response still wait"
        code, _ = await fetch_offset(broker, "readers", ORDERS)
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.release_hangs()
        await asyncio.sleep(1)
        assert await fetch_offset(broker, "readers", ORDERS) == (0, 2)
        assert await commit_offset(broker, "readers", ORDERS, 4) == 0

    machine.run(work)


@pytest.mark.parametrize(
    "pattern",
    ["/*/orders-0/*.log", "/a/*", "/[ab]/others-[0-9]/*"],
    ids=["one log", "a directory", "many logs"],
)
def test_a_broker_stops_in_bounded_time(pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    stopped: list[float] = []
    acknowledged: list[int] = []

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        for operation in ("sync", "sync_directory"):
            machine.disk.hang_on(operation, pattern)
        waiting = [
            asyncio.create_task(broker.produce(topic, batch_of(b"waits"), index))
            for topic, index in (("orders", 0), *(("others", n) for n in range(PARTITIONS)))
        ]
        await asyncio.sleep(1)
        assert not all(task.done() for task in waiting)
        took = await time_of(broker, broker.app.stop())
        stopped.append(took)
        is_acknowledged = [task.done() and not task.result().error_code for task in waiting]
        assert not all(is_acknowledged)
        for task in waiting:
            task.cancel()
        acknowledged.extend(n - 1 for n in range(1, PARTITIONS + 1) if is_acknowledged[n])

    machine.run_and_kill(work)
    assert stopped[0] <= 2 * STOP_S + 10
    assert "a disk may hang. The broker stops without waiting for it" in caplog.text
    machine.disk.heal()
    machine.disk = machine.disk.after_power_failure(CrashMode.DURABLE, Random(0))

    async def check(broker: SimulatedBroker) -> None:
        assert broker.values("orders")[0] == b"first"
        for index in acknowledged:
            assert broker.values("others", index) == [b"waits"]
        assert (await broker.produce("orders", batch_of(b"last"))).error_code == 0

    machine.run(check)


def test_the_directories_that_do_not_hang_are_closed_cleanly() -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        await create_topics(broker)
        directory = broker.broker.replicas.find(*ORDERS).log.directory
        hang_on(machine, ORDERS)
        request = asyncio.create_task(broker.produce("orders", batch_of(b"waits")))
        await asyncio.sleep(1)
        await broker.app.stop()
        request.cancel()
        for log_dir in LOG_DIRS:
            is_clean = machine.disk.exists(f"{log_dir}/.kafka_cleanshutdown")
            assert is_clean != directory.startswith(log_dir)

    machine.run_and_kill(work)
