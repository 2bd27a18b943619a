"""The supervisor of several broker processes on one machine, which owns their metadata store.

    penstock serve --brokers 4
        supervisor                      the embedded store, served at a Unix socket
        ├── broker 0, 127.0.0.1:9092    the data directory
        ├── broker 1, 127.0.0.1:9093    the data directory/broker.1
        └── …

A broker that ends is started again, after a delay that grows while it keeps ending. The first start
is different: if one broker cannot start, the supervisor stops all of them and reports why, because
the settings are wrong. All processes share one fate otherwise: the brokers stop when the supervisor
stops, and when it is killed.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import has_own_store, store_config
from penstock.broker.config.memory_config import request_memory
from penstock.broker.config.properties import load_broker_config
from penstock.broker.supervisor.broker_process import BrokerProcess, start_broker_process
from penstock.broker.supervisor.launch import (
    BrokerLaunch,
    plan_launches,
    replication_settings,
    with_ports,
)
from penstock.broker.supervisor.lost_store import recover_lost_store
from penstock.broker.supervisor.missing_brokers import warn_of_missing_brokers
from penstock.cluster.factory import SOCKET_FILE, open_store
from penstock.cluster.supervised.server import StoreServer
from penstock.controller.metadata import ClusterIdRecord
from penstock.core.errors import KafkaError, KafkaStorageError

logger = logging.getLogger(__name__)

RESTART_DELAYS_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""The delay before each restart in a row; the last one repeats."""
STABLE_S: Final = 30.0
"""After a run of at least this long, the delays begin with the first one again."""
STOP_TIMEOUT_S: Final = 60.0
_SECOND_SIGNAL_S: Final = 1.0


def run(
    properties: Path | None,
    overrides: list[str],
    count: int,
    command: Sequence[str],
    ready: Callable[[Sequence[str]], None],
) -> None:
    """Runs `count` brokers until SIGTERM or SIGINT; KafkaError if one of them cannot start.

    `command` starts one broker process (see `parent_pipe`). `ready` is called once, with the
    addresses of all brokers, when all of them serve requests.
    """
    hostname = socket.gethostname()
    config = load_broker_config(properties, overrides, hostname=hostname)
    with ExitStack() as closing:
        socket_path = None
        is_new_cluster = True
        if has_own_store(config):
            store = _ServedStore(config, count)
            closing.callback(store.server.close)
            socket_path, is_new_cluster = store.socket_path, store.is_new
        launches = plan_launches(
            config,
            count,
            rack=hostname,
            socket=socket_path,
            request_memory=request_memory(config, count),
        )
        asyncio.run(Supervisor(launches, command, is_new_cluster=is_new_cluster).run(ready))


class _ServedStore:
    """The embedded store, served at a socket beside it."""

    def __init__(self, config: BrokerConfig, count: int) -> None:
        """Raises KafkaStorageError if another process has the store open."""
        settings = store_config(config)
        store = open_store(settings)
        try:
            recover_lost_store(_first_broker_config(config, count), store)
            records = store.load().records
            first_id = config.int("node.id")
            warn_of_missing_brokers(records, range(first_id, first_id + count))
            self.is_new = not any(isinstance(record, ClusterIdRecord) for record in records)
            self.socket_path = (settings.directory / SOCKET_FILE).absolute()
            self.server = StoreServer(store, self.socket_path)
        except BaseException:
            store.close()
            raise


def _first_broker_config(config: BrokerConfig, count: int) -> BrokerConfig:
    """Returns the settings with those of internal topics that so many brokers allow."""
    texts = replication_settings(count) | dict(config.texts())
    return BrokerConfig.from_properties(texts, hostname=socket.gethostname())


