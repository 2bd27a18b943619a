"""The client's members of classic groups, against our broker (C4)."""

import asyncio
from collections.abc import Mapping

import pytest

from penstock.client.consumer.assignors import Assignment, Assignor, Subscription, TopicRacks
from penstock.client.errors import (
    CommitFailedError,
    FencedInstanceError,
    IllegalStateError,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_groups import OwnMember, all_of, members, share, until
from tests.support.protocol.requests import make_topic


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "offsets.topic.num.partitions": "2",
    }


async def until_shared(topic: str, count: int, *group: OwnMember) -> None:
    whole, even = all_of(topic, count, *group), share(*group)

    def is_so() -> bool:
        return whole() and even() and all(member.group.is_stable for member in group)

    await until(is_so, f"{topic} shared by {len(group)}")


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_come_and_go(broker: RunningBroker, client: WireClient, assignor: str) -> None:
    """Two members share a topic; a third gets its part; what one leaves behind goes to others."""
    topic = f"topic-{assignor}"
    make_topic(client, topic, partitions=6)

    async def play() -> None:
        strategy = {"partition_assignment_strategy": assignor}
        async with members(broker.bootstrap_servers, topic, topic, 2, **strategy) as (first, two):
            await until_shared(topic, 6, first, two)
            async with OwnMember(broker.bootstrap_servers, topic, **strategy) as three:
                three.subscribe(topic)
                await until_shared(topic, 6, first, two, three)
            await until_shared(topic, 6, first, two)
            assert not first.errors
            assert all(kind != "lost" for kind, _ in first.heard)

    asyncio.run(play())


def test_a_cooperative_hand_over(broker: RunningBroker, client: WireClient) -> None:
    """Only what goes is revoked; nobody has it before its owner has let it go."""
    make_topic(client, "hand-over", partitions=4)

    async def play() -> None:
        options = {"partition_assignment_strategy": "cooperative-sticky"}
        async with OwnMember(broker.bootstrap_servers, "hand-over", **options) as first:
            first.subscribe("hand-over")
            await until(all_of("hand-over", 4, first), "all at one")
            async with OwnMember(broker.bootstrap_servers, "hand-over", **options) as two:
                owned_by_two: list[set[TopicPartition]] = []
                first.on_revoked = lambda event: owned_by_two.append(
                    two.owned & set(event.partitions)
                )
                two.subscribe("hand-over")
                await until_shared("hand-over", 4, first, two)
                assert first.heard[0] == ("assigned", 4)
                assert ("revoked", 2) in first.heard
                assert sum(size for kind, size in first.heard if kind == "revoked") == 2
                assert owned_by_two == [set()]

    asyncio.run(play())


def test_an_eager_hand_over(broker: RunningBroker, client: WireClient) -> None:
    """Everything is revoked, and most of it assigned again."""
    make_topic(client, "eager", partitions=4)

    async def play() -> None:
        async with OwnMember(broker.bootstrap_servers, "eager") as first:
            first.subscribe("eager")
            await until(all_of("eager", 4, first), "all at one")
            async with OwnMember(broker.bootstrap_servers, "eager") as two:
                two.subscribe("eager")
                await until_shared("eager", 4, first, two)
                expected = [("assigned", 4), ("revoked", 4), ("assigned", 2)]
                await until(lambda: first.heard[:3] == expected, "what one heard")

    asyncio.run(play())


def test_a_static_member_comes_back(broker: RunningBroker, client: WireClient) -> None:
    """It closes without leaving; whoever comes with its name gets its partitions, quietly."""
    make_topic(client, "static", partitions=4)

    async def play() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "static", group_instance_id="a") as first:
            two = OwnMember(address, "static", group_instance_id="b")
            await two.start()
            first.subscribe("static")
            two.subscribe("static")
            await until_shared("static", 4, first, two)
            previous, generation = two.owned, first.group.group_metadata().generation_id
            heard = list(first.heard)
            await two.close()
            async with OwnMember(address, "static", group_instance_id="b") as again:
                again.subscribe("static")
                await until(lambda: again.owned == previous, "the same partitions")
                assert again.group.group_metadata().generation_id == generation
                assert first.heard == heard

    asyncio.run(play())


def test_two_members_with_one_name(broker: RunningBroker, client: WireClient) -> None:
    """The later one wins; the other one is told, for good."""
    make_topic(client, "fenced")

    async def play() -> None:
        address = broker.bootstrap_servers
        async with (
            OwnMember(address, "fenced", group_instance_id="a") as first,
            OwnMember(address, "fenced", group_instance_id="a") as two,
        ):
            first.subscribe("fenced")
            await until(all_of("fenced", 1, first), "one has it")
            two.subscribe("fenced")
            await until(lambda: bool(first.errors), "an error")
            assert isinstance(first.errors[0], FencedInstanceError)
            assert "group_instance_id='a'" in first.errors[0].message
            await until(all_of("fenced", 1, two), "two has it")
            await until(lambda: first.heard[-1] == ("lost", 1), "one knows that it has lost it")

    asyncio.run(play())


