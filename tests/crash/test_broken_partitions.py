"""One broken partition: the broker starts, the partition is rebuilt or offline, others are served.

Each kind of file of a partition and of a log directory is replaced by garbage, or made unreadable.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.storage.disk import write_file
from tests.support.faults.simulated_broker import LOG_DIRS, Machine, SimulatedBroker
from tests.support.protocol.requests import batch_of, fetch_request

GARBAGE = b"\xff\x00 this is no file of a log \x80\n\n-1 x" * 7
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 0)
NEIGHBOUR = TopicPartition("neighbour", 0)
VALUES: list[bytes | None] = [b"order %d" % number * 9 for number in range(40)]
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

Stop = Callable[..., Any]


def machine_with_records(stop: Stop) -> tuple[Machine, str]:
    """Topics in two log directories, with a neighbour of `orders`, whose directory it returns."""
    machine = Machine()

    async def work(broker: SimulatedBroker) -> str:
        for topic in ("orders", "bills", "neighbour"):
            assert await broker.create_topic(topic) == 0
            for sequence, value in enumerate(VALUES):
                batch = batch_of(value, producer=(7, 0, sequence))
                assert (await broker.produce(topic, batch)).error_code == 0
        await asyncio.sleep(5)
        directories = [
            broker.broker.replicas.find(*key).log.directory for key in (ORDERS, NEIGHBOUR)
        ]
        assert len({directory.rpartition("/")[0] for directory in directories}) == 1
        return directories[0]

    directory: str = stop(machine, work)
    return machine, directory


def overwrite(machine: Machine, directory: str, suffix: str) -> None:
    """Replaces the content of the files in a directory whose names have this end."""
    names = [name for name in machine.disk.names(directory) if name.endswith(suffix)]
    assert names, f"{directory} has no {suffix}"
    for name in names:
        write_file(machine.disk, f"{directory}/{name}", GARBAGE)
    machine.disk.make_durable()


class Broken(NamedTuple):
    """How a partition is broken, and what is expected of it."""

    damage: Callable[[Machine, str], object]
    is_rebuilt: bool


def of_partition(suffix: str, *, is_rebuilt: bool) -> Broken:
    return Broken(lambda machine, directory: overwrite(machine, directory, suffix), is_rebuilt)


def of_log_dir(suffix: str) -> Broken:
    return Broken(
        lambda machine, directory: overwrite(machine, directory.rpartition("/")[0], suffix), True
    )


def unreadable(operation: str, pattern: str) -> Broken:
    return Broken(
        lambda machine, directory: machine.disk.fail(operation, directory + pattern, errno.EACCES),
        False,
    )


CASES = {
    "leader epochs": of_partition("leader-epoch-checkpoint", is_rebuilt=True),
    "topic id": of_partition("partition.metadata", is_rebuilt=False),
    "producer snapshots": of_partition(".snapshot", is_rebuilt=True),
    "offset indexes": of_partition(".index", is_rebuilt=True),
    "time indexes": of_partition(".timeindex", is_rebuilt=True),
    "recovery points": of_log_dir("recovery-point-offset-checkpoint"),
    "high watermarks": of_log_dir("replication-offset-checkpoint"),
    "unreadable directory": unreadable("names", ""),
    "unreadable segment": unreadable("open", "/*.log"),
    "unreadable topic id": unreadable("read_file", "/partition.metadata"),
    "unreadable leader epochs": unreadable("read_file", "/leader-epoch-checkpoint"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stop", [Machine.run, Machine.run_and_kill], ids=["stop", "kill"])
def test_a_broken_partition_affects_no_other(name: str, stop: Stop) -> None:
    case = CASES[name]
    machine, directory = machine_with_records(stop)
    case.damage(machine, directory)

    async def work(broker: SimulatedBroker) -> None:
        await check_served(broker, BILLS)
        await check_served(broker, NEIGHBOUR)
        if case.is_rebuilt:
            assert broker.broker.replicas.find(*ORDERS).log.epochs.latest_epoch is not None
            assert broker.values("orders") == VALUES
            duplicate = batch_of(VALUES[-1], producer=(7, 0, len(VALUES) - 1))
            response = await broker.produce("orders", duplicate)
            assert (response.error_code, response.base_offset) == (0, len(VALUES) - 1)
            await check_served(broker, ORDERS)
        else:
            await check_offline(broker)

    machine.run(work)
    if not case.is_rebuilt:
        machine.run(delete_and_create_again)


async def check_served(broker: SimulatedBroker, partition: TopicPartition) -> None:
    before = broker.values(*partition)
    response = await broker.produce(partition.topic, batch_of(b"more"), partition.partition)
    assert response.error_code == 0, response.error_message
    assert broker.values(*partition) == [*before, b"more"]
    for resource, name, setting in (
        (TOPIC_RESOURCE, partition.topic, "retention.ms"),
        (TOPIC_RESOURCE, ORDERS.topic, "retention.ms"),
        (BROKER_RESOURCE, "", "log.retention.ms"),
        (BROKER_RESOURCE, "", "producer.id.expiration.ms"),
    ):
        config = AlterConfigsAlterableConfig(setting, "86400000")
        body = AlterConfigsRequest([AlterConfigsResource(resource, name, [config])])
        (result,) = (await broker.request(body, 2)).responses
        assert result.error_code == 0, result.error_message
    new_topic = f"new-{partition.topic}"
    assert await broker.create_topic(new_topic) == 0
    assert (await broker.produce(new_topic, batch_of(b"new"))).error_code == 0


async def check_offline(broker: SimulatedBroker) -> None:
    response = await broker.produce("orders", batch_of(b"refused"))
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "orders-0" in response.error_message
    body = ListOffsetsRequest(
        topics=[ListOffsetsTopic("orders", [ListOffsetsPartition(0, timestamp=-1)])]
    )
    offsets = (await broker.request(body, 5)).topics[0].partitions[0]
    assert offsets.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    fetched = await broker.request(fetch_request({"orders": {0: 0}, "bills": {0: 0}}), 11)
    codes = {topic.topic: topic.partitions[0].error_code for topic in fetched.responses}
    assert codes == {"orders": ErrorCode.KAFKA_STORAGE_ERROR, "bills": 0}


async def delete_topic(broker: SimulatedBroker, topic: str) -> None:
    body = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=5000)
    (result,) = (await broker.request(body, 6)).responses
    assert result.error_code == 0


async def delete_and_create_again(broker: SimulatedBroker) -> None:
    await delete_topic(broker, "orders")
    assert await broker.create_topic("orders") == 0
    assert (await broker.produce("orders", batch_of(b"again"))).error_code == 0
    assert broker.values("orders") == [b"again"]


def test_a_log_directory_with_a_broken_owner_is_offline_alone() -> None:
    machine, directory = machine_with_records(Machine.run)
    path = directory.rpartition("/")[0] + "/meta.properties"
    write_file(machine.disk, path, b"version=9\n")
    machine.disk.make_durable()

    async def work(broker: SimulatedBroker) -> None:
        await check_served(broker, BILLS)
        await check_offline(broker)

    machine.run(work)


def test_a_copy_in_another_log_directory_is_renamed() -> None:
    """Nothing is deleted."""
    machine, directory = machine_with_records(Machine.run)
    copy_to_the_other_directory(machine, directory)

    async def work(broker: SimulatedBroker) -> None:
        assert broker.values("orders") == VALUES
        await check_served(broker, ORDERS)
        await check_served(broker, BILLS)
        names = [name for path in LOG_DIRS for name in machine.disk.names(path)]
        assert len([name for name in names if name.endswith("-stray")]) == 1

    machine.run(work)


def test_a_copy_without_a_topic_id_takes_the_partition_offline_alone() -> None:
    machine, directory = machine_with_records(Machine.run)
    copy_to_the_other_directory(machine, directory)
    machine.disk.remove(f"{directory}/partition.metadata")

    async def work(broker: SimulatedBroker) -> None:
        await check_served(broker, BILLS)
        await check_offline(broker)

    machine.run(work)


def copy_to_the_other_directory(machine: Machine, directory: str) -> None:
    (healthy_dir,) = {*LOG_DIRS} - {directory.rpartition("/")[0]}
    target = f"{healthy_dir}/{ORDERS}"
    machine.disk.make_directory(target)
    for name in machine.disk.names(directory):
        content = machine.disk.read_file(f"{directory}/{name}")
        write_file(machine.disk, f"{target}/{name}", content)
    machine.disk.make_durable()


def test_an_empty_log_in_another_log_directory_is_removed() -> None:
    """A creation that failed on one disk and succeeded on another leaves both."""
    machine, directory = machine_with_records(Machine.run)
    copy_to_the_other_directory(machine, directory)
    for name in machine.disk.names(directory):
        if name not in ("partition.metadata", "leader-epoch-checkpoint"):
            machine.disk.remove(f"{directory}/{name}")
    machine.disk.make_durable()

    async def work(broker: SimulatedBroker) -> None:
        assert broker.values("orders") == VALUES
        await check_served(broker, ORDERS)

    machine.run(work)


def test_a_component_that_fails_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()

    async def work(broker: SimulatedBroker) -> None:
        def fail(changes: object) -> None:
            raise ValueError("broken")

        broker.broker.quotas.apply = fail  # type: ignore[method-assign]
        broker.broker.groups.apply = fail  # type: ignore[method-assign]
        assert await broker.create_topic("orders") == 0
        assert (await broker.produce("orders", batch_of(b"v"))).error_code == 0

    machine.run(work)
    assert "a component failed to apply metadata changes" in caplog.text


@pytest.mark.parametrize("is_created_again", [True, False])
@pytest.mark.parametrize("stop", [Machine.run, Machine.run_and_kill], ids=["stop", "kill"])
def test_a_topic_is_deleted_while_its_log_directory_is_offline(
    stop: Stop, is_created_again: bool
) -> None:
    """S1: its name is free at once; when the directory returns, its old files are set aside."""
    machine, directory = machine_with_records(Machine.run)
    log_dir = directory.rpartition("/")[0]

    async def work(broker: SimulatedBroker) -> None:
        for operation in ("write", "sync", "rename", "sync_directory", "create"):
            machine.disk.fail(operation, f"{log_dir}/*", errno.EIO)
        assert (await broker.produce("orders", batch_of(b"lost"))).error_code
        if is_created_again:
            await delete_and_create_again(broker)
        else:
            await delete_topic(broker, "orders")

    stop(machine, work)
    machine.disk.heal()

    async def check(broker: SimulatedBroker) -> None:
        if is_created_again:
            assert broker.values("orders") == [b"again"]
            await check_served(broker, ORDERS)
        else:
            assert "orders" not in broker.broker.image.topics
            assert await broker.create_topic("orders") == 0
            assert broker.values("orders") == []
        assert broker.values("neighbour") == VALUES
        names = [name for name in machine.disk.names(log_dir) if name.startswith("orders-0.")]
        assert len(names) == 1
        assert names[0].endswith("-stray")

    machine.run(check)
