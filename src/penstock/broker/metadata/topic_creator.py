"""Creation of topics and partitions: for clients, on a Metadata request, and internal topics.

A topic is only registered if its logs could be created; otherwise the response has their error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.topic_rules import new_topic_rules
from penstock.controller.image import ClusterImage
from penstock.controller.result import ControllerResult
from penstock.controller.topics import create_topics
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.storage.manager.log_creation import LogCreationError


class NamedTopic(Protocol):
    """A topic, or new partitions of one, in a request."""

    @property
    def name(self) -> str: ...


_MAX_ATTEMPTS = 4
"""How often topics that there is no room for are left out; the last time, all of them are."""

R = TypeVar("R")
T = TypeVar("T", bound=NamedTopic)


async def create_if_room(
    controller: ControllerHost,
    topics: Sequence[T],
    decide: Callable[[ClusterImage, list[T]], ControllerResult[R]],
) -> tuple[R, dict[str, LogCreationError]]:
    """Runs a decision for those topics whose new logs can be created.

    Returns its response, and the errors of the other topics by name.
    """
    errors: dict[str, LogCreationError] = {}

    def decide_on_others(image: ClusterImage) -> ControllerResult[R]:
        return decide(image, [topic for topic in topics if topic.name not in errors])

    for attempt in range(_MAX_ATTEMPTS):
        try:
            return await controller.run(decide_on_others), errors
        except LogCreationError as error:
            is_last = attempt == _MAX_ATTEMPTS - 2
            names = {topic.name for topic in topics} if is_last else error.topics
            errors = {**dict.fromkeys(sorted(names), error), **errors}
    raise AssertionError("a decision about no topic creates no logs")


class TopicCreator:
    """Creates topics through the controller."""

    def __init__(
        self, config: BrokerConfig, image: ClusterImage, controller: ControllerHost
    ) -> None:
        self._config = config
        self._image = image
        self._controller = controller

    async def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic; -1 stands for the broker's default. Raises KafkaError if it cannot."""
        topic = CreatableTopic(
            name,
            partitions,
            replication_factor,
            configs=[CreatableTopicConfig(*config) for config in (configs or {}).items()],
        )
        request = CreateTopicsRequest([topic])
        rules = new_topic_rules(self._config)
        response = await self._controller.run(lambda image: create_topics(image, request, rules))
        topic_result = response.topics[0]
        if topic_result.error_code:
            raise KafkaError(ErrorCode(topic_result.error_code), topic_result.error_message or "")

    async def create_internal(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Creates an internal topic unless it exists, with at most one replica per broker."""
        replicas = min(replication_factor, len(self._image.brokers))
        try:
            await self.create(
                name, partitions=partitions, replication_factor=replicas, configs=configs
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
