"""The parts of a broker that its controller uses."""

from typing import NamedTuple

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.active_controller import ControllerChannels
from penstock.broker.metadata.controller_channel import ControllerChannelManager, ResultListener
from penstock.broker.metadata.controller_requests import ControllerRequests, UpdateResult
from penstock.broker.metadata.topic_rules import election_rules
from penstock.broker.workers import Workers
from penstock.controller.broker_updates import BrokerUpdate, OfflineReplicas
from penstock.controller.image import ClusterImage
from penstock.controller.partition_state_machine import ElectionRules
from penstock.core.clock import Clock


class BrokerControllerContext(NamedTuple):
    """The context of an `ActiveController`: the settings of its broker, and the way to brokers."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    requests: ControllerRequests
    workers: Workers
    is_starting: bool

    @property
    def is_deletion_enabled(self) -> bool:
        return self.config.bool("delete.topic.enable")

    def rules(self, image: ClusterImage) -> ElectionRules:
        return election_rules(self.config, image)

    def open_channels(
        self,
        image: ClusterImage,
        on_result: ResultListener,
        offline_replicas: OfflineReplicas,
    ) -> ControllerChannels:
        return ControllerChannelManager(
            self.config, image, self.clock, on_result, self.workers, offline_replicas
        )

    async def apply_update(self, update: BrokerUpdate) -> UpdateResult:
        return await self.requests.apply(update)
