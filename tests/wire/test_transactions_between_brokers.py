"""Markers and verification of transactions over several brokers, with fake ones (P4)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator.add_partitions_manager import AddPartitionsManager
from penstock.broker.coordinator.marker_channel import TransactionMarkerChannel
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    BrokerRecord,
    Delete,
    Endpoint,
    PartitionRecord,
    Put,
    SecurityProtocol,
    TopicRecord,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from penstock.protocol.messages.header import RequestHeader
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.broker.fake_brokers import FakeBroker, fake_broker

CLOCK = SystemClock()
MARKER = WritableTxnMarker(7, 3, True, coordinator_epoch=5)
OWN, FIRST, SECOND, LEADERLESS = (TopicPartition("t", number) for number in range(4))


class _Cluster:
    """Broker 0 is under test. Of topic t, partition 0 is its own; 1 and 2 are those of others."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.client = InterBrokerClient(BrokerConfig.from_properties({}), self.image, CLOCK)
        self.local = _Local()
        self.image.apply(
            [
                Put(TopicRecord("t", UUID(int=1), {n: Assignment((n,)) for n in range(4)})),
                *(self._state(n, n if n < 3 else -1) for n in range(4)),
            ]
        )
        self.add(0, 1)

    def _state(self, number: int, leader: int) -> Put:
        return Put(PartitionRecord("t", number, leader, 0, (leader,), 1, 0))

    def add(self, broker_id: int, port: int) -> None:
        endpoint = Endpoint("PLAINTEXT", "localhost", port, SecurityProtocol.PLAINTEXT)
        self.image.apply([Put(BrokerRecord(broker_id, (endpoint,), None, 0, {}, 1))])

    def move(self, number: int, leader: int) -> None:
        self.image.apply([self._state(number, leader)])


