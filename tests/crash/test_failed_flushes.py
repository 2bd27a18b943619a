"""A failed flush is never followed by an acknowledgement of durability (S7).

The kernel reports an error of a write-back once. The next sync of the same file succeeds, although
the data is not on the disk.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from tests.support.faults.simulated_broker import Machine, SimulatedBroker
from tests.support.faults.simulated_clients import (
    TRANSACTION,
    TransactionalProducer,
    commit_offset,
    fetch_offset,
    find_coordinator,
)
from tests.support.protocol.requests import batch_of
from tests.support.storage.crash_nodes import CrashMode

FLUSHED = {"flush.messages": "1"}
ORDERS = TopicPartition("orders", 0)


def machine_with_a_record() -> Machine:
    """One topic whose records are acknowledged when they are durable, with one record."""

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", configs=FLUSHED) == 0
        response = await broker.produce("orders", batch_of(b"first"))
        assert response.error_code == 0

    machine = Machine()
    machine.run(work)
    return machine


FAILURES = {
    "the records": ("sync", "/*/orders-0/*.log"),
    "the directory": ("sync_directory", "/*/orders-0"),
    "the leader epochs": ("sync", "/*/orders-0/leader-epoch-checkpoint.tmp"),
    "the rename of the leader epochs": ("rename", "/*/orders-0/leader-epoch-checkpoint.tmp"),
}


@pytest.mark.parametrize(("operation", "pattern"), FAILURES.values(), ids=list(FAILURES))
@pytest.mark.parametrize("stop", [Machine.run, Machine.run_and_kill], ids=["stop", "kill"])
def test_a_failed_sync_is_followed_by_no_acknowledgement(
    operation: str, pattern: str, stop: Callable[..., object]
) -> None:
    machine = machine_with_a_record()

    async def work(broker: SimulatedBroker) -> None:
        log = broker.broker.replicas.find(*ORDERS).log
        recovery_point = log.recovery_point
        machine.disk.fail_next(operation, pattern)
        responses = await asyncio.gather(
            *(broker.produce("orders", batch_of(b"lost %d" % number)) for number in range(3))
        )
        assert {response.error_code for response in responses} == {ErrorCode.KAFKA_STORAGE_ERROR}
        later = await broker.produce("orders", batch_of(b"later"))
        assert later.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert later.error_message
        await asyncio.sleep(10)
        assert log.recovery_point == recovery_point
        with pytest.raises(Exception, match="orders-0 is offline"):
            log.flush()

    stop(machine, work)
    assert machine.disk.faults_hit
    machine.disk.heal()
    machine.disk = machine.disk.after_power_failure(CrashMode.DURABLE, Random(0))

    async def check(broker: SimulatedBroker) -> None:
        assert broker.values("orders") == [b"first"]
        response = await broker.produce("orders", batch_of(b"second"))
        assert response.error_code == 0

    machine.run(check)


def flushing_machine() -> Machine:
    """A broker that acknowledges nothing before it is durable."""
    machine = Machine(settings={"log.flush.interval.messages": "1"})

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0

    machine.run(work)
    return machine


def cut_the_power(machine: Machine) -> None:
    machine.disk.heal()
    machine.disk = machine.disk.after_power_failure(CrashMode.DURABLE, Random(0))


def test_an_offset_is_not_acknowledged_after_a_failed_sync() -> None:
    machine = flushing_machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await commit_offset(broker, "readers", ORDERS, 1) == 0
        machine.disk.fail_next("sync", "/*/__consumer_offsets-*/*.log")
        codes = await asyncio.gather(
            *(commit_offset(broker, "readers", ORDERS, offset) for offset in (2, 3))
        )
        assert all(codes)
        assert await commit_offset(broker, "readers", ORDERS, 4)
        code, offset = await fetch_offset(broker, "readers", ORDERS)
        assert code, f"offset {offset} is not durable, and was returned"

    machine.run(work)
    cut_the_power(machine)

    async def check(broker: SimulatedBroker) -> None:
        assert await fetch_offset(broker, "readers", ORDERS) == (0, 1)
        assert await commit_offset(broker, "readers", ORDERS, 5) == 0

    machine.run(check)


async def id_in_another_directory(broker: SimulatedBroker, directory: str) -> str:
    """Returns a transactional id whose coordinator's log is in another log directory."""
    await find_coordinator(broker, "any", TRANSACTION)
    for number in range(20):
        transactional_id = f"payments {number}"
        partition = broker.broker.transactions.partition_for(transactional_id)
        assert partition is not None
        log = broker.broker.replicas.find("__transaction_state", partition).log
        if Path(log.directory).parent != Path(directory).parent:
            return transactional_id
    raise AssertionError("all partitions are in one directory")


