"""A flush meets a full disk: what was acknowledged stays readable, and it works again with room."""

import asyncio
import errno

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.faults.simulated_broker import Machine, SimulatedBroker
from tests.support.faults.simulated_clients import (
    TransactionalProducer,
    commit_offset,
    fetch_offset,
)
from tests.support.protocol.requests import batch_of
from tests.support.storage.batches import iter_records

ORDERS = TopicPartition("orders", 0)
LATEST = -1


async def fetched_values(broker: SimulatedBroker, offset: int = 0) -> list[bytes | None]:
    response = await broker.fetch(ORDERS, offset)
    assert response.error_code == 0
    data = response.records
    if data is not None and not isinstance(data, bytes):
        data = data.read()
    return [record.value for record in iter_records(data or b"")]


async def latest_offset(broker: SimulatedBroker) -> int:
    partition = ListOffsetsPartition(0, timestamp=LATEST)
    body = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("orders", [partition])])
    result = (await broker.request(body, 6)).topics[0].partitions[0]
    assert result.error_code == 0
    offset: int = result.offset
    return offset


@pytest.mark.parametrize(
    ("flush_messages", "readable"),
    [(1, [b"first"]), (3, [b"first", b"second", b"third"])],
    ids=["every record is flushed", "every third record is flushed"],
)
def test_what_was_acknowledged_stays_readable(flush_messages: int, readable: list[bytes]) -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        configs = {"flush.messages": str(flush_messages)}
        assert await broker.create_topic("orders", configs=configs) == 0
        if flush_messages == 1:
            assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0
        machine.disk.fail("sync", "/*/orders-0/*.log", errno.ENOSPC)
        machine.disk.fail("write", "/*/orders-0/*.log", errno.ENOSPC, after=3)
        if flush_messages > 1:
            assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0
            assert (await broker.produce("orders", batch_of(b"second"))).error_code == 0
            readable[2:] = []
        refused = await broker.produce("orders", batch_of(b"refused"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(20):
            assert await fetched_values(broker) == readable
            assert await fetched_values(broker, len(readable)) == []
            assert await latest_offset(broker) == len(readable)
            response = await broker.produce("orders", batch_of(b"refused"))
            assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "free space" in response.error_message
            await asyncio.sleep(1)
        machine.disk.heal()
        await asyncio.sleep(10)
        assert (await broker.produce("orders", batch_of(b"last"))).error_code == 0
        # What was refused after its append was written again, and is durable now.
        assert await fetched_values(broker) == [*readable, b"refused", b"last"]

    machine.run(work)


def test_reads_get_no_records_while_the_log_is_recovered() -> None:
    machine = Machine()
    machine.max_job_ms = 2000

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders", configs={"flush.messages": "1"}) == 0
        assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0
        machine.disk.fail_next("sync", "/*/orders-0/*.log", errno.ENOSPC)
        refused = await broker.produce("orders", batch_of(b"refused"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        stopped_log = broker.broker.replicas.find(*ORDERS).log_to_read
        results = []
        while stopped_log.successor is None:
            results.append((stopped_log.guard.is_recovering, await fetched_values(broker)))
            await asyncio.sleep(0.01)
        assert results[0] == (False, [b"first"])
        assert (True, []) in results
        assert all(not values for is_recovering, values in results if is_recovering)
        await asyncio.sleep(1)
        assert await fetched_values(broker) == [b"first", b"refused"]

    machine.run(work)


def test_coordinators_continue_when_there_is_room() -> None:
    machine = Machine(settings={"log.flush.interval.messages": "1"})

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0
        assert await commit_offset(broker, "readers", ORDERS, 1) == 0
        producer = TransactionalProducer(broker, "payments")
        assert await producer.init() == 0
        machine.disk.fail("sync", "/*/__*/*.log", errno.ENOSPC)
        assert await commit_offset(broker, "readers", ORDERS, 2)
        assert await TransactionalProducer(broker, "payments").init()
        machine.disk.heal()
        await asyncio.sleep(20)
        assert await fetch_offset(broker, "readers", ORDERS) in ((0, 1), (0, 2))
        assert await commit_offset(broker, "readers", ORDERS, 3) == 0
        assert await TransactionalProducer(broker, "payments").init() == 0

    machine.run(work)


def test_a_broker_that_starts_on_a_full_disk_recovers_without_a_restart() -> None:
    """Records, committed offsets and transactions are back when there is room."""
    machine = Machine()

    async def write(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0
        assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0
        assert await commit_offset(broker, "readers", ORDERS, 1) == 0
        assert await TransactionalProducer(broker, "payments").init() == 0

    async def recover(broker: SimulatedBroker) -> None:
        response = await broker.produce("orders", batch_of(b"refused"))
        assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await commit_offset(broker, "readers", ORDERS, 2)
        await asyncio.sleep(20)
        machine.disk.heal()
        await asyncio.sleep(20)
        assert await fetched_values(broker) == [b"first"]
        assert (await broker.produce("orders", batch_of(b"last"))).error_code == 0
        assert await fetched_values(broker) == [b"first", b"last"]
        assert await fetch_offset(broker, "readers", ORDERS) == (0, 1)
        assert await commit_offset(broker, "readers", ORDERS, 3) == 0
        assert await TransactionalProducer(broker, "payments").init() == 0

    machine.run(write)
    for partition in ("orders-0", "__consumer_offsets-*", "__transaction_state-*"):
        # The active segment's indexes get their full size when it is opened.
        machine.disk.fail("map", f"/*/{partition}/*", errno.ENOSPC)
        machine.disk.fail("reserve", f"/*/{partition}/*", errno.ENOSPC)
        machine.disk.fail("create", f"/*/{partition}/*", errno.ENOSPC)
        machine.disk.fail("write", f"/*/{partition}/*", errno.ENOSPC)
    machine.run(recover)


def test_a_replica_without_a_log_gets_one_when_there_is_room() -> None:
    """The disk of a broker was replaced, and the new one was full when the broker started."""
    machine = Machine()

    async def create(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0

    async def recover(broker: SimulatedBroker) -> None:
        response = await broker.produce("orders", batch_of(b"refused"))
        assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(20)
        machine.disk.heal()
        await asyncio.sleep(10)
        assert (await broker.produce("orders", batch_of(b"first"))).error_code == 0
        assert await fetched_values(broker) == [b"first"]

    machine.run(create)
    for directory in machine.disk.names("/"):
        machine.disk.remove_directory(f"/{directory}/orders-0")
    machine.disk.fail("create", "/*/orders-0/*", errno.ENOSPC)
    machine.run(recover)
