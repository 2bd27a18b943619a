"""Members of consumer groups (KIP-848) in the client (C5)."""

import asyncio
from collections.abc import Mapping

import pytest

from penstock.client.errors import CommitFailedError
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_groups import OwnMember, all_of, members, share, until
from tests.support.protocol.requests import make_topic

CONSUMER = {"group_protocol": "consumer"}


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.session.timeout.ms": "200",
        "group.consumer.assignment.interval.ms": "0",
        "offsets.topic.num.partitions": "2",
    }


async def until_shared(topic: str, count: int, *group: OwnMember) -> None:
    all_assigned, evenly = all_of(topic, count, *group), share(*group)

    def is_shared() -> bool:
        return all_assigned() and evenly() and all(member.group.is_stable for member in group)

    await until(is_shared, f"{topic} shared by {len(group)}")


@pytest.mark.parametrize("assignor", [None, "range"])
def test_members_join_and_leave(
    broker: RunningBroker, client: WireClient, assignor: str | None
) -> None:
    """The coordinator assigns partitions, and members revoke only those that move."""
    topic = f"topic-{assignor}"
    make_topic(client, topic, partitions=6)

    async def scenario() -> None:
        options = {**CONSUMER, "group_remote_assignor": assignor}
        async with members(broker.bootstrap_servers, topic, topic, 1, **options) as (first,):
            await until(all_of(topic, 6, first), "all partitions at the first member")
            async with OwnMember(broker.bootstrap_servers, topic, **options) as second:
                overlaps: list[set[TopicPartition]] = []
                first.on_revoked = lambda event: overlaps.append(
                    second.owned & set(event.partitions)
                )
                second.subscribe(topic)
                await until_shared(topic, 6, first, second)
                assert sum(size for kind, size in first.event_sizes if kind == "revoked") == 3
                assert set().union(*overlaps) == set()
                third = OwnMember(broker.bootstrap_servers, topic, **options)
                async with third:
                    third.subscribe(topic)
                    await until_shared(topic, 6, first, second, third)
                await until_shared(topic, 6, first, second)
            await until_shared(topic, 6, first)
            assert not first.errors

    asyncio.run(scenario())


def test_a_pattern_is_resolved_by_the_broker(broker: RunningBroker, client: WireClient) -> None:
    """Topic names are resolved from the topic ids of the assignment."""
    make_topic(client, "q-one", partitions=2)

    async def scenario() -> None:
        async with OwnMember(broker.bootstrap_servers, "patterns", **CONSUMER) as member:
            member.subscribe_pattern("q-.*", on_server=True)
            await until(all_of("q-one", 2, member), "the first topic")
            make_topic(client, "r-one")
            await member.group.leave()
            member.subscriptions.unsubscribe()
            assert member.owned == set()
            member.subscribe("r-one")
            await until(all_of("r-one", 1, member), "the second topic")

    asyncio.run(scenario())


def test_a_pattern_is_resolved_by_the_client(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "s-one", partitions=2)

    async def scenario() -> None:
        options = {**CONSUMER, "metadata_max_age_ms": 100}
        async with OwnMember(broker.bootstrap_servers, "own-patterns", **options) as member:
            member.subscribe_pattern("s-.*")
            await until(all_of("s-one", 2, member), "the first topic")
            make_topic(client, "s-two")
            await until(lambda: TopicPartition("s-two", 0) in member.owned, "the new topic")

    asyncio.run(scenario())


def test_a_static_member_rejoins(broker: RunningBroker, client: WireClient) -> None:
    """It leaves with epoch -2, and its partitions stay reserved for it."""
    make_topic(client, "static", partitions=4)

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "static", group_instance_id="a", **CONSUMER) as first:
            second = OwnMember(address, "static", group_instance_id="b", **CONSUMER)
            await second.start()
            first.subscribe("static")
            second.subscribe("static")
            await until_shared("static", 4, first, second)
            previous, heard = second.owned, list(first.event_sizes)
            await second.close()
            async with OwnMember(address, "static", group_instance_id="b", **CONSUMER) as returned:
                returned.subscribe("static")
                await until(lambda: returned.owned == previous, "the same partitions")
                assert [kind for kind, _ in first.event_sizes] == [kind for kind, _ in heard]

    asyncio.run(scenario())


def test_two_members_with_one_instance_id(broker: RunningBroker, client: WireClient) -> None:
    """The first member keeps the id; the second one fails permanently."""
    make_topic(client, "named")

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with (
            OwnMember(address, "named", group_instance_id="a", **CONSUMER) as first,
            OwnMember(address, "named", group_instance_id="a", **CONSUMER) as second,
        ):
            first.subscribe("named")
            await until(all_of("named", 1, first), "assigned to the first member")
            second.subscribe("named")
            await until(lambda: bool(second.errors), "an error")
            assert second.errors[0].code is ErrorCode.UNRELEASED_INSTANCE_ID
            assert "group_instance_id='a'" in second.errors[0].message

    asyncio.run(scenario())


def test_a_member_that_does_not_poll_loses_its_partitions(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "lazy", partitions=2)

    async def scenario() -> None:
        address = broker.bootstrap_servers
        options = {**CONSUMER, "max_poll_interval_ms": 400}
        async with members(address, "lazy", "lazy", 2, **options) as (first, second):
            await until_shared("lazy", 2, first, second)
            second.polls = False
            await until(all_of("lazy", 2, first, second), "still shared")
            await until(lambda: len(first.owned) == 2, "all partitions at the first member")
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms=400"):
                await second.commit({("lazy", 0): 1})
            second.polls = True
            await until_shared("lazy", 2, first, second)
            assert ("lost", 1) in second.event_sizes

    asyncio.run(scenario())


def test_offsets_are_committed_with_the_member_epoch(
    broker: RunningBroker, client: WireClient
) -> None:
    """Commits and the group metadata have the member epoch (C3)."""
    make_topic(client, "offsets", partitions=3)

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "offsets", **CONSUMER) as first:
            first.subscribe("offsets")
            await until(lambda: first.group.is_stable, "stable")
            await first.commit({("offsets", 0): 5})
            # Epochs change during the commits; a commit with an old epoch is retried.
            async with OwnMember(address, "offsets", **CONSUMER) as second:
                second.subscribe("offsets")
                while not second.owned:
                    await first.commit({("offsets", 0): 6})
                assert await second.committed(("offsets", 0), ("offsets", 1)) == [6, None]
                assert first.group.group_metadata().generation_id > 1
                await first.group.leave()
                with pytest.raises(CommitFailedError):
                    await first.commit({("offsets", 0): 7})
            assert first.group.group_metadata().generation_id == -1

    asyncio.run(scenario())


def test_an_unknown_assignor_raises_an_error(broker: RunningBroker, client: WireClient) -> None:
    async def scenario() -> None:
        options = {**CONSUMER, "group_remote_assignor": "nonsense"}
        async with OwnMember(broker.bootstrap_servers, "nonsense", **options) as first:
            first.subscribe("anything")
            await until(lambda: bool(first.errors), "an error")
            assert first.errors[0].code is ErrorCode.UNSUPPORTED_ASSIGNOR
            assert "group.consumer.assignors" in first.errors[0].message

    asyncio.run(scenario())
