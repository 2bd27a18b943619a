"""Members of classic groups in the client (C4)."""

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
    all_assigned, evenly = all_of(topic, count, *group), share(*group)

    def is_shared() -> bool:
        return all_assigned() and evenly() and all(member.group.is_stable for member in group)

    await until(is_shared, f"{topic} shared by {len(group)}")


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_join_and_leave(broker: RunningBroker, client: WireClient, assignor: str) -> None:
    """Two members share a topic; a third gets its share; a leaving member's partitions move."""
    topic = f"topic-{assignor}"
    make_topic(client, topic, partitions=6)

    async def scenario() -> None:
        strategy = {"partition_assignment_strategy": assignor}
        async with members(broker.bootstrap_servers, topic, topic, 2, **strategy) as (
            first,
            second,
        ):
            await until_shared(topic, 6, first, second)
            async with OwnMember(broker.bootstrap_servers, topic, **strategy) as third:
                third.subscribe(topic)
                await until_shared(topic, 6, first, second, third)
            await until_shared(topic, 6, first, second)
            assert not first.errors
            assert all(kind != "lost" for kind, _ in first.event_sizes)

    asyncio.run(scenario())


def test_a_cooperative_rebalance(broker: RunningBroker, client: WireClient) -> None:
    """Only partitions that move are revoked, and they have no new owner before that."""
    make_topic(client, "hand-over", partitions=4)

    async def scenario() -> None:
        options = {"partition_assignment_strategy": "cooperative-sticky"}
        async with OwnMember(broker.bootstrap_servers, "hand-over", **options) as first:
            first.subscribe("hand-over")
            await until(all_of("hand-over", 4, first), "all partitions at the first member")
            async with OwnMember(broker.bootstrap_servers, "hand-over", **options) as second:
                owned_by_second: list[set[TopicPartition]] = []
                first.on_revoked = lambda event: owned_by_second.append(
                    second.owned & set(event.partitions)
                )
                second.subscribe("hand-over")
                await until_shared("hand-over", 4, first, second)
                assert first.event_sizes[0] == ("assigned", 4)
                assert ("revoked", 2) in first.event_sizes
                assert sum(size for kind, size in first.event_sizes if kind == "revoked") == 2
                assert owned_by_second == [set()]

    asyncio.run(scenario())


def test_an_eager_rebalance(broker: RunningBroker, client: WireClient) -> None:
    """All partitions are revoked, and most of them are assigned again."""
    make_topic(client, "eager", partitions=4)

    async def scenario() -> None:
        async with OwnMember(broker.bootstrap_servers, "eager") as first:
            first.subscribe("eager")
            await until(all_of("eager", 4, first), "all partitions at the first member")
            async with OwnMember(broker.bootstrap_servers, "eager") as second:
                second.subscribe("eager")
                await until_shared("eager", 4, first, second)
                expected = [("assigned", 4), ("revoked", 4), ("assigned", 2)]
                await until(
                    lambda: first.event_sizes[:3] == expected, "the events of the first member"
                )

    asyncio.run(scenario())


def test_a_static_member_rejoins(broker: RunningBroker, client: WireClient) -> None:
    """It closes without leaving; a member with its instance id gets its partitions silently."""
    make_topic(client, "static", partitions=4)

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "static", group_instance_id="a") as first:
            second = OwnMember(address, "static", group_instance_id="b")
            await second.start()
            first.subscribe("static")
            second.subscribe("static")
            await until_shared("static", 4, first, second)
            previous, generation = second.owned, first.group.group_metadata().generation_id
            heard = list(first.event_sizes)
            await second.close()
            async with OwnMember(address, "static", group_instance_id="b") as returned:
                returned.subscribe("static")
                await until(lambda: returned.owned == previous, "the same partitions")
                assert returned.group.group_metadata().generation_id == generation
                assert first.event_sizes == heard

    asyncio.run(scenario())


def test_two_members_with_one_instance_id(broker: RunningBroker, client: WireClient) -> None:
    """The later member wins; the earlier one fails permanently."""
    make_topic(client, "fenced")

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with (
            OwnMember(address, "fenced", group_instance_id="a") as first,
            OwnMember(address, "fenced", group_instance_id="a") as second,
        ):
            first.subscribe("fenced")
            await until(all_of("fenced", 1, first), "assigned to the first member")
            second.subscribe("fenced")
            await until(lambda: bool(first.errors), "an error")
            assert isinstance(first.errors[0], FencedInstanceError)
            assert "group_instance_id='a'" in first.errors[0].message
            await until(all_of("fenced", 1, second), "assigned to the second member")
            await until(lambda: first.event_sizes[-1] == ("lost", 1), "lost by the first member")

    asyncio.run(scenario())


