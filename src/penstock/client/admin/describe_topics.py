"""The admin call `describe_topics`: with DescribeTopicPartitions, or Metadata on old brokers."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from penstock.client.admin.advice import broker_error, response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, NodeProvider, unique_keys
from penstock.client.admin.api_lookup import fetch_metadata
from penstock.client.admin.model_topics import PartitionDescription, TopicDescription
from penstock.client.admin.results import number_or_none, operations_of
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


async def describe_topics(
    admin: AdminApiDriver,
    topics: Iterable[str | UUID],
    *,
    include_authorized_operations: bool = False,
    timeout_ms: int | None = None,
) -> dict[str | UUID, TopicDescription]:
    """Returns topics with their partitions, by the names or ids (Kafka 2.8) of the call.

    A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION; it is not created.
    """
    call = AdminCall(admin, "describe_topics", timeout_ms)
    requested = unique_keys(call.name, topics)
    names = [key for key in requested if isinstance(key, str)]
    ids = [key for key in requested if isinstance(key, UUID)]
    descriptions: dict[str | UUID, TopicDescription | KafkaError] = {}
    if names:
        try:
            descriptions.update(await _describe_pages(call, names))
        except UnsupportedVersionError:
            response = await fetch_metadata(
                call,
                [MetadataRequestTopic(name=name) for name in names],
                authorized_operations=include_authorized_operations,
            )
            descriptions.update(
                {topic.name or "": _from_metadata(topic) for topic in response.topics}
            )
    if ids:
        response = await fetch_metadata(
            call,
            [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids],
            authorized_operations=include_authorized_operations,
            required=(12, "3.0"),
        )
        descriptions.update({topic.topic_id: _from_metadata(topic) for topic in response.topics})
    for key, description in descriptions.items():
        if isinstance(description, TopicDescription) and not include_authorized_operations:
            descriptions[key] = description._replace(authorized_operations=None)
    return call.checked(
        {
            key: descriptions.get(key)
            or broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key}")
            for key in requested
        }
    )


async def _describe_pages(
    call: AdminCall, names: Sequence[str]
) -> dict[str, TopicDescription | KafkaError]:
    """Uses DescribeTopicPartitions, whose pages may end within a topic."""
    results: dict[str, TopicDescription | KafkaError] = {}
    request = DescribeTopicPartitionsRequest(
        [DescribeTopicPartitionsTopicRequest(name) for name in sorted(names)]
    )
    while True:
        response = await call.request_until_done(
            NodeProvider.ANY, request, DescribeTopicPartitionsResponse
        )
        for topic in response.topics:
            name = topic.name or ""
            described = _from_page(topic)
            previous = results.get(name)
            if isinstance(previous, TopicDescription) and not isinstance(described, KafkaError):
                described = previous._replace(partitions=previous.partitions + described.partitions)
            results[name] = described
        cursor = response.next_cursor
        if cursor is None:
            return results
        request = DescribeTopicPartitionsRequest(
            [topic for topic in request.topics if topic.name >= cursor.topic_name],
            cursor=DescribeTopicPartitionsRequestCursor(cursor.topic_name, cursor.partition_index),
        )


def _from_page(topic: DescribeTopicPartitionsResponseTopic) -> TopicDescription | KafkaError:
    partitions = (
        _partition(partition)._replace(
            eligible_leader_replicas=_as_tuple(partition.eligible_leader_replicas),
            last_known_eligible_leader_replicas=_as_tuple(partition.last_known_elr),
        )
        for partition in topic.partitions
    )
    return response_error(topic, f"topic {topic.name}") or _description(topic, partitions)


def _from_metadata(topic: MetadataResponseTopic) -> TopicDescription | KafkaError:
    partitions = map(_partition, sorted(topic.partitions, key=lambda item: item.partition_index))
    subject = f"topic {topic.name or topic.topic_id}"
    return response_error(topic, subject) or _description(topic, partitions)


def _description(
    topic: DescribeTopicPartitionsResponseTopic | MetadataResponseTopic,
    partitions: Iterable[PartitionDescription],
) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        None if topic.topic_id == ZERO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(partitions),
        operations_of(topic.topic_authorized_operations),
    )


def _partition(
    partition: DescribeTopicPartitionsResponsePartition | MetadataResponsePartition,
) -> PartitionDescription:
    return PartitionDescription(
        partition.partition_index,
        number_or_none(partition.leader_id),
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
    )


def _as_tuple(replicas: list[int] | None) -> tuple[int, ...] | None:
    return None if replicas is None else tuple(replicas)
