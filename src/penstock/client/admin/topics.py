"""Topics: created, listed, described, enlarged and deleted."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from penstock.client.admin.advice import BrokerTooOldError, explain
from penstock.client.admin.describe_topics import TopicDescriptions
from penstock.client.admin.model_configs import ConfigEntry
from penstock.client.admin.model_topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicListing,
)
from penstock.client.admin.routing import CONTROLLER_CODES, Where, check_several
from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.client.network_client import RequestBuilder
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
"""The first CreateTopics in which the broker fills in partitions and replication factor."""


class TopicCalls(TopicDescriptions):
    """Calls about whole topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create topics; each is there, with leaders on their way, when its name is returned.

        With `validate_only` the broker only says what it would do. Too many replicas for the
        brokers that are up is INVALID_REPLICATION_FACTOR (E1), a name that is taken
        TOPIC_ALREADY_EXISTS.
        """
        check_several("create_topics", topics)
        wanted = {topic.name: topic for topic in topics}
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, names: Sequence[str]
        ) -> Mapping[str, CreatedTopic | KafkaError]:
            creatable = [_creatable(wanted[name]) for name in names]

            def make(version: int) -> CreateTopicsRequest:
                if version < _VERSION_WITH_DEFAULTS:
                    _check_numbers([wanted[name] for name in names])
                return CreateTopicsRequest(creatable, self._left_ms(deadline_ms), validate_only)

            response = await self._request(
                "create_topics",
                node_id,
                RequestBuilder(CreateTopicsRequest, make),
                CreateTopicsResponse,
                deadline_ms,
                needs=(1, "0.10.2"),
            )
            return {each.name: _created(each) for each in response.topics}

        return await self._each(
            "create_topics",
            wanted,
            self._at(Where.CONTROLLER, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def delete_topics(
        self, topics: Iterable[str | UUID], *, timeout_ms: int | None = None
    ) -> None:
        """Delete topics by name or by id (Kafka 2.8 and newer), with all that is in them."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[str | UUID]
        ) -> Mapping[str | UUID, KafkaError | None]:
            def make(version: int) -> DeleteTopicsRequest:
                request = DeleteTopicsRequest(timeout_ms=self._left_ms(deadline_ms))
                if version >= 6:
                    request.topics = [
                        DeleteTopicState(None, key)
                        if isinstance(key, UUID)
                        else DeleteTopicState(key)
                        for key in keys
                    ]
                else:
                    request.topic_names = [key for key in keys if isinstance(key, str)]
                return request

            response = await self._request(
                "delete_topics",
                node_id,
                RequestBuilder(DeleteTopicsRequest, make),
                DeleteTopicsResponse,
                deadline_ms,
                needs=(6, "2.8") if any(isinstance(key, UUID) for key in keys) else None,
            )
            answers: dict[str | UUID, KafkaError | None] = {}
            for each in response.responses:
                is_by_id = each.topic_id in keys
                key: str | UUID = each.topic_id if is_by_id else each.name or ""
                answers[key] = _outcome(each.error_code, f"topic {key}", each.error_message)
            return answers

        await self._each(
            "delete_topics",
            topics,
            self._at(Where.CONTROLLER, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """The topics that this user may see, sorted by name."""
        deadline_ms = self._deadline(timeout_ms)
        response = await self._metadata("list_topics", None, deadline_ms)
        found = {
            topic.name: TopicListing(
                topic.name,
                None if topic.topic_id == ZERO_UUID else topic.topic_id,
                topic.is_internal,
            )
            for topic in response.topics
            if topic.name is not None and (include_internal or not topic.is_internal)
        }
        return dict(sorted(found.items()))

    async def create_partitions(
        self,
        counts: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Give topics more partitions: the number is how many there shall be in all.

        Keys then go to other partitions than before; records that are there stay where they are.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(node_id: int, names: Sequence[str]) -> Mapping[str, KafkaError | None]:
            request = CreatePartitionsRequest(
                [_enlarged(name, counts[name]) for name in names],
                self._left_ms(deadline_ms),
                validate_only,
            )
            response = await self._request(
                "create_partitions", node_id, request, CreatePartitionsResponse, deadline_ms
            )
            return {
                each.name: _outcome(each.error_code, f"topic {each.name}", each.error_message)
                for each in response.results
            }

        await self._each(
            "create_partitions",
            counts,
            self._at(Where.CONTROLLER, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )


def _outcome(code: int, about: str, words: str | None) -> KafkaError | None:
    return None if code == ErrorCode.NONE else explain(code, about, words)


def _creatable(topic: NewTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(*each) for each in (topic.configs or {}).items()]
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
                "the number of partitions and the replication factor: give both"
            )


def _created(result: CreatableTopicResult) -> CreatedTopic | KafkaError:
    if result.error_code != ErrorCode.NONE:
        return explain(result.error_code, f"topic {result.name}", result.error_message)
    told = result.topic_config_error_code == ErrorCode.NONE and result.num_partitions >= 0
    configs = {
        each.name: ConfigEntry(
            each.name,
            each.value,
            ConfigSource.from_code(each.config_source),
            each.is_sensitive,
            each.read_only,
        )
        for each in result.configs or ()
    }
    return CreatedTopic(
        result.name,
        None if result.topic_id == ZERO_UUID else result.topic_id,
        result.num_partitions,
        result.replication_factor,
        configs if told else None,
    )


def _enlarged(name: str, wanted: int | NewPartitions) -> CreatePartitionsTopic:
    if isinstance(wanted, int):
        wanted = NewPartitions(wanted)
    if wanted.new_assignments is None:
        return CreatePartitionsTopic(name, wanted.total_count, None)
    assignments = [CreatePartitionsAssignment(list(each)) for each in wanted.new_assignments]
    return CreatePartitionsTopic(name, wanted.total_count, assignments)
