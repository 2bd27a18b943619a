"""A disk does not respond while the end of a transaction is written to its partitions.

A request waits for the disk for a few seconds, and at once gets an error while the same flush is
still running; other partitions get their markers, and the transaction ends when the disk continues.
"""

import asyncio

from penstock.broker.coordinator.transaction_markers import FLUSH_TIMEOUT_S
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.faults.simulated_broker import Machine, SimulatedBroker
from tests.support.faults.simulated_clients import TransactionalProducer

FLUSHED = {"flush.messages": "1"}
PARTITIONS = 3
HANGING = (0, 1)


async def write_markers(
    broker: SimulatedBroker, producers: list[TransactionalProducer]
) -> dict[tuple[int, int], ErrorCode]:
    """Aborts transactions in all partitions; returns the error of each producer and partition."""
    topic = WritableTxnMarkerTopic("orders", list(range(PARTITIONS)))
    markers = [
        WritableTxnMarker(producer.producer_id, producer.epoch, False, [topic], 0)
        for producer in producers
    ]
    response = await broker.request(WriteTxnMarkersRequest(markers), 1)
    return {
        (result.producer_id, partition.partition_index): ErrorCode(partition.error_code)
        for result in response.markers
        for partition in result.topics[0].partitions
    }


async def begin_transactions(broker: SimulatedBroker, count: int) -> list[TransactionalProducer]:
    assert await broker.create_topic("orders", PARTITIONS, FLUSHED) == 0
    producers = [TransactionalProducer(broker, f"writer-{n}") for n in range(count)]
    for producer in producers:
        assert await producer.init(60_000) == 0
        for index in range(PARTITIONS):
            response = await producer.produce(TopicPartition("orders", index), b"record")
            assert response.error_code == 0
    return producers


def hang(machine: Machine) -> None:
    for index in HANGING:
        machine.disk.hang_on("sync", f"/*/orders-{index}/*.log")


def test_markers_wait_for_the_disk_for_a_limited_time() -> None:
    """All markers of a request together: each would delay those of the transactions behind it."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        first, second, third = await begin_transactions(broker, 3)
        hang(machine)
        loop = asyncio.get_running_loop()
        started = loop.time()
        errors = await write_markers(broker, [first, second])
        assert FLUSH_TIMEOUT_S <= loop.time() - started < FLUSH_TIMEOUT_S + 1
        assert errors[first.producer_id, 2] is ErrorCode.NONE
        for producer in (first, second):
            for index in HANGING:
                assert errors[producer.producer_id, index] is ErrorCode.REQUEST_TIMED_OUT
        # While the flush is running, nothing is appended and nothing waits for it.
        ends = [broker.broker.replicas.find("orders", index).log.log_end_offset for index in (0, 1)]
        started = loop.time()
        for _ in range(5):
            errors = await write_markers(broker, [third])
            assert errors[third.producer_id, 0] is ErrorCode.REQUEST_TIMED_OUT
            assert errors[third.producer_id, 2] is ErrorCode.NONE
        assert loop.time() - started < 1
        for index, end in zip(HANGING, ends, strict=True):
            assert broker.broker.replicas.find("orders", index).log.log_end_offset == end
        broker.release_hangs()
        await asyncio.sleep(1)
        errors = await write_markers(broker, [first, second, third])
        assert set(errors.values()) == {ErrorCode.NONE}

    machine.run(work)


def test_a_transaction_ends_when_the_disk_continues() -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        first, second = await begin_transactions(broker, 2)
        hang(machine)
        assert await first.end(commit=True) == 0
        await asyncio.sleep(20)
        # The coordinator is not blocked: other transactions are decided, and get their markers
        # where the disk responds.
        assert await second.end(commit=True) == 0
        await asyncio.sleep(5)
        healthy = broker.broker.replicas.find("orders", 2).log
        assert healthy.last_stable_offset == healthy.log_end_offset
        broker.release_hangs()
        await asyncio.sleep(5)
        for index in range(PARTITIONS):
            log = broker.broker.replicas.find("orders", index).log
            assert log.last_stable_offset == log.log_end_offset
        assert await first.init() == 0

    machine.run(work)
