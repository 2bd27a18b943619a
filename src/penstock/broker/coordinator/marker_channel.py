"""Transaction markers for partitions of any broker, by their leaders (P4).

The transaction coordinator writes the markers of partitions that its own broker leads directly, and
sends WriteTxnMarkers to the other leaders. It retries what failed, with the leaders of that time.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.broker.coordinator.transaction_coordinator import MarkerWriter
from penstock.broker.inter_broker.batch_queue import BatchQueue
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.controller.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.errors import error_code_of
from penstock.net.server.limits import LogRateLimiter
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)

Errors = dict[TopicPartition, ErrorCode]


class _Entry(NamedTuple):
    marker: WritableTxnMarker
    partitions: frozenset[TopicPartition]


class TransactionMarkerChannel:
    """Writes markers wherever the leaders are. It belongs to the event loop."""

    def __init__(
        self,
        broker_id: int,
        image: ClusterImage,
        local: MarkerWriter,
        client: InterBrokerClient,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._local = local
        self._client = client
        self._clock = clock
        self._queues: dict[int, BatchQueue[_Entry, Errors]] = {}
        self._log_limiter = LogRateLimiter()

    def write_at_once(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Writes markers to the partitions of this broker that need to wait for nothing.

        Returns the partitions written.
        """
        return self._local.write_at_once(marker, partitions)

    async def write(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> Errors:
        """Writes markers to these partitions, which exist; returns the error of each."""
        errors: Errors = {}
        by_leader = partitions_by_leader(self._image, partitions)
        for partition in by_leader.pop(-1, ()):
            errors[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        own = by_leader.pop(self._broker_id, frozenset())
        if not by_leader:
            errors.update(await self._local.write(marker, own))
            return errors
        for result in await asyncio.gather(
            self._local.write(marker, own),
            *(self._send(leader, marker, group) for leader, group in by_leader.items()),
        ):
            errors.update(result)
        return errors

    async def _send(
        self, leader: int, marker: WritableTxnMarker, partitions: frozenset[TopicPartition]
    ) -> Errors:
        queue = self._queues.get(leader)
        if queue is None:
            queue = self._queues[leader] = BatchQueue(
                lambda entries: self._request(leader, entries),
                key=lambda entry: entry.marker.producer_id,
            )
        try:
            return await queue.put(_Entry(marker, partitions))
        except KafkaError as error:
            suppressed = self._log_limiter.allow(str(leader), self._clock.monotonic_ms())
            if suppressed is not None:
                logger.warning(
                    "broker %d did not receive the markers of transactions, which are sent again: "
                    "%s (%d such lines were left out)",
                    leader,
                    error.message,
                    suppressed,
                )
            return dict.fromkeys(partitions, error.code)

    async def _request(self, leader: int, entries: Sequence[_Entry]) -> list[Errors]:
        request = WriteTxnMarkersRequest([_with_topics(entry) for entry in entries])
        response = await self._client.request(leader, request, WriteTxnMarkersResponse)
        by_producer = _errors_by_producer(response)
        return [
            {
                partition: by_producer.get(entry.marker.producer_id, {}).get(
                    partition, ErrorCode.UNKNOWN_SERVER_ERROR
                )
                for partition in entry.partitions
            }
            for entry in entries
        ]


def partitions_by_leader(
    image: ClusterImage, partitions: Iterable[TopicPartition]
) -> dict[int, frozenset[TopicPartition]]:
    """Returns the partitions by the broker that leads them; -1 for those without a live leader."""
    groups: dict[int, set[TopicPartition]] = {}
    for partition in partitions:
        leader, _ = image.leader_of(*partition)
        groups.setdefault(leader if leader in image.brokers else -1, set()).add(partition)
    return {leader: frozenset(group) for leader, group in groups.items()}


def _with_topics(entry: _Entry) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, index in sorted(entry.partitions):
        topic = topics.setdefault(name, WritableTxnMarkerTopic(name, []))
        topic.partition_indexes.append(index)
    marker = entry.marker
    return WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        list(topics.values()),
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _errors_by_producer(response: WriteTxnMarkersResponse) -> Mapping[int, Errors]:
    return {
        result.producer_id: {
            TopicPartition(topic.name, partition.partition_index): error_code_of(
                partition.error_code
            )
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in response.markers
    }
