"""Members of the client when their coordinator fails (C4)."""

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
def test_members_continue_after_coordinator_failures(broker: Broker, protocol: str) -> None:
    """It is killed, and connections are closed: members find it again, continue and commit."""
    topic = f"faults-{protocol}"
    broker.create_topic(topic, partitions=4)

    async def check_after(
        fault: Callable[[], None], first: OwnMember, second: OwnMember, at: int
    ) -> None:
        await asyncio.to_thread(fault)
        await first.commit(
            {(partition.topic, partition.partition): at for partition in first.owned}
        )
        all_assigned, evenly = all_of(topic, 4, first, second), share(first, second)
        await until(
            lambda: (
                all_assigned() and evenly() and first.group.is_stable and second.group.is_stable
            ),
            "shared again",
        )
        assert not [kind for kind, _ in first.event_sizes if kind == "lost"]

    def restart() -> None:
        broker.kill()
        broker.start()

    async def scenario() -> None:
        options = {
            "group_protocol": protocol,
            "partition_assignment_strategy": "cooperative-sticky",
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 100,
        }
        async with members(broker.bootstrap_servers, topic, topic, 2, **options) as (first, second):
            await until(share(first, second), "shared")
            await until(lambda: first.group.is_stable and second.group.is_stable, "stable")
            await check_after(broker.cut, first, second, 1)
            await check_after(restart, first, second, 2)
            lost = (ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT)
            with broker.losing_replies(*lost, times=1):
                async with OwnMember(broker.bootstrap_servers, topic, **options) as third:
                    third.subscribe(topic)
                    all_members = (first, second, third)
                    all_assigned, evenly = all_of(topic, 4, *all_members), share(*all_members)
                    await until(lambda: all_assigned() and evenly(), "shared by three")
                    results = await third.committed(*((topic, p) for p in range(4)))
                    assert results.count(2) == 2

    asyncio.run(scenario())
