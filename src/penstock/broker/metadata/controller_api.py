"""The requests of brokers to the controller, on the broker that is the controller.

Handlers pass on what arrives from other brokers; `ControllerClient` calls it directly for the
controller's own broker.
"""

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.topic_rules import new_topic_rules
from penstock.controller.isr import alter_partition
from penstock.controller.producer_ids import allocate_producer_ids
from penstock.controller.topics import create_topics
from penstock.core.errors import KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class ControllerApi:
    """AlterPartition, ControlledShutdown, AllocateProducerIds and CreateTopics of brokers."""

    def __init__(self, config: BrokerConfig, controller: ControllerHost) -> None:
        self._config = config
        self._controller = controller

    async def handle(self, message: Message) -> Message:
        """Returns the response to any of these requests. Raises what `ControllerHost.run` does."""
        match message:
            case AlterPartitionRequest():
                return await self.alter_partition(message)
            case AllocateProducerIdsRequest():
                return await self.allocate_producer_ids(message)
            case ControlledShutdownRequest():
                return await self.controlled_shutdown(message)
            case CreateTopicsRequest():
                return await self.create_topics(message)
        raise TypeError(f"{type(message).__name__} is not a request to the controller")

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self._controller.run_election(
            lambda image, rules: alter_partition(image, request, rules)
        )

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        return await self._controller.run(lambda image: allocate_producer_ids(image, request))

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        return await self._controller.shut_down_broker(request)

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Creates topics for a broker: internal ones, and those that a client's request names.

        An error of the whole request, such as logs that cannot be created, becomes that of each
        topic.
        """
        rules = new_topic_rules(self._config)
        try:
            return await self._controller.run(lambda image: create_topics(image, request, rules))
        except KafkaError as error:
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(
                        topic.name, error_code=error.code, error_message=error.message
                    )
                    for topic in request.topics
                ]
            )