class Supervisor:
    """Broker processes that are started, started again when they end, and stopped."""

    def __init__(
        self, launches: Sequence[BrokerLaunch], command: Sequence[str], *, is_new_cluster: bool
    ) -> None:
        """The first broker of a new cluster starts alone.

        It creates the cluster's id, or takes over the metadata of a Kafka node in KRaft mode.
        """
        self._launches = {launch.broker_id: launch for launch in launches}
        self._is_new_cluster = is_new_cluster
        self._command = command
        self._processes: dict[int, BrokerProcess] = {}
        self._stop_requested = asyncio.Event()
        self._stop_requested_at = 0.0

    async def run(self, ready: Callable[[Sequence[str]], None]) -> None:
        """Runs until a signal requests the stop; KafkaStorageError if a first start fails."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop)
        runs: list[asyncio.Task[Any]] = []
        try:
            starting = loop.create_task(self._first_starts())
            stopping = loop.create_task(self._stop_requested.wait())
            waiting: list[asyncio.Task[Any]] = [starting, stopping]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                ready(starting.result())
                runs = [loop.create_task(self._keep_running(broker)) for broker in self._launches]
                await stopping
            else:
                runs = [starting]
        finally:
            await self._stop(runs)

    def _request_stop(self) -> None:
        """Starts the stop. A later signal kills the brokers, unless it belongs to the first one:

        some programs signal both the process and its group.
        """
        now = asyncio.get_running_loop().time()
        if not self._stop_requested.is_set():
            self._stop_requested_at = now
            self._stop_requested.set()
        elif now - self._stop_requested_at >= _SECOND_SIGNAL_S:
            logger.warning("a second signal: the brokers that still run are killed")
            for process in self._processes.values():
                process.kill()

    # --- start

    async def _first_starts(self) -> list[str]:
        """Starts all brokers; returns their addresses. If one fails, the others are not awaited."""
        brokers = list(self._launches)
        addresses: list[str] = []
        if self._is_new_cluster:
            addresses += await self._start(brokers.pop(0))
        try:
            async with asyncio.TaskGroup() as group:
                starts = [group.create_task(self._start(broker_id)) for broker_id in brokers]
        except* KafkaError as errors:
            failures = errors
        else:
            return [*addresses, *chain.from_iterable(start.result() for start in starts)]
        raise _first_error(failures)

    async def _start(self, broker_id: int) -> list[str]:
        """Starts one broker; returns its addresses. Raises KafkaStorageError if it fails."""
        launch = self._launches[broker_id]
        try:
            process = await start_broker_process(self._command, launch)
        except OSError as error:
            raise KafkaStorageError(f"broker {broker_id} cannot be started: {error}") from error
        self._processes[broker_id] = process
        result = await process.start_result()
        if result.error:
            raise KafkaStorageError(result.error, subject=f"broker {broker_id}")
        self._launches[broker_id] = with_ports(launch, result.ports)
        logger.info(
            "broker %d (pid %d) is ready on %s",
            broker_id,
            process.pid,
            ", ".join(result.addresses),
        )
        return result.addresses

    async def _keep_running(self, broker_id: int) -> None:
        """Starts a broker again whenever it ends."""
        loop = asyncio.get_running_loop()
        delays = _restart_delays()
        while True:
            process = self._processes[broker_id]
            started_at = loop.time()
            exit_status = await process.wait()
            if loop.time() - started_at >= STABLE_S:
                delays = _restart_delays()
            delay_s = next(delays)
            logger.error(
                "broker %d (pid %d) %s; it is started again in %g s",
                broker_id,
                process.pid,
                exit_status,
                delay_s,
            )
            await asyncio.sleep(delay_s)
            try:
                await self._start(broker_id)
            except KafkaError as error:
                logger.error("%s", error.message)

    # --- stop

    async def _stop(self, runs: Sequence[asyncio.Task[Any]]) -> None:
        """Stops all brokers at the same time, and waits for them."""
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        processes = list(self._processes.values())
        await asyncio.gather(*(process.stop(STOP_TIMEOUT_S) for process in processes))


def _restart_delays() -> "chain[float]":
    return chain(RESTART_DELAYS_S, repeat(RESTART_DELAYS_S[-1]))


def _first_error(group: BaseExceptionGroup[KafkaError]) -> KafkaError:
    error = group.exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error
