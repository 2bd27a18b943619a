"""The wiring of a broker: creates its components and connects them.

`app` starts and stops what is created here. Components get their collaborators when they are
created; those that follow the metadata or the leaderships are subscribed at the end.
"""

import logging
import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.broker.api_versions import ApiVersionManager
from penstock.broker.broker import Broker
from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import (
    cleaner_settings,
    new_audit_log,
    new_authorizer,
    new_quotas,
    set_limits,
    store_config,
)
from penstock.broker.config.topic_config import topic_config
from penstock.broker.coordinator.add_partitions_manager import AddPartitionsManager
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.host import CoordinatorContext
from penstock.broker.coordinator.marker_channel import TransactionMarkerChannel
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.dispatcher import Dispatcher
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_requests import ControllerRequests
from penstock.broker.metadata.eligible_leader_replicas import EligibleLeaderReplicas
from penstock.broker.metadata.leader_rebalancer import LeaderRebalancer
from penstock.broker.metadata.metadata_publisher import MetadataPublisher
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.metadata.stored_leaderships import StoredLeaderships
from penstock.broker.metadata.token_expiry import TokenExpiry
from penstock.broker.metadata.topic_creator import TopicCreator
from penstock.broker.metrics.request_metrics import RequestMetrics
from penstock.broker.pacer import Pacer
from penstock.broker.replica.alter_partition_manager import AlterPartitionManager
from penstock.broker.replica.background_tasks import BackgroundTasks
from penstock.broker.replica.fetch_sessions import FetchSessionCache
from penstock.broker.replica.fetcher_factory import new_replica_fetchers
from penstock.broker.replica.isr_manager import IsrManager, isr_rules
from penstock.broker.replica.leader_throttle import LeaderThrottle
from penstock.broker.replica.log_dir_failures import LogDirFailures
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.connection_quotas import protected_listener
from penstock.broker.security.delegation_tokens import DelegationTokens
from penstock.broker.security.listener_certificates import ListenerCertificates
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.security.session_factory import SessionFactory
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.server.limits import Limits
from penstock.net.server.send_queue import SendableFile
from penstock.net.server.socket_server import SocketServer
from penstock.protocol.messages.alter_partition import AlterPartitionResponse
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.file_cache import CachedFile
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)