def test_pattern_subscriptions_and_new_partitions(
    broker: RunningBroker, client: WireClient
) -> None:
    """A new matching topic or partition is noticed automatically."""
    make_topic(client, "p-one", partitions=2)

    async def scenario() -> None:
        async with OwnMember(
            broker.bootstrap_servers, "patterns", metadata_max_age_ms=100
        ) as member:
            member.subscribe_pattern("p-.*")
            await until(all_of("p-one", 2, member), "the first topic")
            make_topic(client, "p-two")
            await until(lambda: TopicPartition("p-two", 0) in member.owned, "the new topic")
            new_partitions = CreatePartitionsTopic("p-one", 3, None)
            response = client.request(CreatePartitionsRequest([new_partitions], 5_000), 3)
            assert not response.results[0].error_code
            await until(lambda: TopicPartition("p-one", 2) in member.owned, "the new partition")

    asyncio.run(scenario())


def test_a_member_that_does_not_poll_loses_its_partitions(
    broker: RunningBroker, client: WireClient
) -> None:
    """After max_poll_interval_ms its partitions are reassigned; with the next poll it rejoins."""
    make_topic(client, "lazy", partitions=2)

    async def scenario() -> None:
        address = broker.bootstrap_servers
        options = {"max_poll_interval_ms": 400}
        async with members(address, "lazy", "lazy", 2, **options) as (first, second):
            await until_shared("lazy", 2, first, second)
            second.polls = False
            await until(all_of("lazy", 2, first), "all partitions at the first member")
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms=400"):
                await second.commit({("lazy", 0): 1})
            second.polls = True
            await until_shared("lazy", 2, first, second)
            assert ("lost", 1) in second.event_sizes

    asyncio.run(scenario())


def test_offsets_are_committed_by_members(broker: RunningBroker, client: WireClient) -> None:
    """Committed offsets are visible to others; a commit of a non-member has an error (C3)."""
    make_topic(client, "offsets", partitions=3)

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with OwnMember(address, "offsets") as first:
            with pytest.raises(CommitFailedError):
                await first.subscribe("offsets").commit({("offsets", 0): 5})
            await until(all_of("offsets", 3, first), "all partitions at the first member")
            await first.commit({("offsets", 0): 5, ("offsets", 2): 7})
            partitions = (("offsets", 0), ("offsets", 1), ("offsets", 2))
            assert await first.committed(*partitions) == [5, None, 7]
            metadata = first.group.group_metadata()
            assert (metadata.group_id, metadata.generation_id) == ("offsets", 1)
            async with OwnMember(address, "offsets") as second:
                assert await second.committed(("offsets", 2)) == [7]
                # A manual assignment cannot commit while the group has members.
                second.subscriptions.assign_from_user([TopicPartition("offsets", 0)])
                with pytest.raises(CommitFailedError):
                    await second.commit({("offsets", 0): 1})
        async with OwnMember(address, "offsets") as alone:
            alone.subscriptions.assign_from_user([TopicPartition("offsets", 0)])
            await alone.commit({("offsets", 0): 9})
            assert await alone.committed(("offsets", 0)) == [9]

    asyncio.run(scenario())


class AllToOneAssignor(Assignor):
    """Assigns all partitions of a topic to the member with the smallest id."""

    name = "everything"

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        requested = {topic for received in subscriptions.values() for topic in received.topics}
        results = [TopicPartition(t, p) for t in requested for p in range(len(topics.get(t, ())))]
        return {min(subscriptions): Assignment(results)}


class FailingAssignor(AllToOneAssignor):
    name = "broken"

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        raise KeyError("oops")


def test_a_custom_assignor(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "own", partitions=3)

    async def scenario() -> None:
        options = {"partition_assignment_strategy": [AllToOneAssignor]}
        async with members(broker.bootstrap_servers, "own", "own", 2, **options) as (first, second):
            await until(all_of("own", 3, first, second), "all assigned")
            await until(lambda: not (first.owned and second.owned), "all at one member")

    asyncio.run(scenario())


def test_a_failing_assignor_raises_an_error(broker: RunningBroker, client: WireClient) -> None:
    """Poll raises an error with the exception of the assignor."""
    make_topic(client, "broken")

    async def scenario() -> None:
        options = {"partition_assignment_strategy": [FailingAssignor]}
        async with OwnMember(broker.bootstrap_servers, "broken", **options) as first:
            first.subscribe("broken")
            await until(lambda: len(first.errors) > 1, "errors")
            assert isinstance(first.errors[0], IllegalStateError)
            assert "KeyError: 'oops'" in first.errors[0].message

    asyncio.run(scenario())


def test_members_without_a_common_assignor(broker: RunningBroker, client: WireClient) -> None:
    """The second member is rejected with a reason."""
    make_topic(client, "common")

    async def scenario() -> None:
        address = broker.bootstrap_servers
        async with (
            OwnMember(address, "common", partition_assignment_strategy="range") as first,
            OwnMember(address, "common", partition_assignment_strategy="roundrobin") as second,
        ):
            first.subscribe("common")
            await until(all_of("common", 1, first), "assigned to the first member")
            second.subscribe("common")
            await until(lambda: bool(second.errors), "an error")
            assert second.errors[0].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert "partition_assignment_strategy" in second.errors[0].message

    asyncio.run(scenario())
