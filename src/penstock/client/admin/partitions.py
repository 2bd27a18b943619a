"""Admin calls to the leaders of partitions, and to replicas: delete records, list offsets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from penstock.client.admin.advice import unsupported_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, LookupStrategy, Results
from penstock.client.admin.api_lookup import LEADER_CODES, find_brokers, partition_leaders
from penstock.client.admin.model_topics import ListedOffset, OffsetSpec, TopicPartitionReplica
from penstock.client.admin.results import group_by_topic, number_or_none, partition_results
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_VERSION_OF_SPEC: dict[int, tuple[int, str]] = {
    OffsetSpec.MAX_TIMESTAMP: (7, "3.0"),
    OffsetSpec.EARLIEST_LOCAL: (8, "3.5"),
    OffsetSpec.LATEST_TIERED: (9, "3.9"),
    OffsetSpec.EARLIEST_PENDING_UPLOAD: (11, "4.2"),
}
"""The first version of ListOffsets with a spec, and the first Kafka with that version."""

_DEBUGGING_REPLICA = -2
"""The replica id with which a broker returns the log end offset of its own replica."""


async def delete_records(
    admin: AdminApiDriver,
    offsets: Mapping[TopicPartition, int],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, int]:
    """Deletes the records of partitions before an offset; -1 is the high watermark.

    Returns the new log start offsets.
    """
    call = AdminCall(admin, "delete_records", timeout_ms)

    async def send(node_id: int, keys: Sequence[TopicPartition]) -> Results[TopicPartition, int]:
        topics = [
            DeleteRecordsTopic(
                topic,
                [
                    DeleteRecordsPartition(index, offsets[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(keys).items()
        ]
        request = DeleteRecordsRequest(topics, call.remaining_ms())
        response = await call.request(node_id, request, DeleteRecordsResponse)
        return partition_results(response.topics, lambda partition: partition.low_watermark)

    return await call.request_each(offsets, partition_leaders(call), send)


async def list_offsets(
    admin: AdminApiDriver,
    specs: Mapping[TopicPartition, OffsetSpec | int],
    *,
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """Returns offsets of partitions: by `OffsetSpec`, or the first at or after a time (ms).

    LATEST is the high watermark, or the last stable offset with `read_committed`.
    """
    call = AdminCall(admin, "list_offsets", timeout_ms)
    isolation = 1 if isolation_level == "read_committed" else 0

    async def send(
        node_id: int, keys: Sequence[TopicPartition]
    ) -> Results[TopicPartition, ListedOffset]:
        requested: list[TopicPartition] = []

        def build(version: int) -> ListOffsetsRequest:
            requested[:] = [key for key in keys if _required_version(specs[key])[0] <= version]
            topics = [
                ListOffsetsTopic(
                    topic,
                    [
                        ListOffsetsPartition(
                            index, timestamp=int(specs[TopicPartition(topic, index)])
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in group_by_topic(requested).items()
            ]
            return ListOffsetsRequest(-1, isolation, topics, call.remaining_ms())

        response = await call.request(
            node_id,
            build,
            ListOffsetsResponse,
            required=(2, "0.11") if isolation else (1, "0.10.1"),
        )
        results = partition_results(response.topics, _listed)
        for partition in set(keys) - set(requested):
            results[partition] = unsupported_error(
                f"the offset {OffsetSpec(specs[partition]).name}",
                ApiKey.LIST_OFFSETS,
                call.describe_node(node_id),
                _required_version(specs[partition]),
            )
        return results

    return await call.request_each(specs, partition_leaders(call), send)


async def list_replica_end_offsets(
    admin: AdminApiDriver,
    replicas: Iterable[TopicPartitionReplica],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartitionReplica, int]:
    """Returns the log end offset of each replica, leaders and followers.

    Their differences are how far followers are behind. `list_offsets` returns the high watermark.
    """
    call = AdminCall(admin, "list_replica_end_offsets", timeout_ms)

    async def find(
        keys: Sequence[TopicPartitionReplica],
    ) -> Results[TopicPartitionReplica, int]:
        node_ids = await find_brokers(call, {key.broker_id for key in keys})
        return {key: node_ids[key.broker_id] for key in keys}

    async def send(
        node_id: int, keys: Sequence[TopicPartitionReplica]
    ) -> Results[TopicPartitionReplica, int]:
        partitions = [TopicPartition(key.topic, key.partition) for key in keys]
        topics = [
            ListOffsetsTopic(
                topic,
                [ListOffsetsPartition(index, timestamp=OffsetSpec.LATEST) for index in indexes],
            )
            for topic, indexes in group_by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(_DEBUGGING_REPLICA, 0, topics, call.remaining_ms())
        response = await call.request(node_id, request, ListOffsetsResponse, required=(1, "0.10.1"))
        subject = f"the replica on broker {node_id} of partition"
        results = partition_results(response.topics, lambda data: data.offset, subject=subject)
        return {
            TopicPartitionReplica(*partition, node_id): offset
            for partition, offset in results.items()
        }

    return await call.request_each(replicas, LookupStrategy(find, LEADER_CODES), send)


def _required_version(spec: int) -> tuple[int, str]:
    return _VERSION_OF_SPEC.get(spec, (1, "0.10.1"))


def _listed(partition: ListOffsetsPartitionResponse) -> ListedOffset:
    epoch = number_or_none(partition.leader_epoch)
    return ListedOffset(partition.offset, partition.timestamp, epoch)