class _Local:
    """The markers and the coordinator of broker 0."""

    def __init__(self) -> None:
        self.written: list[TopicPartition] = []
        self.verified: list[str] = []

    def write_at_once(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        return frozenset(partitions) & {OWN}

    async def write(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        self.written += partitions
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def coordinator_of(self, key: str) -> int:
        """Ids begin with the number of their coordinator."""
        return int(key.partition("-")[0])

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.verified.append(transactional_id)
        return dict.fromkeys(partitions, ErrorCode.NONE)


def run(work: Callable[[_Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = _Cluster()
        try:
            await asyncio.wait_for(work(cluster), 20)
        finally:
            await cluster.client.close()

    asyncio.run(main())


# --- markers


def written(header: RequestHeader, request: Message) -> Message:
    """Partition 2 has another leader by now."""
    assert isinstance(request, WriteTxnMarkersRequest)
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(
                                index,
                                ErrorCode.NOT_LEADER_OR_FOLLOWER if index == 2 else ErrorCode.NONE,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def markers(broker: FakeBroker) -> list[list[tuple[int, list[int]]]]:
    """The producer ids and partitions of each request."""
    return [
        [(marker.producer_id, marker.topics[0].partition_indexes) for marker in request.markers]
        for request in broker.requests
        if isinstance(request, WriteTxnMarkersRequest)
    ]


def _channel(cluster: _Cluster) -> TransactionMarkerChannel:
    return TransactionMarkerChannel(0, cluster.image, cluster.local, cluster.client, CLOCK)


def test_markers_are_written_by_the_leaders_of_their_partitions() -> None:
    async def work(cluster: _Cluster) -> None:
        async with fake_broker(written) as first, fake_broker(written) as second:
            cluster.add(1, first.port)
            cluster.add(2, second.port)
            channel = _channel(cluster)
            assert channel.write_at_once(MARKER, [OWN, FIRST]) == {OWN}
            errors = await channel.write(MARKER, [OWN, FIRST, SECOND, LEADERLESS])
            assert errors == {
                OWN: ErrorCode.NONE,
                FIRST: ErrorCode.NONE,
                SECOND: ErrorCode.NOT_LEADER_OR_FOLLOWER,
                LEADERLESS: ErrorCode.LEADER_NOT_AVAILABLE,
            }
            assert cluster.local.written == [OWN]
            assert markers(first) == [[(7, [1])]]
            marker = first.requests[0]
            assert isinstance(marker, WriteTxnMarkersRequest)
            sent = marker.markers[0]
            assert (sent.producer_epoch, sent.transaction_result) == (3, True)
            assert sent.coordinator_epoch == 5
            cluster.move(2, 1)
            assert (await channel.write(MARKER, [SECOND]))[SECOND] is not ErrorCode.NONE
            assert markers(first)[1] == [(7, [2])], "the new leader gets it"

    run(work)


def test_a_leader_that_cannot_be_reached_is_an_error_of_its_partitions_alone() -> None:
    async def work(cluster: _Cluster) -> None:
        async with fake_broker(written) as first:
            cluster.add(1, first.port)
            cluster.add(2, 1)
            errors = await _channel(cluster).write(MARKER, [FIRST, SECOND])
            assert errors == {FIRST: ErrorCode.NONE, SECOND: ErrorCode.NETWORK_EXCEPTION}
            cluster.image.apply([Delete(BrokerKey(1))])
            errors = await _channel(cluster).write(MARKER, [FIRST])
            assert errors == {FIRST: ErrorCode.LEADER_NOT_AVAILABLE}

    run(work)


def test_markers_of_many_transactions_share_requests() -> None:
    async def work(cluster: _Cluster) -> None:
        async with fake_broker(written) as first:
            cluster.add(1, first.port)
            channel = _channel(cluster)
            all_markers = [WritableTxnMarker(n, 0, True, coordinator_epoch=5) for n in range(50)]
            results = await asyncio.gather(*(channel.write(m, [FIRST]) for m in all_markers))
            assert results == [{FIRST: ErrorCode.NONE}] * 50
            assert len(first.requests) < 5

    run(work)


# --- verification


def verified(header: RequestHeader, request: Message) -> Message:
    assert isinstance(request, AddPartitionsToTxnRequest)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transaction.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(
                                index,
                                ErrorCode.INVALID_TXN_STATE if index == 2 else ErrorCode.NONE,
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
    )


async def verify(
    manager: AddPartitionsManager, name: str, *partitions: TopicPartition, verify_only: bool = True
) -> dict[TopicPartition, ErrorCode]:
    return await manager.add_partitions(name, 7, 3, partitions, verify_only=verify_only)


def test_transactions_are_verified_with_their_coordinators() -> None:
    async def work(cluster: _Cluster) -> None:
        async with fake_broker(verified) as first:
            cluster.add(1, first.port)
            manager = AddPartitionsManager(0, cluster.local, cluster.client)
            assert await verify(manager, "0-mine", OWN) == {OWN: ErrorCode.NONE}
            assert cluster.local.verified == ["0-mine"]
            assert first.requests == []
            assert await verify(manager, "1-a", OWN, SECOND) == {
                OWN: ErrorCode.NONE,
                SECOND: ErrorCode.INVALID_TXN_STATE,
            }
            await verify(manager, "1-a", OWN, verify_only=False)
            flags = [
                (transaction.verify_only, transaction.producer_id, transaction.producer_epoch)
                for request in first.requests
                if isinstance(request, AddPartitionsToTxnRequest)
                for transaction in request.transactions
            ]
            assert flags == [(True, 7, 3), (False, 7, 3)]
            await asyncio.gather(*(verify(manager, f"1-{n}", OWN) for n in range(50)))
            assert len(first.requests) < 7, "they share requests"

    run(work)


def test_a_coordinator_that_cannot_be_reached_is_retried_by_the_producer() -> None:
    async def work(cluster: _Cluster) -> None:
        manager = AddPartitionsManager(0, cluster.local, cluster.client)
        cluster.add(1, 1)
        assert await verify(manager, "1-a", OWN) == {OWN: ErrorCode.NETWORK_EXCEPTION}

    run(work)


def test_a_coordinator_that_refuses_or_cannot_verify() -> None:
    def refuse(header: RequestHeader, request: Message) -> Message:
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def work(cluster: _Cluster) -> None:
        versions = {ApiKey.API_VERSIONS: (0, 4), ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3)}
        async with fake_broker(refuse) as first, fake_broker(refuse, versions) as old:
            cluster.add(1, first.port)
            cluster.add(2, old.port)
            manager = AddPartitionsManager(0, cluster.local, cluster.client)
            assert await verify(manager, "1-a", OWN) == {OWN: ErrorCode.INVALID_TXN_STATE}
            assert await verify(manager, "2-a", OWN) == {OWN: ErrorCode.NONE}
            errors = await verify(manager, "2-a", OWN, verify_only=False)
            assert errors == {OWN: ErrorCode.INVALID_TXN_STATE}

    run(work)
