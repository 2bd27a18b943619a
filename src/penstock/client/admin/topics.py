"""Admin calls for topics: create, list, delete, add partitions."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from penstock.client.admin.advice import BrokerTooOldError, response_error
from penstock.client.admin.api_driver import (
    AdminApiDriver,
    AdminCall,
    NodeProvider,
    Results,
    check_collection,
)
from penstock.client.admin.api_lookup import fetch_metadata, single_node
from penstock.client.admin.model_configs import ConfigEntry
from penstock.client.admin.model_topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicListing,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import ConfigSource
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_VERSION_WITH_DEFAULTS = 4
"""The first CreateTopics whose partitions and replication factor have defaults."""


async def create_topics(
    admin: AdminApiDriver,
    topics: Iterable[NewTopic],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, CreatedTopic]:
    """Creates topics. They exist when the call returns; their leaders may follow shortly.

    With `validate_only` the broker only validates the request. A replication factor larger
    than the number of brokers is INVALID_REPLICATION_FACTOR (E1), an existing name
    TOPIC_ALREADY_EXISTS.
    """
    check_collection("create_topics", topics)
    requested = {topic.name: topic for topic in topics}
    call = AdminCall(admin, "create_topics", timeout_ms)

    async def send(node_id: int, names: Sequence[str]) -> Results[str, CreatedTopic]:
        def build(version: int) -> CreateTopicsRequest:
            if version < _VERSION_WITH_DEFAULTS:
                _check_numbers([requested[name] for name in names])
            creatable = [_creatable(requested[name]) for name in names]
            return CreateTopicsRequest(creatable, call.remaining_ms(), validate_only)

        response = await call.request(node_id, build, CreateTopicsResponse, required=(1, "0.10.2"))
        return {
            topic.name: response_error(topic, f"topic {topic.name}") or _created(topic)
            for topic in response.topics
        }

    return await call.request_each(requested, single_node(call, NodeProvider.CONTROLLER), send)


async def delete_topics(
    admin: AdminApiDriver, topics: Iterable[str | UUID], *, timeout_ms: int | None = None
) -> None:
    """Deletes topics, by name or by id (Kafka 2.8 and newer), with all their records."""
    call = AdminCall(admin, "delete_topics", timeout_ms)

    async def send(node_id: int, keys: Sequence[str | UUID]) -> Results[str | UUID, None]:
        def build(version: int) -> DeleteTopicsRequest:
            request = DeleteTopicsRequest(timeout_ms=call.remaining_ms())
            if version >= 6:
                request.topics = [
                    DeleteTopicState(None, key) if isinstance(key, UUID) else DeleteTopicState(key)
                    for key in keys
                ]
            else:
                request.topic_names = [key for key in keys if isinstance(key, str)]
            return request

        response = await call.request(
            node_id,
            build,
            DeleteTopicsResponse,
            required=(6, "2.8") if any(isinstance(key, UUID) for key in keys) else None,
        )
        results: dict[str | UUID, KafkaError | None] = {}
        for result in response.responses:
            is_by_id = result.topic_id in keys
            key: str | UUID = result.topic_id if is_by_id else result.name or ""
            results[key] = response_error(result, f"topic {key}")
        return results

    await call.request_each(topics, single_node(call, NodeProvider.CONTROLLER), send)


async def list_topics(
    admin: AdminApiDriver, *, include_internal: bool = False, timeout_ms: int | None = None
) -> dict[str, TopicListing]:
    """Returns the topics that this user may describe, sorted by name."""
    response = await fetch_metadata(AdminCall(admin, "list_topics", timeout_ms), None)
    results = {
        topic.name: TopicListing(
            topic.name,
            None if topic.topic_id == ZERO_UUID else topic.topic_id,
            topic.is_internal,
        )
        for topic in response.topics
        if topic.name is not None and (include_internal or not topic.is_internal)
    }
    return dict(sorted(results.items()))


async def create_partitions(
    admin: AdminApiDriver,
    counts: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Increases the number of partitions of topics to the given total.

    Afterwards keys map to other partitions than before; existing records are not moved.
    """
    call = AdminCall(admin, "create_partitions", timeout_ms)

    async def send(node_id: int, names: Sequence[str]) -> Results[str, None]:
        topics = [_partition_count(name, counts[name]) for name in names]
        request = CreatePartitionsRequest(topics, call.remaining_ms(), validate_only)
        response = await call.request(node_id, request, CreatePartitionsResponse)
        return {
            result.name: response_error(result, f"topic {result.name}")
            for result in response.results
        }

    await call.request_each(counts, single_node(call, NodeProvider.CONTROLLER), send)


def _creatable(topic: NewTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(*entry) for entry in (topic.configs or {}).items()]
    if topic.assignments is None:
        return CreatableTopic(
            topic.name, topic.num_partitions, topic.replication_factor, configs=configs
        )
    assignments = [
        CreatableReplicaAssignment(partition, list(brokers))
        for partition, brokers in topic.assignments.items()
    ]
    return CreatableTopic(topic.name, -1, -1, assignments, configs)


def _check_numbers(topics: Iterable[NewTopic]) -> None:
    for topic in topics:
        if topic.assignments is None and -1 in (topic.num_partitions, topic.replication_factor):
            raise BrokerTooOldError(
                f"topic {topic.name}: this broker is older than Kafka 2.4 and has no defaults for "
                "the number of partitions and the replication factor",
                remedy="give both",
            )


def _created(result: CreatableTopicResult) -> CreatedTopic:
    has_details = result.topic_config_error_code == ErrorCode.NONE and result.num_partitions >= 0
    configs = {
        config.name: ConfigEntry(
            config.name,
            config.value,
            ConfigSource.from_code(config.config_source),
            config.is_sensitive,
            config.read_only,
        )
        for config in result.configs or ()
    }
    return CreatedTopic(
        result.name,
        None if result.topic_id == ZERO_UUID else result.topic_id,
        result.num_partitions,
        result.replication_factor,
        configs if has_details else None,
    )


def _partition_count(name: str, requested: int | NewPartitions) -> CreatePartitionsTopic:
    if isinstance(requested, int):
        requested = NewPartitions(requested)
    if requested.new_assignments is None:
        return CreatePartitionsTopic(name, requested.total_count, None)
    assignments = [
        CreatePartitionsAssignment(list(assignment)) for assignment in requested.new_assignments
    ]
    return CreatePartitionsTopic(name, requested.total_count, assignments)