class BrokerAssembly:
    """The components of one broker. They are created with it, and started by `App`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        rng: random.Random,
        pacer: Pacer,
        workers: Workers,
        logs: LogManager,
        metadata: BrokerMetadata,
        store: MetadataStore,
        controller: ControllerHost,
        max_sockets: int,
    ) -> None:
        self._config = config
        self._broker_id = config.int("node.id")
        self._clock = clock
        self._rng = rng
        self._pacer = pacer
        self._workers = workers
        self._logs = logs
        self._metadata = metadata
        self._image = metadata.image
        self._store = store
        self._controller = controller
        self._max_sockets = max_sockets
        self._inter_broker_clients: list[InterBrokerClient] = []
        self.audit_log = new_audit_log(config, clock)
        self.broker = self._build_broker()
        self._build_coordinators(self.broker)
        self._build_server(self.broker)
        self.background_tasks = BackgroundTasks(
            logs,
            self.broker.cleaner,
            self.broker.log_flusher,
            workers,
            self._on_log_reloaded,
            self.controller_requests.create_missing_logs,
        )
        self.leader_rebalancer = LeaderRebalancer(config, controller, clock)
        self.token_expiry = TokenExpiry(config, controller, clock)
        self.log_dir_failures = LogDirFailures(
            self._broker_id,
            logs,
            self.broker.replicas,
            store if store_config(config).is_shared else None,
            workers,
        )
        self.publisher = MetadataPublisher(self.broker, self.server, self._reload_client_keys)
        self._subscribe()

    def _subscribe(self) -> None:
        self._config.subscribe("", lambda _: self.server.limits_changed())
        self._config.subscribe("", self._reload_keys)
        replicas = self.broker.replicas
        self._controller.requirements.append(replicas.require_logs)
        replicas.leadership_listeners.append(self.publisher.leaderships_changed)
        replicas.leadership_listeners.append(lambda *_: self.dispatcher.fast_produce.clear())
        self._metadata.listeners.append(self.publisher.apply)
        self._metadata.listeners.append(self.broker.isr_manager.apply)
        self._metadata.listeners.append(lambda _: self.dispatcher.fast_produce.clear())

    def _on_log_reloaded(self, key: TopicPartition) -> None:
        """Continues with a log that accepts records again, and loads its coordinator."""
        self.broker.replicas.on_log_replaced(key)
        self.log_dir_failures.on_log_reloaded()
        self.broker.groups.on_log_reloaded(key)
        self.broker.transactions.on_log_reloaded(key)

    def _build_broker(self) -> Broker:
        """Returns the components that handlers use, without the coordinators."""
        config, clock, image, workers = self._config, self._clock, self._image, self._workers
        controller = self._controller
        is_single_node = not store_config(config).is_shared
        rules = isr_rules(image, config.int("replica.lag.time.max.ms"))
        replicas = ReplicaManager(
            self._broker_id,
            self._logs,
            image,
            workers,
            self._pacer,
            lambda values: topic_config(config, values),
            rules,
        )
        controller_api = ControllerApi(config, controller)
        proposals = AlterPartitionManager(
            self._broker_id,
            self._broker_epoch,
            partial(
                self._new_controller_client(controller_api).send,
                response_type=AlterPartitionResponse,
            ),
        )
        self.controller_client = self._new_controller_client(controller_api)
        self.controller_requests = ControllerRequests(
            self._metadata, replicas, self._store, workers
        )
        log_flusher = LogFlusher(workers)
        replicas.fetchers = self.replica_fetchers = new_replica_fetchers(
            config,
            image,
            clock,
            self._logs,
            workers,
            log_flusher,
            self._broker_epoch,
        )
        telemetry = ClientTelemetry(image, config.int("telemetry.max.bytes"), uuid.uuid4)
        return Broker(
            broker_id=self._broker_id,
            config=config,
            clock=clock,
            workers=workers,
            pacer=self._pacer,
            image=image,
            controller=controller,
            controller_api=controller_api,
            controller_requests=self.controller_requests,
            eligible_leader_replicas=EligibleLeaderReplicas(config, image, self._store, workers),
            stored_leaderships=StoredLeaderships(self._broker_id, self._store, workers),
            topic_creator=TopicCreator(
                config,
                image,
                self._new_controller_client(controller_api),
                clock,
                is_single_node=is_single_node,
            ),
            logs=self._logs,
            replicas=replicas,
            isr_manager=IsrManager(
                replicas, proposals, rules, self._broker_epoch, self._pacer, clock
            ),
            leader_throttle=LeaderThrottle(self._broker_id, config, clock),
            log_flusher=log_flusher,
            authorizer=RequestAuthorizer(
                new_authorizer(config),
                None if self.audit_log is None else self.audit_log.denied,
            ),
            certificates=ListenerCertificates(config),
            tokens=DelegationTokens(config, image, clock, workers),
            quotas=ClientQuotaManager(new_quotas(config), clock),
            fetch_sessions=FetchSessionCache(
                config.int("max.incremental.fetch.session.cache.slots"),
                lambda: self._rng.randrange(1, 2**31),
            ),
            producer_ids=ProducerIdManager(
                self._broker_id,
                self._new_controller_client(controller_api),
                self._broker_epoch,
            ),
            log_mover=LogMover(self._logs, replicas, workers),
            cleaner=LogCleaner(self._logs, clock, cleaner_settings(config)),
            telemetry=telemetry,
            api_versions=ApiVersionManager(image, telemetry, is_single_node=is_single_node),
        )

    def _broker_epoch(self) -> int:
        return self.controller_requests.broker_epoch

    def _build_coordinators(self, broker: Broker) -> None:
        """Adds the group and transaction coordinators, which use the other components."""
        config, clock, replicas = self._config, self._clock, broker.replicas
        context = CoordinatorContext(
            self._broker_id,
            config,
            self._image,
            replicas,
            broker.log_flusher,
            self._workers,
            self._pacer,
            clock,
            broker.topic_creator.create_internal,
        )
        broker.groups = GroupCoordinator(context, broker.authorizer)
        broker.txn_markers = TransactionMarkers(
            replicas, broker.groups, broker.log_flusher, self._pacer, clock
        )
        client = self._new_inter_broker_client()
        marker_channel = TransactionMarkerChannel(
            self._broker_id, self._image, broker.txn_markers, client, clock
        )
        broker.transactions = TransactionCoordinator(context, broker.producer_ids, marker_channel)
        broker.txn_verification = TransactionVerifier(
            replicas,
            AddPartitionsManager(
                self._broker_id, broker.transactions, self._new_inter_broker_client()
            ),
            config,
            clock,
        )

    def _new_inter_broker_client(self) -> InterBrokerClient:
        """Returns a client with connections of its own, which is closed with the broker.

        Requests that may take long must not delay others: those of one connection are handled in
        order.
        """
        client = InterBrokerClient(self._config, self._image, self._clock)
        self._metadata.listeners.append(client.apply)
        self._inter_broker_clients.append(client)
        return client

    def _new_controller_client(self, controller_api: ControllerApi) -> ControllerClient:
        return ControllerClient(
            self._broker_id,
            self._image,
            self._new_inter_broker_client(),
            controller_api.handle,
            self._clock,
        )

    async def close_clients(self) -> None:
        """Closes the connections to other brokers."""
        self.broker.producer_ids.close()
        self.sessions.jwks.close()
        for client in self._inter_broker_clients:
            await client.close()

    def _reload_keys(self, names: frozenset[str]) -> None:
        """Uses changed keys and certificates for new connections to other brokers."""
        if any("ssl." in name for name in names):
            self._reload_client_keys()

    def _reload_client_keys(self) -> None:
        for client in self._inter_broker_clients:
            try:
                client.reconfigure()
            except KafkaError as error:
                logger.error(
                    "connections to other brokers keep their old certificates: %s", error.message
                )

    def _build_server(self, broker: Broker) -> None:
        limits = Limits()
        set_limits(limits, self._config)
        limits.protected_listener = protected_listener(self._config)
        limits.max_sockets = self._max_sockets
        sessions = SessionFactory(
            self._config, self._image, self._clock, self.audit_log, broker.tokens
        )
        self._metadata.listeners.append(sessions.apply)
        self._metadata.listeners.append(broker.tokens.apply)
        self.sessions = sessions
        self.request_metrics = RequestMetrics(enabled=self._config.int("metrics.port") >= 0)
        self.dispatcher = Dispatcher(broker, sessions, self.request_metrics, self.audit_log)
        self.server = SocketServer(
            self.dispatcher,
            limits,
            clock=self._clock,
            executor_of=self._read_pool,
            throttle=sessions.connection_quotas,
            budget=self._workers.memory,
        )

    def _read_pool(self, file: SendableFile) -> ThreadPoolExecutor:
        """Returns the threads that read a file of a log."""
        assert isinstance(file, CachedFile)
        return self._workers.read_pool(file.path)
