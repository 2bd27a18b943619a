"""How partitions get their positions, with brokers that the test plays."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from penstock.client.consumer.list_offsets import OffsetLookup
from penstock.client.consumer.membership import Membership
from penstock.client.consumer.position_updater import PositionUpkeep
from penstock.client.consumer.positions import (
    FetchPosition,
    LeaderAndEpoch,
    LogTruncationError,
    parse_offset_reset,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.consumer.subscriptions import SubscriptionState
from penstock.client.errors import (
    AuthorizationError,
    DisconnectError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
)
from penstock.client.settings import ConsumerOptions, resolve
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.fields import Message
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.support.client.fetch_network import Asked, FakeNetwork

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Commits:
    """A group that has these commits, or fails."""

    def __init__(self, given: dict[TopicPartition, OffsetAndMetadata] | KafkaError) -> None:
        self.given = given

    async def committed(
        self, partitions: list[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if isinstance(self.given, KafkaError):
            raise self.given
        return {each: self.given.get(each) for each in partitions}


class World:
    def __init__(self, reset: str, group: Commits | None = None) -> None:
        settings = resolve(ConsumerOptions, {"bootstrap_servers": "h:1"})
        self.network = FakeNetwork(settings, newest=10)
        self.network.know({A: 0, B: 1})
        self.subscriptions = SubscriptionState(parse_offset_reset(reset))
        self.subscriptions.assign_from_user([A, B])
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.reported: list[KafkaError] = []
        network = cast(NetworkClient, self.network)
        self.upkeep = PositionUpkeep(
            network,
            self.subscriptions,
            OffsetLookup(network, read_committed=False),
            cast("Membership | None", group),
            settings,
            start=self.start,
            report=self.reported.append,
        )

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        if name in self.tasks:
            return False

        async def run() -> None:
            try:
                await work()
            except KafkaError as error:
                self.reported.append(error)
            finally:
                del self.tasks[name]

        self.tasks[name] = asyncio.ensure_future(run())
        return True

    async def pump(self) -> int | None:
        wait = self.upkeep.pump(self.network.clock.monotonic_ms(), errors_wait=bool(self.reported))
        await self.settle()
        return wait

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def answer(self, response: Message | KafkaError) -> Asked:
        asked = self.network.asked.pop(0)
        if isinstance(response, KafkaError):
            asked.answer.set_exception(response)
        else:
            asked.answer.set_result(response)
        await self.settle()
        return asked

    def offset(self, partition: TopicPartition) -> int | None:
        position = self.subscriptions.valid_position(partition)
        return None if position is None else position.offset


def listed(partition: TopicPartition, offset: int, code: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(
        partition_index=partition.partition, error_code=code, offset=offset
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [found])])


def ended(partition: TopicPartition, epoch: int, end: int, code: int = 0) -> Message:
    found = OffsetForLeaderEpochEndOffset(code, partition.partition, epoch, end)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [found])])


def timestamp(asked: Asked) -> int:
    return cast(ListOffsetsRequest, asked.request).topics[0].partitions[0].timestamp


def run(play: Coroutine[Any, Any, None]) -> None:
    asyncio.run(play)


def test_commits_first_then_resets() -> None:
    async def play() -> None:
        world = World("earliest", Commits({A: OffsetAndMetadata(7, "", -1)}))
        await world.pump()
        assert world.offset(A) == 7
        assert await world.pump() is not None
        assert timestamp(await world.answer(listed(B, 3))) == -2
        assert world.offset(B) == 3
        assert await world.pump() is None

    run(play())


def test_a_commit_with_an_epoch_is_validated() -> None:
    async def play() -> None:
        world = World("earliest", Commits(dict.fromkeys((A, B), OffsetAndMetadata(7, "", 0))))
        await world.pump()
        await world.pump()
        assert world.offset(A) is None
        await world.answer(ended(A, 0, 9))
        await world.answer(ended(B, 0, 5))
        assert (world.offset(A), world.offset(B)) == (7, 5)

    run(play())


@pytest.mark.parametrize(
    ("failure", "told"), [(DisconnectError("gone"), 0), (AuthorizationError("no"), 1)]
)
def test_commits_that_cannot_be_read(failure: KafkaError, told: int) -> None:
    """Tried again, or told; no reset in either case."""

    async def play() -> None:
        world = World("earliest", Commits(failure))
        await world.pump()
        assert len(world.reported) == told
        assert world.subscriptions.partitions_needing_reset(10**15) == []
        world.reported.clear()
        await world.pump()
        assert world.reported == []  # not at once
        world.network.clock.advance(100)
        await world.pump()
        assert len(world.reported) == told

    run(play())


def test_no_policy() -> None:
    async def play() -> None:
        world = World("none")
        await world.pump()
        assert isinstance(world.reported[0], NoOffsetForPartitionError)
        assert await world.pump() is None  # nothing more before poll has told it

    run(play())


def test_resets_are_tried_again() -> None:
    async def play() -> None:
        world = World("latest")
        await world.pump()
        await world.pump()
        updates = world.network.updates
        await world.answer(listed(A, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await world.answer(KafkaTimeoutError("too late"))
        assert world.network.updates > updates
        await world.pump()
        assert world.network.asked == []
        world.network.clock.advance(100)
        await world.pump()
        assert timestamp(await world.answer(listed(A, 4))) == -1
        await world.answer(listed(B, 5))
        assert (world.offset(A), world.offset(B), world.reported) == (4, 5, [])

    run(play())


def test_a_reset_that_is_not_allowed_is_told() -> None:
    """E3."""

    async def play() -> None:
        world = World("latest")
        await world.pump()
        await world.pump()
        await world.answer(listed(A, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        assert [type(each) for each in world.reported] == [AuthorizationError]

    run(play())


def test_a_duration_without_records_goes_to_the_end() -> None:
    async def play() -> None:
        world = World("by_duration:PT1H")
        world.subscriptions.seek(B, 0)
        await world.pump()
        await world.pump()
        asked = await world.answer(listed(A, -1))
        assert timestamp(asked) == world.network.clock.now_ms() - 3_600_000
        assert timestamp(await world.answer(listed(A, 8))) == -1
        assert world.offset(A) == 8

    run(play())


async def moved(reset: str) -> World:
    """A was read up to 10 in epoch 0; then broker 1 came to lead it in epoch 1."""
    world = World(reset)
    world.subscriptions.seek(B, 0)
    world.subscriptions.seek_validated(A, FetchPosition(10, 0, LeaderAndEpoch(0, 0)))
    world.subscriptions.maybe_validate_position(A, LeaderAndEpoch(1, 1))
    await world.pump()
    assert world.network.asked[0].node == 1
    return world


def test_a_log_that_is_shorter() -> None:
    async def play() -> None:
        world = await moved("earliest")
        await world.answer(ended(A, 0, 6))
        assert world.offset(A) == 6
        world = await moved("none")
        await world.answer(ended(A, 0, 6))
        (error,) = world.reported
        assert isinstance(error, LogTruncationError)
        assert "t-0 at 10 (diverges at 6)" in error.message
        assert world.offset(A) is None

    run(play())


def test_validation_is_tried_again() -> None:
    async def play() -> None:
        world = await moved("earliest")
        await world.answer(ended(A, -1, -1, ErrorCode.FENCED_LEADER_EPOCH))
        await world.pump()
        assert world.network.asked == []
        world.network.clock.advance(100)
        await world.pump()
        await world.answer(ended(A, 0, 10))
        assert world.offset(A) == 10

    run(play())


def test_brokers_that_are_too_old_to_validate() -> None:
    async def play() -> None:
        world = await moved("none")
        await world.answer(UnsupportedVersionError("too old"))
        assert (world.offset(A), world.reported) == (10, [])

    run(play())
