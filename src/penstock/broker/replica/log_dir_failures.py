"""Failed log directories: their replicas stop, and the controller is notified.

A log directory that fails while the broker runs stops all its logs. Their replicas must not be
leaders or members of an ISR any longer, which only the controller can decide. As in Apache Kafka,
the broker writes a notification to the metadata store. The controller then sends LeaderAndIsr for
all replicas of this broker, and the errors in the response show which ones are offline. The same
notification follows the reload of a log that had stopped for lack of room: its replica may be in
sync again.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.metadata import UNASSIGNED_SEQUENCE, LogDirEventRecord, Put
from penstock.core.errors import KafkaError
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""The pause after which a notification that could not be written is written again."""


class LogDirFailures:
    """Reacts to failed directories and reloaded logs. It belongs to the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        replicas: ReplicaManager,
        store: MetadataStore | None,
        workers: Workers,
    ) -> None:
        """`store` is None on a single node, which has no other broker that could lead."""
        self._broker_id = broker_id
        self._logs = logs
        self._replicas = replicas
        self._store = store
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_notifying = False
        """Whether a notification waits to be written, which covers everything until then."""

    def start(self) -> None:
        """Handles failures from now on: those at the start show in the first LeaderAndIsr."""
        loop = asyncio.get_running_loop()
        for log_dir in self._logs.dirs:
            # Some operations of a directory fail on a worker thread.
            log_dir.on_failed = partial(self._deliver_failure, loop, log_dir)

    def on_log_reloaded(self) -> None:
        """Notifies the controller of a log that accepts records again."""
        self._notify_soon()

    def _deliver_failure(self, loop: asyncio.AbstractEventLoop, log_dir: LogDir) -> None:
        loop.call_soon_threadsafe(self._on_dir_failed, log_dir)

    def _on_dir_failed(self, log_dir: LogDir) -> None:
        self._notify_soon()
        self._spawn(self._stop_replicas(log_dir))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_replicas(self, log_dir: LogDir) -> None:
        keys = await self._replicas.on_dir_failed(log_dir)
        logger.warning(
            "%d replicas in %s are offline; other brokers lead the partitions that have other "
            "in-sync replicas",
            len(keys),
            log_dir.path,
        )

    # --- notifications

    def _notify_soon(self) -> None:
        if self._store is not None and not self._is_notifying:
            self._is_notifying = True
            self._spawn(self._notify(self._store))

    async def _notify(self, store: MetadataStore) -> None:
        """Writes the notification, as often as it takes."""
        change = Put(LogDirEventRecord(UNASSIGNED_SEQUENCE, self._broker_id))

        def commit() -> None:
            # Runs when the store is free: what fails after that needs another notification.
            self._is_notifying = False
            store.commit([change])

        has_warned = False
        while True:
            try:
                await self._workers.run(self._workers.store, commit)
            except KafkaError as error:
                if not has_warned:
                    has_warned = True
                    logger.error(
                        "the controller could not be notified of replicas that are offline or "
                        "online again: %s; it is retried",
                        error.message,
                    )
                self._is_notifying = True
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def close(self) -> None:
        """Stops reacting: the controller sees the end of the broker's session instead."""
        for log_dir in self._logs.dirs:
            log_dir.on_failed = _ignore
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ignore() -> None: ...
