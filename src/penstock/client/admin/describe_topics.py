"""The admin call `describe_topics`: with DescribeTopicPartitions, or Metadata on old brokers."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from penstock.client.admin.advice import broker_error
from penstock.client.admin.api_driver import NodeProvider, unique_keys
from penstock.client.admin.api_lookup import METADATA_WITHOUT_CREATION, AdminApiLookup
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import PartitionDescription, TopicDescription
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
from penstock.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from penstock.security.acl import AclOperation

NOT_REQUESTED = -(2**31)
"""The value of authorized operations that were not requested."""


class TopicDescriptions(AdminApiLookup):
    """The call `describe_topics`."""

    async def describe_topics(
        self,
        topics: Iterable[str | UUID],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str | UUID, TopicDescription]:
        """Returns topics with their partitions, by the names or ids (Kafka 2.8) of the call.

        A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION; it is not created.
        """
        deadline_ms = self._deadline(timeout_ms)
        requested = unique_keys("describe_topics", topics)
        names = [key for key in requested if isinstance(key, str)]
        ids = [key for key in requested if isinstance(key, UUID)]
        descriptions: dict[str | UUID, TopicDescription | KafkaError] = {}
        if names:
            try:
                descriptions.update(await self._describe_pages(names, deadline_ms))
            except UnsupportedVersionError:
                by_name = [MetadataRequestTopic(name=name) for name in names]
                descriptions.update(
                    await self._describe_with_metadata(
                        by_name, deadline_ms, include_authorized_operations
                    )
                )
        if ids:
            by_id = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
            descriptions.update(
                await self._describe_with_metadata(
                    by_id, deadline_ms, include_authorized_operations, by_id=True
                )
            )
        results: dict[str | UUID, TopicDescription] = {}
        errors: dict[str | UUID, KafkaError] = {}
        for key in requested:
            description = descriptions.get(key)
            if description is None:
                errors[key] = broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key}")
            elif isinstance(description, KafkaError):
                errors[key] = description
            elif include_authorized_operations:
                results[key] = description
            else:
                results[key] = description._replace(authorized_operations=None)
        if errors:
            raise AdminError("describe_topics", errors, results)
        return results

    async def _describe_pages(
        self, names: Sequence[str], deadline_ms: int
    ) -> dict[str, TopicDescription | KafkaError]:
        """Uses DescribeTopicPartitions, whose pages may end within a topic."""
        results: dict[str, TopicDescription | KafkaError] = {}
        request = DescribeTopicPartitionsRequest(
            [DescribeTopicPartitionsTopicRequest(name) for name in sorted(names)]
        )
        while True:
            response = await self._request_until_done(
                "describe_topics",
                NodeProvider.ANY,
                request,
                DescribeTopicPartitionsResponse,
                deadline_ms,
            )
            for topic in response.topics:
                name = topic.name or ""
                described = _from_page(topic)
                previous = results.get(name)
                if isinstance(previous, TopicDescription) and not isinstance(described, KafkaError):
                    described = previous._replace(
                        partitions=previous.partitions + described.partitions
                    )
                results[name] = described
            cursor = response.next_cursor
            if cursor is None:
                return results
            request = DescribeTopicPartitionsRequest(
                [
                    topic_data
                    for topic_data in request.topics
                    if topic_data.name >= cursor.topic_name
                ],
                cursor=DescribeTopicPartitionsRequestCursor(
                    cursor.topic_name, cursor.partition_index
                ),
            )

    async def _describe_with_metadata(
        self,
        topics: Sequence[MetadataRequestTopic],
        deadline_ms: int,
        authorized_operations: bool,
        *,
        by_id: bool = False,
    ) -> dict[str | UUID, TopicDescription | KafkaError]:
        """Uses Metadata, which takes ids of topics from version 12 on."""
        response = await self._metadata(
            "describe_topics",
            topics,
            deadline_ms,
            authorized_operations=authorized_operations,
            required=(12, "3.0") if by_id else METADATA_WITHOUT_CREATION,
        )
        return {
            (topic.topic_id if by_id else topic.name or ""): _from_metadata(topic)
            for topic in response.topics
        }


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Returns the operations of a bit field; None if they were not requested."""
    if bits == NOT_REQUESTED:
        return None
    return frozenset(
        operation for operation in AclOperation if operation and bits & (1 << operation)
    )


def _from_page(topic: DescribeTopicPartitionsResponseTopic) -> TopicDescription | KafkaError:
    if topic.error_code != ErrorCode.NONE:
        return broker_error(topic.error_code, f"topic {topic.name}")
    return TopicDescription(
        topic.name or "",
        None if topic.topic_id == ZERO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(_partition_from_page(partition) for partition in topic.partitions),
        operations_of(topic.topic_authorized_operations),
    )


def _partition_from_page(
    partition: DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    eligible, last = partition.eligible_leader_replicas, partition.last_known_elr
    return PartitionDescription(
        partition.partition_index,
        None if partition.leader_id < 0 else partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        None if eligible is None else tuple(eligible),
        None if last is None else tuple(last),
    )


def _from_metadata(topic: MetadataResponseTopic) -> TopicDescription | KafkaError:
    if topic.error_code != ErrorCode.NONE:
        return broker_error(topic.error_code, f"topic {topic.name or topic.topic_id}")
    partitions = sorted(topic.partitions, key=lambda item: item.partition_index)
    return TopicDescription(
        topic.name or "",
        None if topic.topic_id == ZERO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                partition.partition_index,
                None if partition.leader_id < 0 else partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
            )
            for partition in partitions
        ),
        operations_of(topic.topic_authorized_operations),
    )
