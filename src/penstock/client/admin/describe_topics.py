"""Topics described: page by page from new brokers, at once from older ones."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from penstock.client.admin.advice import explain
from penstock.client.admin.errors import AdminError
from penstock.client.admin.locating import METADATA_WITHOUT_CREATION, Locator
from penstock.client.admin.model_topics import PartitionDescription, TopicDescription
from penstock.client.admin.routing import Where, several
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

NOT_TOLD = -(2**31)
"""In place of a set of operations: it was not asked for."""


class TopicDescriptions(Locator):
    """`describe_topics`."""

    async def describe_topics(
        self,
        topics: Iterable[str | UUID],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str | UUID, TopicDescription]:
        """Topics with their partitions, by name or by id (Kafka 2.8 and newer), keyed as asked.

        A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION; asking does not create it.
        """
        deadline_ms = self._deadline(timeout_ms)
        wanted = several("describe_topics", topics)
        names = [key for key in wanted if isinstance(key, str)]
        ids = [key for key in wanted if isinstance(key, UUID)]
        found: dict[str | UUID, TopicDescription | KafkaError] = {}
        if names:
            try:
                found.update(await self._by_pages(names, deadline_ms))
            except UnsupportedVersionError:
                asked = [MetadataRequestTopic(name=name) for name in names]
                found.update(await self._at_once(asked, deadline_ms, include_authorized_operations))
        if ids:
            by_id = [MetadataRequestTopic(topic_id=each, name=None) for each in ids]
            found.update(
                await self._at_once(by_id, deadline_ms, include_authorized_operations, by_id=True)
            )
        results: dict[str | UUID, TopicDescription] = {}
        errors: dict[str | UUID, KafkaError] = {}
        for key in wanted:
            description = found.get(key)
            if description is None:
                errors[key] = explain(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {key}")
            elif isinstance(description, KafkaError):
                errors[key] = description
            elif include_authorized_operations:
                results[key] = description
            else:
                results[key] = description._replace(authorized_operations=None)
        if errors:
            raise AdminError("describe_topics", errors, results)
        return results

    async def _by_pages(
        self, names: Sequence[str], deadline_ms: int
    ) -> dict[str, TopicDescription | KafkaError]:
        """With DescribeTopicPartitions: a topic may go on on the next page."""
        found: dict[str, TopicDescription | KafkaError] = {}
        request = DescribeTopicPartitionsRequest(
            [DescribeTopicPartitionsTopicRequest(name) for name in sorted(names)]
        )
        while True:
            response = await self._ask(
                "describe_topics",
                Where.ANY,
                request,
                DescribeTopicPartitionsResponse,
                deadline_ms,
            )
            for topic in response.topics:
                name = topic.name or ""
                described = _from_page(topic)
                before = found.get(name)
                if isinstance(before, TopicDescription) and not isinstance(described, KafkaError):
                    described = before._replace(partitions=before.partitions + described.partitions)
                found[name] = described
            cursor = response.next_cursor
            if cursor is None:
                return found
            request = DescribeTopicPartitionsRequest(
                [each for each in request.topics if each.name >= cursor.topic_name],
                cursor=DescribeTopicPartitionsRequestCursor(
                    cursor.topic_name, cursor.partition_index
                ),
            )

    async def _at_once(
        self,
        topics: Sequence[MetadataRequestTopic],
        deadline_ms: int,
        authorized_operations: bool,
        *,
        by_id: bool = False,
    ) -> dict[str | UUID, TopicDescription | KafkaError]:
        """With Metadata, which also finds topics by their ids from version 12 on."""
        response = await self._metadata(
            "describe_topics",
            topics,
            deadline_ms,
            authorized_operations=authorized_operations,
            needs=(12, "3.0") if by_id else METADATA_WITHOUT_CREATION,
        )
        return {
            (topic.topic_id if by_id else topic.name or ""): _from_metadata(topic)
            for topic in response.topics
        }


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """A set of operations as responses tell it; None where it was not asked for."""
    if bits == NOT_TOLD:
        return None
    return frozenset(
        operation for operation in AclOperation if operation and bits & (1 << operation)
    )


def _from_page(topic: DescribeTopicPartitionsResponseTopic) -> TopicDescription | KafkaError:
    if topic.error_code != ErrorCode.NONE:
        return explain(topic.error_code, f"topic {topic.name}")
    return TopicDescription(
        topic.name or "",
        None if topic.topic_id == ZERO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(_partition_from_page(each) for each in topic.partitions),
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
        return explain(topic.error_code, f"topic {topic.name or topic.topic_id}")
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicDescription(
        topic.name or "",
        None if topic.topic_id == ZERO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                each.partition_index,
                None if each.leader_id < 0 else each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in partitions
        ),
        operations_of(topic.topic_authorized_operations),
    )