def test_no_marker_is_written_for_a_decision_that_is_not_durable() -> None:
    machine = flushing_machine()

    async def work(broker: SimulatedBroker) -> None:
        log = broker.broker.replicas.find(*ORDERS).log
        transactional_id = await id_in_another_directory(broker, log.directory)
        producer = TransactionalProducer(broker, transactional_id)
        assert await producer.init() == 0
        assert (await producer.produce(ORDERS, b"paid")).error_code == 0
        end_offset = log.log_end_offset
        machine.disk.fail_next("sync", "/*/__transaction_state-*/*.log")
        assert await producer.end(commit=True)
        await asyncio.sleep(60)
        assert log.failure is None
        assert log.log_end_offset == end_offset
        assert await producer.end(commit=True)

    machine.run(work)
    cut_the_power(machine)

    async def check(broker: SimulatedBroker) -> None:
        await asyncio.sleep(60)
        log = broker.broker.replicas.find(*ORDERS).log
        assert log.last_stable_offset == log.log_end_offset, "the transaction did not end"
        assert len(log.aborted_transactions(0, log.log_end_offset)) == 1

    machine.run(check)


def test_a_marker_whose_flush_failed_is_written_again() -> None:
    machine = flushing_machine()

    async def work(broker: SimulatedBroker) -> None:
        producer = TransactionalProducer(broker, "payments")
        assert await producer.init() == 0
        assert (await producer.produce(ORDERS, b"paid")).error_code == 0
        machine.disk.fail_next("sync", "/*/orders-0/*.log")
        assert await producer.end(commit=True) == 0
        await asyncio.sleep(60)

    machine.run(work)
    cut_the_power(machine)

    async def check(broker: SimulatedBroker) -> None:
        await asyncio.sleep(60)
        log = broker.broker.replicas.find(*ORDERS).log
        assert log.last_stable_offset == log.log_end_offset, "the transaction did not end"
        assert broker.values("orders") == [b"paid"]
        assert not log.aborted_transactions(0, log.log_end_offset)

    machine.run(check)


@pytest.mark.parametrize("stop", [Machine.run, Machine.run_and_kill], ids=["stop", "kill"])
def test_what_a_restart_finds_after_a_failed_sync_is_written_again(
    stop: Callable[..., object],
) -> None:
    """The kernel still has the pages that it could not write, and takes them for written."""
    machine = machine_with_a_record()
    machine.segment_bytes = 1_000_000

    async def fail(broker: SimulatedBroker) -> None:
        machine.disk.fail_next("sync", "/*/orders-0/*.log")
        response = await broker.produce("orders", batch_of(b"not durable" * 1000))
        assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    stop(machine, fail)

    async def work(broker: SimulatedBroker) -> None:
        response = await broker.produce("orders", batch_of(b"durable" * 1000))
        assert response.error_code == 0

    stop(machine, work)
    cut_the_power(machine)

    async def check(broker: SimulatedBroker) -> None:
        assert broker.values("orders")[-1] == b"durable" * 1000

    machine.run(check)
