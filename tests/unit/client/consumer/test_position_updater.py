"""How partitions get their positions, with brokers that the test simulates."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, cast

import pytest

from penstock.client.consumer.group.coordinator import ConsumerCoordinator
from penstock.client.consumer.offset_fetcher import OffsetFetcher
from penstock.client.consumer.position_updater import PositionUpdater
from penstock.client.consumer.positions import (
    FetchPosition,
    LeaderAndEpoch,
    LogTruncationError,
    parse_offset_reset,
)
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.consumer.subscription_state import SubscriptionState
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
from tests.support.client.fetch_network import FakeNetwork, SentRequest

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Commits:
    """A group with these committed offsets, or one that fails with this error."""

    def __init__(self, result: dict[TopicPartition, OffsetAndMetadata] | KafkaError) -> None:
        self.result = result

    @property
    def offsets(self) -> Self:
        return self

    async def committed(
        self, partitions: list[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if isinstance(self.result, KafkaError):
            raise self.result
        return {partition: self.result.get(partition) for partition in partitions}


class Harness:
    def __init__(self, reset: str, group: Commits | None = None) -> None:
        settings = resolve(ConsumerOptions, {"bootstrap_servers": "h:1"})
        self.network = FakeNetwork(settings, newest=10)
        self.network.know({A: 0, B: 1})
        self.subscriptions = SubscriptionState(parse_offset_reset(reset))
        self.subscriptions.assign_from_user([A, B])
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.reported: list[KafkaError] = []
        network = cast(NetworkClient, self.network)
        self.updater = PositionUpdater(
            network,
            self.subscriptions,
            OffsetFetcher(network, read_committed=False),
            cast("ConsumerCoordinator | None", group),
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

    async def update_positions(self) -> int | None:
        wait = self.updater.update_positions(
            self.network.clock.monotonic_ms(), has_errors=bool(self.reported)
        )
        await self.run_tasks()
        return wait

    async def run_tasks(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def respond(self, response: Message | KafkaError) -> SentRequest:
        sent = self.network.requests.pop(0)
        if isinstance(response, KafkaError):
            sent.response.set_exception(response)
        else:
            sent.response.set_result(response)
        await self.run_tasks()
        return sent

    def offset(self, partition: TopicPartition) -> int | None:
        position = self.subscriptions.valid_position(partition)
        return None if position is None else position.offset


def listed(partition: TopicPartition, offset: int, code: int = 0) -> ListOffsetsResponse:
    result = ListOffsetsPartitionResponse(
        partition_index=partition.partition, error_code=code, offset=offset
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [result])])


def ended(partition: TopicPartition, epoch: int, end: int, code: int = 0) -> Message:
    result = OffsetForLeaderEpochEndOffset(code, partition.partition, epoch, end)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("t", [result])])


def timestamp(sent: SentRequest) -> int:
    return cast(ListOffsetsRequest, sent.request).topics[0].partitions[0].timestamp


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_committed_offsets_are_used_before_resets() -> None:
    async def scenario() -> None:
        harness = Harness("earliest", Commits({A: OffsetAndMetadata(7, "", -1)}))
        await harness.update_positions()
        assert harness.offset(A) == 7
        assert await harness.update_positions() is not None
        assert timestamp(await harness.respond(listed(B, 3))) == -2
        assert harness.offset(B) == 3
        assert await harness.update_positions() is None

    run(scenario())


def test_a_commit_with_an_epoch_is_validated() -> None:
    async def scenario() -> None:
        harness = Harness("earliest", Commits(dict.fromkeys((A, B), OffsetAndMetadata(7, "", 0))))
        await harness.update_positions()
        await harness.update_positions()
        assert harness.offset(A) is None
        await harness.respond(ended(A, 0, 9))
        await harness.respond(ended(B, 0, 5))
        assert (harness.offset(A), harness.offset(B)) == (7, 5)

    run(scenario())


@pytest.mark.parametrize(
    ("failure", "error_count"),
    [(DisconnectError("disconnected"), 0), (AuthorizationError("no"), 1)],
)
def test_commits_that_cannot_be_read(failure: KafkaError, error_count: int) -> None:
    """The fetch is retried or its error reported; neither case resets the position."""

    async def scenario() -> None:
        harness = Harness("earliest", Commits(failure))
        await harness.update_positions()
        assert len(harness.reported) == error_count
        assert harness.subscriptions.partitions_needing_reset(10**15) == []
        harness.reported.clear()
        await harness.update_positions()
        assert harness.reported == []  # not immediately
        harness.network.clock.advance(100)
        await harness.update_positions()
        assert len(harness.reported) == error_count

    run(scenario())


def test_without_a_reset_policy_a_missing_commit_is_an_error() -> None:
    async def scenario() -> None:
        harness = Harness("none")
        await harness.update_positions()
        assert isinstance(harness.reported[0], NoOffsetForPartitionError)
        assert await harness.update_positions() is None  # nothing until poll has raised it

    run(scenario())


def test_failed_resets_are_retried() -> None:
    async def scenario() -> None:
        harness = Harness("latest")
        await harness.update_positions()
        await harness.update_positions()
        updates = harness.network.updates
        await harness.respond(listed(A, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await harness.respond(KafkaTimeoutError("too late"))
        assert harness.network.updates > updates
        await harness.update_positions()
        assert harness.network.requests == []
        harness.network.clock.advance(100)
        await harness.update_positions()
        assert timestamp(await harness.respond(listed(A, 4))) == -1
        await harness.respond(listed(B, 5))
        assert (harness.offset(A), harness.offset(B), harness.reported) == (4, 5, [])

    run(scenario())


def test_an_unauthorized_reset_is_reported() -> None:
    """E3."""

    async def scenario() -> None:
        harness = Harness("latest")
        await harness.update_positions()
        await harness.update_positions()
        await harness.respond(listed(A, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        assert [type(error) for error in harness.reported] == [AuthorizationError]

    run(scenario())


def test_a_reset_by_duration_without_later_records_goes_to_the_end() -> None:
    async def scenario() -> None:
        harness = Harness("by_duration:PT1H")
        harness.subscriptions.seek_validated(B, FetchPosition(0))
        await harness.update_positions()
        await harness.update_positions()
        sent = await harness.respond(listed(A, -1))
        assert timestamp(sent) == harness.network.clock.now_ms() - 3_600_000
        assert timestamp(await harness.respond(listed(A, 8))) == -1
        assert harness.offset(A) == 8

    run(scenario())


async def moved(reset: str) -> Harness:
    """A was read up to offset 10 in epoch 0; then broker 1 became its leader in epoch 1."""
    harness = Harness(reset)
    harness.subscriptions.seek_validated(B, FetchPosition(0))
    harness.subscriptions.seek_validated(A, FetchPosition(10, 0, LeaderAndEpoch(0, 0)))
    harness.subscriptions.maybe_validate_position(A, LeaderAndEpoch(1, 1))
    await harness.update_positions()
    assert harness.network.requests[0].node == 1
    return harness


def test_a_truncated_log_resets_the_position_or_is_an_error() -> None:
    async def scenario() -> None:
        harness = await moved("earliest")
        await harness.respond(ended(A, 0, 6))
        assert harness.offset(A) == 6
        harness = await moved("none")
        await harness.respond(ended(A, 0, 6))
        (error,) = harness.reported
        assert isinstance(error, LogTruncationError)
        assert "t-0 at 10 (diverges at 6)" in error.message
        assert harness.offset(A) is None

    run(scenario())


def test_a_failed_validation_is_retried() -> None:
    async def scenario() -> None:
        harness = await moved("earliest")
        await harness.respond(ended(A, -1, -1, ErrorCode.FENCED_LEADER_EPOCH))
        await harness.update_positions()
        assert harness.network.requests == []
        harness.network.clock.advance(100)
        await harness.update_positions()
        await harness.respond(ended(A, 0, 10))
        assert harness.offset(A) == 10

    run(scenario())


def test_positions_are_valid_if_the_broker_cannot_validate_them() -> None:
    async def scenario() -> None:
        harness = await moved("none")
        await harness.respond(UnsupportedVersionError("too old"))
        assert (harness.offset(A), harness.reported) == (10, [])

    run(scenario())
