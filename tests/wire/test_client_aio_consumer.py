"""The asyncio consumer."""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Unpack

import pytest

from penstock.client.aio.consumer import Consumer
from penstock.client.consumer.core import Offsets
from penstock.client.consumer.record import ConsumerRecord, OffsetAndMetadata, RebalanceListener
from penstock.client.errors import ConcurrentUseError, IllegalStateError, WakeupError
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_consumer import at, values
from tests.support.protocol.requests import NOW, make_topic, produce_values

Work = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def topic(client: WireClient, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name)
    make_topic(client, name, 2)
    produce_values(client, name, b"a", b"b")
    produce_values(client, name, b"c", b"d", partition=1)
    return str(name)


def consumer_with(broker: RunningBroker, **options: Unpack[ConsumerOptions]) -> Consumer:
    value: ConsumerOptions = {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 100,
        **options,
    }
    return Consumer(**value)


async def polled(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll(1.0)
    return records


def test_records_are_polled(broker: RunningBroker, topic: str) -> None:
    async def main() -> None:
        async with consumer_with(broker) as consumer:
            consumer.assign([at(topic), at(topic, 1)])
            assert sorted(values(await polled(consumer, 4))) == [b"a", b"b", b"c", b"d"]
            assert await consumer.position(at(topic)) == 2
            assert await consumer.end_offsets([at(topic)]) == {at(topic): 2}
            assert await consumer.beginning_offsets([at(topic)]) == {at(topic): 0}
            results = await consumer.offsets_for_times({at(topic): NOW + 1})
            assert results[at(topic)] is not None
            assert len(await consumer.partitions_for(topic)) == 2
            assert topic in await consumer.list_topics()
            consumer.pause([at(topic, 1)])
            consumer.seek_to_beginning()
            assert values(await polled(consumer, 2)) == [b"a", b"b"]
            consumer.resume([at(topic, 1)])
            assert values(await polled(consumer, 2)) == [b"c", b"d"]
            consumer.seek(at(topic), 1)
            batch = await consumer.poll_arrow(5.0)
            assert batch.column("value").to_pylist() == [b"b"]
            consumer.seek_to_end([at(topic)])
            assert await consumer.position(at(topic)) == 2
            assert await consumer.poll(0.05) == []
            await consumer.unsubscribe()
            assert consumer.assignment() == set()

    asyncio.run(main())


def test_a_group_with_an_async_listener(broker: RunningBroker, topic: str) -> None:
    """C4, C5."""
    received: list[object] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            received.append(("assigned", set(partitions)))

        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            received.append(("revoked", set(partitions)))

    async def committed(offsets: Offsets, error: KafkaError | None) -> None:
        received.append(("committed", error))

    async def main() -> None:
        partitions = {at(topic), at(topic, 1)}
        consumer = consumer_with(broker, group_id=topic)
        consumer.subscribe([topic], Listener())  # before the event loop is used
        async with consumer:
            observed = []
            async for record in consumer:
                observed.append(record.value)
                if len(observed) == 4:
                    break
            await consumer.commit()
            assert await consumer.committed(partitions) == dict.fromkeys(
                partitions, OffsetAndMetadata(2, "", 0)
            )
            consumer.commit_async({at(topic): 1}, committed)
            while ("committed", None) not in received:
                await consumer.poll(0.05)
        assert received == [("assigned", partitions), ("committed", None), ("revoked", partitions)]

    asyncio.run(main())


def test_concurrent_use_raises_an_error(broker: RunningBroker, topic: str) -> None:
    async def main() -> None:
        async with consumer_with(broker, auto_offset_reset="latest") as consumer:
            consumer.assign([at(topic)])
            waiting = asyncio.ensure_future(consumer.poll(30.0))
            await asyncio.sleep(0.05)
            with pytest.raises(ConcurrentUseError, match="a consumer of its own"):
                await consumer.poll()
            threading.Thread(target=consumer.wakeup).start()
            with pytest.raises(WakeupError):
                await waiting
            waiting = asyncio.ensure_future(consumer.poll(30.0))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            consumer.seek(at(topic), 0)
            assert len(await polled(consumer, 2)) == 2

    asyncio.run(main())


def test_polls_do_not_block_other_tasks(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    """A loop that polls without waiting must not block other tasks."""
    for _ in range(20):
        produce_values(client, topic, *[b"x"] * 100)

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        async with consumer_with(broker) as consumer:
            consumer.assign([at(topic)])
            await polled(consumer, 1)
            ticking = asyncio.ensure_future(tick())
            for _ in range(50):
                await consumer.poll(0.0, 10)
            ticking.cancel()
        assert ticks >= 40

    asyncio.run(main())


def test_a_consumer_is_closed_before_its_first_call(broker: RunningBroker, topic: str) -> None:
    async def main() -> None:
        consumer = consumer_with(broker)
        await consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            await consumer.poll()

    asyncio.run(main())


def test_subscribing_to_nothing_unsubscribes(broker: RunningBroker, topic: str) -> None:
    revoked: list[TopicPartition] = []

    class Listener(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            revoked.extend(partitions)

    async def main() -> None:
        async with consumer_with(broker, group_id=topic) as consumer:
            consumer.subscribe([topic], Listener())
            await polled(consumer, 4)
            consumer.subscribe([])
            with pytest.raises(IllegalStateError, match="nothing to poll"):
                await consumer.poll(0.1)
            assert not consumer.assignment()
            assert not consumer.subscription()
            assert revoked == [at(topic), at(topic, 1)]
            assert (await consumer.committed([at(topic)]))[at(topic)] == OffsetAndMetadata(2, "", 0)

    asyncio.run(main())


def test_a_subscription_right_after_that_to_nothing_counts(
    broker: RunningBroker, topic: str
) -> None:
    async def main() -> None:
        async with consumer_with(broker, group_id=topic) as consumer:
            consumer.subscribe(re.compile("no-such-topic"))
            consumer.subscribe([])
            consumer.subscribe([topic])
            assert len(await polled(consumer, 4)) == 4
            consumer.subscribe([])
            consumer.subscribe(re.compile(topic))
            async with asyncio.timeout(60):
                while not consumer.assignment():
                    await consumer.poll(0.1)

    asyncio.run(main())


def test_a_consumer_that_unsubscribes_in_the_background_is_closed(
    broker: RunningBroker, topic: str
) -> None:
    async def main() -> None:
        async with consumer_with(broker, group_id=topic) as consumer:
            consumer.subscribe([topic])
            await polled(consumer, 4)
            consumer.subscribe([])
        with pytest.raises(IllegalStateError, match="closed"):
            await consumer.poll(0.1)

    asyncio.run(main())