def test_patterns_and_new_partitions(broker: RunningBroker, client: WireClient) -> None:
    """A new topic that matches, or a partition more, is noticed by itself."""
    make_topic(client, "p-one", partitions=2)

    async def play() -> None:
        async with OwnMember(
            broker.bootstrap_servers, "patterns", metadata_max_age_ms=100
        ) as member:
            member.subscribe_pattern("p-.*")
            await until(all_of("p-one", 2, member), "the first topic")
            make_topic(client, "p-two")
            await until(lambda: TopicPartition("p-two", 0) in member.owned, "the new topic")
            more = CreatePartitionsTopic("p-one", 3, None)
            response = client.request(CreatePartitionsRequest([more], 5_000), 3)
            assert not response.results[0].error_code
            await until(lambda: TopicPartition("p-one", 2) in member.owned, "the new partition")

    asyncio.run(play())


def test_who_does_not_poll_is_out(broker: RunningBroker, client: WireClient) -> None:
    """After max_poll_interval_ms its partitions go; with the next poll it hears that, and joins."""
    make_topic(client, "lazy", partitions=2)

    async def play() -> None:
        address = broker.bootstrap_servers
        options = {"max_poll_interval_ms": 400}
        async with members(address, "lazy", "lazy", 2, **options) as (first, two):
            await until_shared("lazy", 2, first, two)
            two.polls = False
            await until(all_of("lazy", 2, first), "all at one")
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms=400"):
                await two.commit({("lazy", 0): 1})
            two.polls = True
            await until_shared("lazy", 2, first, two)
            assert ("lost", 1) in two.heard

    asyncio.run(play())


def test_offsets(broker: RunningBroker, client: WireClient) -> None:
    """What a member commits, others find; who is no member is told what to do (C3)."""
    make_topic(client, "offsets", partitions=3)

    async def play() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "offsets") as first:
            with pytest.raises(CommitFailedError):
                await first.subscribe("offsets").commit({("offsets", 0): 5})
            await until(all_of("offsets", 3, first), "all at one")
            await first.commit({("offsets", 0): 5, ("offsets", 2): 7})
            both = (("offsets", 0), ("offsets", 1), ("offsets", 2))
            assert await first.committed(*both) == [5, None, 7]
            metadata = first.group.group_metadata()
            assert (metadata.group_id, metadata.generation_id) == ("offsets", 1)
            async with OwnMember(address, "offsets") as second:
                assert await second.committed(("offsets", 2)) == [7]
                # By hand, while the group has members.
                second.subscriptions.assign_from_user([TopicPartition("offsets", 0)])
                with pytest.raises(CommitFailedError):
                    await second.commit({("offsets", 0): 1})
        async with OwnMember(address, "offsets") as alone:
            alone.subscriptions.assign_from_user([TopicPartition("offsets", 0)])
            await alone.commit({("offsets", 0): 9})
            assert await alone.committed(("offsets", 0)) == [9]

    asyncio.run(play())


class Everything(Assignor):
    """Gives all of a topic to the member whose id comes first."""

    name = "everything"

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        requested = {topic for received in subscriptions.values() for topic in received.topics}
        results = [TopicPartition(t, p) for t in requested for p in range(len(topics.get(t, ())))]
        return {min(subscriptions): Assignment(results)}


class Broken(Everything):
    name = "broken"

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        raise KeyError("oops")


def test_an_assignor_of_ones_own(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "own", partitions=3)

    async def play() -> None:
        options = {"partition_assignment_strategy": [Everything]}
        async with members(broker.bootstrap_servers, "own", "own", 2, **options) as (first, two):
            await until(all_of("own", 3, first, two), "all assigned")
            await until(lambda: not (first.owned and two.owned), "at one of them")

    asyncio.run(play())


def test_an_assignor_that_fails(broker: RunningBroker, client: WireClient) -> None:
    """Poll says so, with what it raised; the group goes on once it works."""
    make_topic(client, "broken")

    async def play() -> None:
        options = {"partition_assignment_strategy": [Broken]}
        async with OwnMember(broker.bootstrap_servers, "broken", **options) as first:
            first.subscribe("broken")
            await until(lambda: len(first.errors) > 1, "errors")
            assert isinstance(first.errors[0], IllegalStateError)
            assert "KeyError: 'oops'" in first.errors[0].message

    asyncio.run(play())


def test_no_assignor_in_common(broker: RunningBroker, client: WireClient) -> None:
    """The one that comes second is refused, and told why."""
    make_topic(client, "common")

    async def play() -> None:
        address = broker.bootstrap_servers
        async with (
            OwnMember(address, "common", partition_assignment_strategy="range") as first,
            OwnMember(address, "common", partition_assignment_strategy="roundrobin") as two,
        ):
            first.subscribe("common")
            await until(all_of("common", 1, first), "one has it")
            two.subscribe("common")
            await until(lambda: bool(two.errors), "an error")
            assert two.errors[0].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert "partition_assignment_strategy" in two.errors[0].message

    asyncio.run(play())
