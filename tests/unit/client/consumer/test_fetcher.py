"""Fetch requests to each broker, and fetching ahead, with brokers that the test simulates."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from penstock.client.consumer.completed_fetch import FetchConfig
from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.consumer.fetch_metrics import FetchMetrics
from penstock.client.consumer.fetcher import Fetcher
from penstock.client.consumer.positions import FetchPosition, LeaderAndEpoch, parse_offset_reset
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.errors import AuthenticationError, DisconnectError
from penstock.client.metrics import Metrics
from penstock.client.settings import ConsumerOptions, resolve
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchNodeEndpoint,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.client.fetch_network import FakeNetwork, SentRequest

A, B, C = (TopicPartition("t", index) for index in range(3))


def data(first: int, count: int) -> bytes:
    records = [Record(first + index, 0, None, b"v" * 100) for index in range(count)]
    return bytes(build_batch(records, base_offset=first))


def offsets_of(requested: SentRequest) -> dict[int, int]:
    request = cast(FetchRequest, requested.request)
    return {
        partition.partition: partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }


class Harness:
    """A fetcher with partitions A and B led by broker 0, and C by broker 1."""

    def __init__(self, **options: int) -> None:
        value: ConsumerOptions = {"bootstrap_servers": "h:1", "client_rack": "here"}
        settings = resolve(ConsumerOptions, {**value, **options})
        self.network = FakeNetwork(settings)
        self.network.know({A: 0, B: 0, C: 1})
        self.subscriptions = SubscriptionState(parse_offset_reset("earliest"))
        self.subscriptions.assign_from_user([A, B, C])
        for item in (A, B, C):
            self.subscriptions.seek_validated(item, FetchPosition(0))
        self.buffer = FetchBuffer(self.subscriptions)
        self.errors: list[KafkaError] = []
        self.added: list[bool] = []
        self.fetcher = Fetcher(
            cast(NetworkClient, self.network),
            self.subscriptions,
            self.buffer,
            settings,
            FetchConfig(),
            FetchMetrics(Metrics(self.network.clock), lambda: 0.0),
            on_fetched=self.added.append,
            on_error=self.errors.append,
            on_end=lambda task: None,
        )

    async def send_fetches(self) -> tuple[dict[int, SentRequest], int | None]:
        """Returns the new requests by broker, and the time to wait."""
        self.network.requests.clear()
        wait = self.fetcher.send_fetches(self.network.clock.monotonic_ms())
        await asyncio.sleep(0)
        return {request.node: request for request in self.network.requests}, wait

    async def respond(
        self,
        requested: SentRequest,
        *partitions: FetchPartitionData,
        session_id: int = 0,
        **more: Any,
    ) -> None:
        topic = FetchableTopicResponse(topic="t", partitions=list(partitions))
        response = FetchResponse(
            session_id=session_id, responses=[topic] if partitions else [], **more
        )
        requested.response.set_result(response)
        for _ in range(3):
            await asyncio.sleep(0)

    async def fail(self, requested: SentRequest, error: KafkaError) -> None:
        requested.response.set_exception(error)
        for _ in range(3):
            await asyncio.sleep(0)


def run(scenario: Callable[[Harness], Coroutine[Any, Any, None]], **options: int) -> None:
    async def main() -> None:
        harness = Harness(**options)
        await scenario(harness)
        await harness.fetcher.close()

    asyncio.run(main())


def records(partition: TopicPartition, first: int, count: int) -> FetchPartitionData:
    return FetchPartitionData(
        partition_index=partition.partition,
        high_watermark=first + count,
        last_stable_offset=first + count,
        log_start_offset=0,
        records=data(first, count),
    )


def empty(partition: TopicPartition) -> FetchPartitionData:
    return FetchPartitionData(partition_index=partition.partition)


def test_one_request_for_each_leader() -> None:
    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        assert {node: offsets_of(item) for node, item in requested.items()} == {
            0: {0: 0, 1: 0},
            1: {2: 0},
        }
        request = cast(FetchRequest, requested[0].request)
        assert requested[0].version == 12  # topics without ids
        assert (request.max_wait_ms, request.min_bytes, request.rack_id) == (500, 1, "here")
        assert await harness.send_fetches() == ({}, None)

    run(scenario)


def test_fetching_ahead_of_the_reader_is_limited() -> None:
    """At most two responses of a partition are buffered; then it is no longer fetched."""

    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        await harness.respond(requested[0], records(A, 0, 3), empty(B), session_id=5)
        assert harness.added == [True]
        assert harness.subscriptions.lag(A, read_committed=False) == 3
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[0]) == {0: 3}  # B is in the session, and has not changed
        await harness.respond(requested[0], records(A, 3, 2), session_id=5)
        assert (await harness.send_fetches())[0] == {}
        assert len(harness.buffer.collect(3)) == 3
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[0]) == {0: 5}

    run(scenario)


def test_the_buffer_is_limited_in_bytes() -> None:
    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        await harness.respond(requested[0], records(A, 0, 3), empty(B), session_id=5)
        assert harness.buffer.size > 300
        assert (await harness.send_fetches())[0] == {}
        harness.buffer.collect(10)
        assert set((await harness.send_fetches())[0]) == {0}

    run(scenario, fetch_max_bytes=300)


def test_paused_partitions_are_not_fetched() -> None:
    async def scenario(harness: Harness) -> None:
        harness.subscriptions.pause(A)
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[0]) == {1: 0}

    run(scenario)


def test_a_seek_drops_the_response_in_flight() -> None:
    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        harness.subscriptions.seek_validated(A, FetchPosition(7))
        await harness.respond(requested[0], records(A, 0, 3), empty(B), session_id=5)
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[0]) == {0: 7}
        assert harness.buffer.collect(10) == []

    run(scenario)


def test_the_preferred_replica_is_fetched_from() -> None:
    """KIP-392: as long as it responds and has the offset."""

    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        near = FetchPartitionData(partition_index=0, preferred_read_replica=1)
        await harness.respond(requested[0], near, empty(B), session_id=5)
        harness.network.clock.advance(20)
        await harness.respond(requested[1], empty(C), session_id=6)
        harness.network.clock.advance(20)
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[1]) == {0: 0}
        forgotten = cast(FetchRequest, requested[0].request).forgotten_topics_data
        assert [item.partitions for item in forgotten] == [[0]]
        await harness.fail(requested[1], DisconnectError("disconnected"))
        harness.network.clock.advance(200)
        await harness.respond(requested[0], session_id=5)
        harness.network.clock.advance(200)
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[0]) == {0: 0}

    run(scenario)


def test_a_new_leader_in_a_response_is_applied() -> None:
    """KIP-951: without a metadata request."""

    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        moved = FetchPartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=FetchLeaderIdAndEpoch(leader_id=1, leader_epoch=9),
        )
        previous = harness.network.updates
        node = FetchNodeEndpoint(node_id=1, host="h", port=1)
        await harness.respond(requested[0], moved, empty(B), node_endpoints=[node])
        assert harness.network.updates == previous
        assert harness.added == [False]
        harness.fetcher.update_leaders(harness.network.metadata.cluster)
        position = harness.subscriptions.position(A)
        assert position is not None
        assert position.leader == LeaderAndEpoch(1, 9)

    run(scenario)


def test_retriable_errors_request_a_metadata_update() -> None:
    async def scenario(harness: Harness) -> None:
        for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH):
            requested, _ = await harness.send_fetches()
            previous = harness.network.updates
            failed = FetchPartitionData(partition_index=0, error_code=code)
            await harness.respond(requested[0], failed, empty(B))
            assert harness.network.updates > previous
            harness.network.clock.advance(50)
            requested, wait = await harness.send_fetches()
            assert offsets_of(requested[0]) == {1: 0}  # the other partition need not wait
            assert wait is not None
            assert 0 < wait <= 100
            await harness.respond(requested[0], empty(B))
            harness.network.clock.advance(100)

    run(scenario)


def test_a_lost_request_starts_a_new_session() -> None:
    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        await harness.respond(requested[0], records(A, 0, 1), empty(B), session_id=5)
        requested, _ = await harness.send_fetches()
        assert cast(FetchRequest, requested[0].request).session_id == 5
        await harness.fail(requested[0], DisconnectError("disconnected"))
        requested, wait = await harness.send_fetches()
        assert requested == {}
        assert wait == 100
        harness.network.clock.advance(100)
        requested, _ = await harness.send_fetches()
        request = cast(FetchRequest, requested[0].request)
        assert (request.session_id, request.session_epoch) == (5, 0)
        assert offsets_of(requested[0]) == {0: 1, 1: 0}
        assert harness.errors == []

    run(scenario)


def test_permanent_errors_are_reported() -> None:
    async def scenario(harness: Harness) -> None:
        requested, _ = await harness.send_fetches()
        await harness.fail(requested[0], AuthenticationError("who are you?"))
        assert [error.message for error in harness.errors] == ["who are you?"]

    run(scenario)


def test_unreachable_brokers_get_no_requests() -> None:
    async def scenario(harness: Harness) -> None:
        harness.network.backoff[0] = 70
        requested, wait = await harness.send_fetches()
        assert set(requested) == {1}
        assert wait == 70

    run(scenario)


def test_a_partition_without_a_leader_requests_a_metadata_update() -> None:
    async def scenario(harness: Harness) -> None:
        harness.network.know({A: -1, B: 0, C: 1})
        previous = harness.network.updates
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[0]) == {1: 0}
        assert harness.network.updates > previous

    run(scenario)


def test_positions_are_validated_when_leaders_change() -> None:
    async def scenario(harness: Harness) -> None:
        position = FetchPosition(4, 0, LeaderAndEpoch(0, 0))
        harness.subscriptions.seek_validated(A, position)
        harness.network.know({A: 1, B: 0, C: 1}, epoch=1)
        harness.fetcher.update_leaders(harness.network.metadata.cluster)
        assert list(harness.subscriptions.partitions_needing_validation(0)) == [A]
        requested, _ = await harness.send_fetches()
        assert offsets_of(requested[1]) == {2: 0}

    run(scenario)


def test_closing_ends_the_sessions() -> None:
    async def main() -> None:
        harness = Harness()
        requested, _ = await harness.send_fetches()
        await harness.respond(requested[0], empty(A), empty(B), session_id=5)
        harness.network.requests.clear()
        await harness.fetcher.close()
        (last,) = harness.network.requests
        request = cast(FetchRequest, last.request)
        assert (last.node, request.session_id, request.session_epoch) == (0, 5, -1)

    asyncio.run(main())
