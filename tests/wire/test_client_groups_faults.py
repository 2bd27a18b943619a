"""The client's members when their coordinator fails: it is found again, nothing is lost (C4)."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from penstock.protocol.api_key import ApiKey
from penstock.testing import Broker
from tests.support.client.own_groups import OwnMember, all_of, members, share, until

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as first:
        yield first


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_coordinator_that_goes_and_comes(broker: Broker, protocol: str) -> None:
    """It is killed, and all connections are cut: members find it, keep on, and commit."""
    topic = f"lives-{protocol}"
    broker.create_topic(topic, partitions=4)

    async def fails(how: Callable[[], None], first: OwnMember, two: OwnMember, at: int) -> None:
        await asyncio.to_thread(how)
        await first.commit(
            {(partition.topic, partition.partition): at for partition in first.owned}
        )
        whole, even = all_of(topic, 4, first, two), share(first, two)
        await until(
            lambda: whole() and even() and first.group.is_stable and two.group.is_stable,
            "shared again",
        )
        assert not [kind for kind, _ in first.heard if kind == "lost"]

    def restart() -> None:
        broker.kill()
        broker.start()

    async def play() -> None:
        options = {
            "group_protocol": protocol,
            "partition_assignment_strategy": "cooperative-sticky",
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 100,
        }
        async with members(broker.bootstrap_servers, topic, topic, 2, **options) as (first, two):
            await until(share(first, two), "shared")
            await until(lambda: first.group.is_stable and two.group.is_stable, "stable")
            await fails(broker.cut, first, two, 1)
            await fails(restart, first, two, 2)
            lost = (ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
            with broker.losing_replies(*lost, times=1):
                async with OwnMember(broker.bootstrap_servers, topic, **options) as three:
                    three.subscribe(topic)
                    everybody = (first, two, three)
                    whole, even = all_of(topic, 4, *everybody), share(*everybody)
                    await until(lambda: whole() and even(), "shared by three")
                    results = await three.committed(*((topic, p) for p in range(4)))
                    assert results.count(2) == 2

    asyncio.run(play())
