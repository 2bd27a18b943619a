"""The client's members of consumer groups (KIP-848), against our broker (C5)."""

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
    whole, even = all_of(topic, count, *group), share(*group)

    def is_so() -> bool:
        return whole() and even() and all(member.group.is_stable for member in group)

    await until(is_so, f"{topic} shared by {len(group)}")


@pytest.mark.parametrize("assignor", [None, "range"])
def test_members_come_and_go(
    broker: RunningBroker, client: WireClient, assignor: str | None
) -> None:
    """Members get their parts from the coordinator, and give up only what goes."""
    topic = f"topic-{assignor}"
    make_topic(client, topic, partitions=6)

    async def play() -> None:
        options = {**CONSUMER, "group_remote_assignor": assignor}
        async with members(broker.bootstrap_servers, topic, topic, 1, **options) as (first,):
            await until(all_of(topic, 6, first), "all at one")
            async with OwnMember(broker.bootstrap_servers, topic, **options) as two:
                overlaps: list[set[TopicPartition]] = []
                first.on_revoked = lambda event: overlaps.append(two.owned & set(event.partitions))
                two.subscribe(topic)
                await until_shared(topic, 6, first, two)
                assert sum(size for kind, size in first.heard if kind == "revoked") == 3
                assert set().union(*overlaps) == set()
                three = OwnMember(broker.bootstrap_servers, topic, **options)
                async with three:
                    three.subscribe(topic)
                    await until_shared(topic, 6, first, two, three)
                await until_shared(topic, 6, first, two)
            await until_shared(topic, 6, first)
            assert not first.errors

    asyncio.run(play())


def test_a_pattern_that_the_broker_resolves(broker: RunningBroker, client: WireClient) -> None:
    """Names come from the topic ids of the assignment; topics may follow a pattern."""
    make_topic(client, "q-one", partitions=2)

    async def play() -> None:
        async with OwnMember(broker.bootstrap_servers, "patterns", **CONSUMER) as member:
            member.subscribe_pattern("q-.*", on_server=True)
            await until(all_of("q-one", 2, member), "the first topic")
            make_topic(client, "r-one")
            await member.group.leave()
            member.subscriptions.unsubscribe()
            assert member.owned == set()
            member.subscribe("r-one")
            await until(all_of("r-one", 1, member), "the other topic")

    asyncio.run(play())


def test_a_pattern_of_this_client(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "s-one", partitions=2)

    async def play() -> None:
        options = {**CONSUMER, "metadata_max_age_ms": 100}
        async with OwnMember(broker.bootstrap_servers, "own-patterns", **options) as member:
            member.subscribe_pattern("s-.*")
            await until(all_of("s-one", 2, member), "the first topic")
            make_topic(client, "s-two")
            await until(lambda: TopicPartition("s-two", 0) in member.owned, "the new topic")

    asyncio.run(play())


def test_a_static_member_comes_back(broker: RunningBroker, client: WireClient) -> None:
    """It leaves with epoch -2: its partitions wait for it."""
    make_topic(client, "static", partitions=4)

    async def play() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "static", group_instance_id="a", **CONSUMER) as first:
            two = OwnMember(address, "static", group_instance_id="b", **CONSUMER)
            await two.start()
            first.subscribe("static")
            two.subscribe("static")
            await until_shared("static", 4, first, two)
            previous, heard = two.owned, list(first.heard)
            await two.close()
            async with OwnMember(address, "static", group_instance_id="b", **CONSUMER) as again:
                again.subscribe("static")
                await until(lambda: again.owned == previous, "the same partitions")
                assert [kind for kind, _ in first.heard] == [kind for kind, _ in heard]

    asyncio.run(play())


def test_two_members_with_one_name(broker: RunningBroker, client: WireClient) -> None:
    """The first one keeps it; the other one is told, for good."""
    make_topic(client, "named")

    async def play() -> None:
        address = broker.bootstrap_servers
        async with (
            OwnMember(address, "named", group_instance_id="a", **CONSUMER) as first,
            OwnMember(address, "named", group_instance_id="a", **CONSUMER) as two,
        ):
            first.subscribe("named")
            await until(all_of("named", 1, first), "one has it")
            two.subscribe("named")
            await until(lambda: bool(two.errors), "an error")
            assert two.errors[0].code is ErrorCode.UNRELEASED_INSTANCE_ID
            assert "group_instance_id='a'" in two.errors[0].message

    asyncio.run(play())


def test_who_does_not_poll_is_out(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "lazy", partitions=2)

    async def play() -> None:
        address = broker.bootstrap_servers
        options = {**CONSUMER, "max_poll_interval_ms": 400}
        async with members(address, "lazy", "lazy", 2, **options) as (first, two):
            await until_shared("lazy", 2, first, two)
            two.polls = False
            await until(all_of("lazy", 2, first, two), "still shared")
            await until(lambda: len(first.owned) == 2, "all at one")
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms=400"):
                await two.commit({("lazy", 0): 1})
            two.polls = True
            await until_shared("lazy", 2, first, two)
            assert ("lost", 1) in two.heard

    asyncio.run(play())


def test_offsets(broker: RunningBroker, client: WireClient) -> None:
    """Commits carry the member's epoch; the group's metadata does too (C3)."""
    make_topic(client, "offsets", partitions=3)

    async def play() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "offsets", **CONSUMER) as first:
            first.subscribe("offsets")
            await until(lambda: first.group.is_stable, "stable")
            await first.commit({("offsets", 0): 5})
            # Epochs change under way; what comes with an old one is sent again.
            async with OwnMember(address, "offsets", **CONSUMER) as two:
                two.subscribe("offsets")
                while not two.owned:
                    await first.commit({("offsets", 0): 6})
                assert await two.committed(("offsets", 0), ("offsets", 1)) == [6, None]
                assert first.group.group_metadata().generation_id > 1
                await first.group.leave()
                with pytest.raises(CommitFailedError):
                    await first.commit({("offsets", 0): 7})
            assert first.group.group_metadata().generation_id == -1

    asyncio.run(play())


def test_an_assignor_that_the_broker_does_not_have(
    broker: RunningBroker, client: WireClient
) -> None:
    async def play() -> None:
        options = {**CONSUMER, "group_remote_assignor": "nonsense"}
        async with OwnMember(broker.bootstrap_servers, "nonsense", **options) as first:
            first.subscribe("anything")
            await until(lambda: bool(first.errors), "an error")
            assert first.errors[0].code is ErrorCode.UNSUPPORTED_ASSIGNOR
            assert "group.consumer.assignors" in first.errors[0].message

    asyncio.run(play())
