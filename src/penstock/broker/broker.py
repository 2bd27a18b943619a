"""The parts of a running broker under one name.

`penstock.broker.app` creates them. A handler does not receive the `Broker`: its module declares a
`Context` with the parts that it needs (see `penstock.broker.handlers.table`).
"""

from dataclasses import dataclass, field

from penstock.broker.api_versions import ApiVersionManager
from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.expiry_timer import ExpiryTimer
from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_requests import ControllerRequests
from penstock.broker.metadata.eligible_leader_replicas import EligibleLeaderReplicas
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.metadata.stored_leaderships import StoredLeaderships
from penstock.broker.metadata.topic_creator import TopicCreator
from penstock.broker.pacer import Pacer
from penstock.broker.replica.fetch_sessions import FetchSessionCache
from penstock.broker.replica.isr_manager import IsrManager
from penstock.broker.replica.leader_throttle import LeaderThrottle
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.delegation_tokens import DelegationTokens
from penstock.broker.security.listener_certificates import ListenerCertificates
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.core.clock import Clock
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.manager.log_manager import LogManager


@dataclass(slots=True)
class Broker:
    """The parts of a broker. All of them belong to the event loop's thread."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    workers: Workers
    pacer: Pacer
    image: ClusterImage
    controller: ControllerHost
    controller_api: ControllerApi
    controller_requests: ControllerRequests
    eligible_leader_replicas: EligibleLeaderReplicas
    stored_leaderships: StoredLeaderships
    topic_creator: TopicCreator
    logs: LogManager
    replicas: ReplicaManager
    isr_manager: IsrManager
    leader_throttle: LeaderThrottle
    log_flusher: LogFlusher
    authorizer: RequestAuthorizer
    certificates: ListenerCertificates
    tokens: DelegationTokens
    quotas: ClientQuotaManager
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIdManager
    log_mover: LogMover
    cleaner: LogCleaner
    telemetry: ClientTelemetry
    api_versions: ApiVersionManager
    groups: GroupCoordinator = field(init=False)
    """Set by `app` after the others, as are those below: the coordinators use them."""
    transactions: TransactionCoordinator = field(init=False)
    txn_markers: TransactionMarkers = field(init=False)
    txn_verification: TransactionVerifier = field(init=False)
    produce_expiry: ExpiryTimer = field(default_factory=ExpiryTimer, init=False)
    """The timeouts of Produce requests with acks=all."""
