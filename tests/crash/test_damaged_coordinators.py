"""A damaged batch in the log of a coordinator: only what the batch stated is lost, and loudly."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.batch import split
from tests.support.faults.simulated_broker import Machine, SimulatedBroker
from tests.support.faults.simulated_clients import (
    TransactionalProducer,
    commit_offset,
    fetch_offset,
)

ORDERS = TopicPartition("orders", 0)
ONE_PARTITION = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}

Damage = Callable[[bytearray, int, int], None]


def flip_a_bit(data: bytearray, position: int, size: int) -> None:
    data[position + size - 1] ^= 1


def break_the_length(data: bytearray, position: int, size: int) -> None:
    data[position + 8 : position + 12] = b"\x7f\xff\xff\xff"


def break_the_magic(data: bytearray, position: int, size: int) -> None:
    data[position + 16] = 9


DAMAGES = [flip_a_bit, break_the_length, break_the_magic]


def new_machine() -> Machine:
    return Machine(settings=ONE_PARTITION)


def damage_batch(machine: Machine, topic: str, number: int, damage: Damage) -> None:
    """Damages one batch of the coordinator's log, counted over its segments."""
    for log_dir in ("/a", "/b"):
        directory = f"{log_dir}/{topic}-0"
        if not machine.disk.is_directory(directory):
            continue
        for name in machine.disk.names(directory):
            if name.endswith(".log"):
                path = f"{directory}/{name}"
                data = bytearray(machine.disk.read_file(path))
                batches = split(data)
                if number < len(batches):
                    position, header = batches[number]
                    damage(data, position, header.size)
                    machine.disk.open(path).write_at(data, 0)
                    machine.disk.make_durable()
                    return
                number -= len(batches)
    raise AssertionError(f"{topic} has too few batches")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("stop", [Machine.run, Machine.run_and_kill], ids=["stop", "kill"])
def test_other_transactions_continue(
    stop: Callable[..., object], damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    machine = new_machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0
        for number in range(12):
            producer = TransactionalProducer(broker, f"producer {number}")
            assert await producer.init() == 0
            assert (await producer.produce(ORDERS, b"%d" % number)).error_code == 0
            assert await producer.end(commit=True) == 0
        await asyncio.sleep(5)

    machine.run(work)
    stop(machine, _nothing)
    damage_batch(machine, "__transaction_state", 5, damage)

    async def check(broker: SimulatedBroker) -> None:
        await asyncio.sleep(1)
        for number in (0, 11):
            producer = TransactionalProducer(broker, f"producer {number}")
            assert await producer.init() == 0
            assert producer.epoch > 0, "it is not known any more"
            assert (await producer.produce(ORDERS, b"more")).error_code == 0
            assert await producer.end(commit=True) == 0

    machine.run(check)
    assert "__transaction_state-0 is damaged" in caplog.text


async def _nothing(broker: SimulatedBroker) -> None:
    await asyncio.sleep(1)


def test_a_transaction_whose_outcome_is_damaged_is_not_aborted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its commit was acknowledged: it stays open, and the log says so."""
    machine = new_machine()

    async def work(broker: SimulatedBroker) -> int:
        assert await broker.create_topic("orders") == 0
        producer = TransactionalProducer(broker, "payments")
        assert await producer.init() == 0
        assert (await producer.produce(ORDERS, b"paid")).error_code == 0
        before = broker.broker.replicas.find("__transaction_state", 0).log.log_end_offset
        assert await producer.end(commit=True) == 0
        return before

    before = machine.run(work)
    # Both the prepared and the completed state.
    for number in (before, before + 1):
        damage_batch(machine, "__transaction_state", number, flip_a_bit)

    async def check(broker: SimulatedBroker) -> None:
        await asyncio.sleep(60)
        transactions = broker.broker.transactions._shards[0]
        assert transactions is not None
        assert transactions.in_doubt == {"payments"}
        assert transactions.transactions["payments"].state.name == "ONGOING"
        producer = TransactionalProducer(broker, "payments")
        assert await producer.init() == 0, "a restarted producer ends it"
        assert not transactions.in_doubt

    machine.run(check)
    assert "the outcome of the transaction of payments is unknown" in caplog.text


@pytest.mark.parametrize("damage", DAMAGES)
def test_other_offsets_are_kept(damage: Damage, caplog: pytest.LogCaptureFixture) -> None:
    machine = new_machine()

    async def work(broker: SimulatedBroker) -> None:
        assert await broker.create_topic("orders") == 0
        for number in range(12):
            assert await commit_offset(broker, f"group {number}", ORDERS, number) == 0

    machine.run(work)
    damage_batch(machine, "__consumer_offsets", 5, damage)

    async def check(broker: SimulatedBroker) -> None:
        for number in (0, 4, 11):
            assert await fetch_offset(broker, f"group {number}", ORDERS) == (0, number)
        assert await fetch_offset(broker, "group 5", ORDERS) == (0, -1)

    machine.run(check)
    assert "__consumer_offsets-0 is damaged" in caplog.text
