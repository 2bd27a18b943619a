"""What every handler works with: the parts of a running broker, under one name.

`penstock.broker.app` makes the parts and puts them together. Handlers get the `Broker`, use its
parts, and know nothing of each other.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.topic_config import TopicConfig, topic_config, validate_topic_configs
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.handlers.table import SERVED
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.features import SUPPORTED_FEATURES
from penstock.broker.metadata.producer_id_manager import ProducerIds
from penstock.broker.replica.fetch_sessions import FetchSessionCache
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Endpoint
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.placement import PlacementStart
from penstock.controller.topics import NewTopicRules, create_topics
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.manager.log_manager import LogManager

_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Advertised only while somebody has subscribed to clients' metrics: clients then push them."""


@dataclass(slots=True)
class Broker:
    """The parts. Everything here belongs to the event loop's thread."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    workers: Workers
    image: ClusterImage
    controller: ControllerHost
    logs: LogManager
    replicas: ReplicaManager
    log_flusher: LogFlusher
    authorizer: RequestAuthorizer
    quotas: ClientQuotaManager
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    log_mover: LogMover
    cleaner: LogCleaner
    telemetry: ClientTelemetry
    groups: GroupCoordinator = field(init=False)
    """Set by `app`, as those below: coordinators need the broker to make their topics."""
    transactions: TransactionCoordinator = field(init=False)
    txn_markers: TransactionMarkers = field(init=False)
    txn_verification: TransactionVerifier = field(init=False)

    def nodes(self, listener: str) -> Iterator[tuple[BrokerRecord, Endpoint]]:
        """The brokers that are up, as clients of this listener reach them."""
        for record in self.image.brokers.values():
            for endpoint in record.endpoints:
                if endpoint.listener == listener:
                    yield record, endpoint

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """Leader and leader epoch of a partition; -1 for what is not known."""
        record = self.image.partitions.get(TopicPartition(topic, index))
        return (-1, -1) if record is None else (record.leader, record.leader_epoch)

    def topic_config(self, topic: str) -> TopicConfig:
        """The settings in force for a topic."""
        return topic_config(self.config, self.image.config("topics", topic))

    def feature_level(self, name: str) -> int:
        """The level that the cluster keeps to; 0 where the feature is off."""
        features = self.image.features
        return 0 if features is None else features.levels.get(name, 0)

    def new_topic_rules(self) -> NewTopicRules:
        """What the controller must know to make topics."""
        return NewTopicRules(
            num_partitions=self.config.int("num.partitions"),
            replication_factor=self.config.int("default.replication.factor"),
            validate_configs=lambda configs: validate_topic_configs(configs, self.config),
            new_topic_id=uuid4,
            start=PlacementStart(random.randrange(1 << 16), random.randrange(1 << 16)),
        )

    def election_rules(self) -> ElectionRules:
        """What the controller must know to elect leaders."""
        return ElectionRules(lambda topic: self.topic_config(topic).unclean_leader_election_enable)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: dict[str, str] | None = None,
    ) -> None:
        """Makes a topic; KafkaError where that is not possible."""
        wanted = CreatableTopic(
            name,
            partitions,
            replication_factor,
            configs=[CreatableTopicConfig(*item) for item in (configs or {}).items()],
        )
        request = CreateTopicsRequest([wanted])
        rules = self.new_topic_rules()
        reply = await self.controller.run(lambda image: create_topics(image, request, rules))
        result = reply.topics[0]
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message or "")

    async def create_internal_topic(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Makes a topic of the broker's own, with as many replicas as there are brokers for."""
        replicas = min(replication_factor, len(self.image.brokers))
        try:
            await self.create_topic(
                name, partitions=partitions, replication_factor=replicas, configs=configs
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def api_versions(self, error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
        """What is served, and the feature levels of the cluster."""
        features = self.image.features
        return ApiVersionsResponse(
            error,
            [
                ApiVersion(key, each.min_version, each.max_version)
                for key, each in SERVED.items()
                if key not in _TELEMETRY or self.telemetry.is_wanted
            ],
            supported_features=[
                SupportedFeatureKey(name, low, high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            finalized_features_epoch=-1 if features is None else features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name, level, level)
                for name, level in ({} if features is None else features.levels).items()
            ],
        )
