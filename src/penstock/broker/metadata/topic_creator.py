"""Topics that the broker creates by itself: on a Metadata request, and its internal topics."""

from collections.abc import Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.topic_rules import new_topic_rules
from penstock.controller.image import ClusterImage
from penstock.controller.topics import create_topics
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)


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
