"""Creates the replica fetchers of a broker from its settings."""

from collections.abc import Callable

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.client import BrokerDirectory, InterBrokerClient
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica_fetcher_manager import ReplicaFetcherManager
from penstock.broker.workers import Workers
from penstock.core.clock import Clock
from penstock.replication.follower_session import FetcherSettings
from penstock.replication.throttle import ReplicationQuota
from penstock.storage.manager.log_manager import LogManager

_RATE = "follower.replication.throttled.rate"
_NUM_FETCHERS = "num.replica.fetchers"


def new_replica_fetchers(
    config: BrokerConfig,
    brokers: BrokerDirectory,
    clock: Clock,
    logs: LogManager,
    workers: Workers,
    log_flusher: LogFlusher,
    broker_epoch: Callable[[], int],
) -> ReplicaFetcherManager:
    """Returns the fetchers, which follow changes of their dynamic settings."""
    timeout_ms = min(config.int("request.timeout.ms"), config.int("replica.socket.timeout.ms"))
    quota = ReplicationQuota(
        config.int("replication.quota.window.num"),
        config.int("replication.quota.window.size.seconds") * 1000,
        config.int(_RATE),
    )
    fetchers = ReplicaFetcherManager(
        _fetcher_settings(config),
        num_fetchers=config.int(_NUM_FETCHERS),
        new_client=lambda client_id: InterBrokerClient(
            config, brokers, clock, client_id=client_id, request_timeout_ms=timeout_ms
        ),
        logs=logs,
        workers=workers,
        log_flusher=log_flusher,
        clock=clock,
        broker_epoch=broker_epoch,
        quota=quota,
    )

    def update_rate(_: object) -> None:
        quota.rate = config.int(_RATE)

    config.subscribe(_RATE, update_rate)
    config.subscribe(_NUM_FETCHERS, lambda _: fetchers.resize(config.int(_NUM_FETCHERS)))
    return fetchers


def _fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        config.int("node.id"),
        replica_fetch_max_bytes=config.int("replica.fetch.max.bytes"),
        replica_fetch_response_max_bytes=config.int("replica.fetch.response.max.bytes"),
        replica_fetch_min_bytes=config.int("replica.fetch.min.bytes"),
        replica_fetch_wait_max_ms=config.int("replica.fetch.wait.max.ms"),
        replica_fetch_backoff_ms=config.int("replica.fetch.backoff.ms"),
    )
