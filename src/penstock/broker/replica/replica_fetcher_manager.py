"""The replica fetchers of a broker: one for each leader broker and fetcher number (R2).

The fetcher number of a partition is a hash of it modulo `num.replica.fetchers`, as in Kafka. The
`ReplicaManager` adds partitions when this broker becomes a follower and removes them before it
becomes their leader or deletes them::

    manager.add([replica])          # follows the leader of its partition, in its leader epoch
    await manager.remove([key])     # nothing is appended or truncated for the old leader any more
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import NamedTuple

from penstock.broker.replica.follower_throttle import FollowerThrottle
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_fetcher import (
    FetcherClient,
    FetcherContext,
    FollowerLog,
    ReplicaFetcher,
)
from penstock.broker.workers import Workers
from penstock.core.clock import Clock
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.core.java_hash import string_hash
from penstock.replication.follower import FollowerMachine
from penstock.replication.follower_effects import InitialFetch
from penstock.replication.follower_session import FetcherSettings
from penstock.replication.partition import NO_LEADER
from penstock.replication.throttle import ReplicationQuota
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

_INT_MIN = 0x80000000

TRUNCATION_S = 60.0
"""How long a truncation is waited for: its disk may hang."""


class _FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


class _Assignment(NamedTuple):
    replica: Replica
    leader_epoch: int
    fetcher: _FetcherKey


class ReplicaFetcherManager:
    """Assigns partitions to fetchers, which it creates when they are needed. Used on the loop."""

    def __init__(
        self,
        settings: FetcherSettings,
        *,
        num_fetchers: int,
        new_client: Callable[[str], FetcherClient],
        logs: LogManager,
        workers: Workers,
        log_flusher: LogFlusher,
        clock: Clock,
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`new_client` creates a client with connections of its own, with this client id."""
        self.quota = quota or ReplicationQuota()
        self._throttle = FollowerThrottle(settings.broker_id, self.quota, self._throttled_replicas)
        self._settings = settings
        self._num_fetchers = num_fetchers
        self._new_client = new_client
        self._context = FetcherContext(
            logs, workers, log_flusher, clock, self._throttle, broker_epoch, self._start_operation
        )
        self._fetchers: dict[_FetcherKey, ReplicaFetcher] = {}
        self._assignments: dict[TopicPartition, _Assignment] = {}
        self._partition_counts: Counter[_FetcherKey] = Counter()
        self._operations: dict[TopicPartition, asyncio.Task[None]] = {}
        """Truncations in progress."""
        self._hanging_operations: set[asyncio.Task[None]] = set()
        """Those of them that nothing waits for any more."""
        self._deferred: set[TopicPartition] = set()
        """Partitions that are fetched when the truncation for an older leader epoch has ended."""
        self._closing: set[asyncio.Task[None]] = set()
        self._topic_hashes: dict[str, int] = {}
        self._is_closed = False
        self._is_stopping = False

    # --- partitions

    def add(self, replicas: Iterable[Replica]) -> None:
        """Follows the current leaders of these partitions, in place of others.

        A partition that follows the same leader in the same epoch already continues, and starts
        again if it has failed. One whose log is being truncated is fetched after that. One without
        a leader is not fetched. A broker that stops adds none.
        """
        if self._is_closed or self._is_stopping:
            return
        for replica in replicas:
            partition = replica.partition
            key, leader_id = partition.key, partition.leader
            fetcher = _FetcherKey(leader_id, self.fetcher_id(key))
            current = self._assignments.get(key)
            if current is not None and (
                current.fetcher != fetcher or current.replica is not replica
            ):
                self._unassign(key)
                current = None
            if leader_id in (NO_LEADER, self._settings.broker_id):
                continue
            if current is None:
                self._partition_counts[fetcher] += 1
            self._assignments[key] = _Assignment(replica, partition.leader_epoch, fetcher)
            self._start_fetching(key)
        self._close_idle_fetchers()

    def _start_fetching(self, key: TopicPartition) -> None:
        assignment = self._assignments.get(key)
        if assignment is None:
            return
        replica, leader_epoch, fetcher_key = assignment
        fetcher = self._fetchers.get(fetcher_key)
        if key in self._operations:
            current = None if fetcher is None else fetcher.machine.find(key)
            if current is None or current.leader_epoch != leader_epoch:
                # The truncation belongs to an older epoch; the new one begins after it.
                if fetcher is not None:
                    fetcher.remove([key])
                self._deferred.add(key)
                return
        if fetcher is None:
            fetcher = self._fetchers[fetcher_key] = self._create(fetcher_key)
        topic_id = replica.partition.topic_id
        try:
            fetcher.add(key, InitialFetch(topic_id, leader_epoch, FollowerLog(replica)))
        except KafkaStorageError as error:
            fetcher.machine.failures[key] = error.message

    async def remove(self, keys: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Stops following, and waits until no truncation of these partitions is in progress.

        Nothing is appended or truncated for them after that. Appends stop with the call. Returns
        the partitions whose truncation has not ended within `TRUNCATION_S`.
        """
        keys = list(keys)
        operations = [task for task in self.stop(keys) if task not in self._hanging_operations]
        if operations:
            await asyncio.wait(operations, timeout=TRUNCATION_S)
        hanging = frozenset(key for key in keys if key in self._operations)
        for key in hanging:
            operation = self._operations[key]
            if operation not in self._hanging_operations:
                logger.error(
                    "the truncation of %s has not ended within %g s: the disk may hang",
                    key,
                    TRUNCATION_S,
                )
                self._hanging_operations.add(operation)
                operation.add_done_callback(self._hanging_operations.discard)
        return hanging

    def stop(self, keys: Iterable[TopicPartition]) -> list["asyncio.Task[None]"]:
        """Like `remove`, but returns the truncations that are still in progress."""
        operations: list[asyncio.Task[None]] = []
        for key in keys:
            self._unassign(key)
            operation = self._operations.get(key)
            if operation is not None:
                operations.append(operation)
        self._close_idle_fetchers()
        return operations

    def restart(self, key: TopicPartition) -> None:
        """Fetches a partition again that has failed, because its log was replaced."""
        self._start_fetching(key)

    def _unassign(self, key: TopicPartition) -> None:
        assignment = self._assignments.pop(key, None)
        if assignment is None:
            return
        self._deferred.discard(key)
        self._partition_counts[assignment.fetcher] -= 1
        fetcher = self._fetchers.get(assignment.fetcher)
        if fetcher is not None:
            fetcher.remove([key])

    def fetcher_id(self, key: TopicPartition) -> int:
        """Returns the number of the fetcher of a partition."""
        topic_hash = self._topic_hashes.get(key.topic)
        if topic_hash is None:
            if len(self._topic_hashes) > 10_000:
                self._topic_hashes.clear()
            topic_hash = self._topic_hashes[key.topic] = string_hash(key.topic)
        value = (31 * topic_hash + key.partition) & 0xFFFFFFFF
        if value >= _INT_MIN:
            # Java's Math.abs, with 0 for the smallest integer.
            value = 0 if value == _INT_MIN else 0x100000000 - value
        return value % self._num_fetchers

    # --- fetchers

    def resize(self, num_fetchers: int) -> None:
        """Distributes all partitions anew after a change of `num.replica.fetchers`."""
        if num_fetchers == self._num_fetchers:
            return
        logger.info(
            "replica fetchers of each leader: %d instead of %d", num_fetchers, self._num_fetchers
        )
        self._num_fetchers = num_fetchers
        self.add([assignment.replica for assignment in self._assignments.values()])

    def _create(self, key: _FetcherKey) -> ReplicaFetcher:
        client_id = f"broker-{self._settings.broker_id}-fetcher-{key.fetcher_id}"
        machine = FollowerMachine(self._settings, self._throttle)
        return ReplicaFetcher(key.leader_id, machine, self._new_client(client_id), self._context)

    def _throttled_replicas(self, key: TopicPartition) -> tuple[str, ...]:
        assignment = self._assignments.get(key)
        if assignment is None:
            return ()
        return assignment.replica.config.follower_replication_throttled_replicas

    def _close_idle_fetchers(self) -> None:
        for key in [key for key in self._fetchers if not self._partition_counts[key]]:
            del self._partition_counts[key]
            task = asyncio.create_task(self._fetchers.pop(key).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _start_operation(
        self, key: TopicPartition, operation: Coroutine[object, object, None]
    ) -> None:
        task = asyncio.create_task(operation)
        self._operations[key] = task
        task.add_done_callback(lambda task: self._finish_operation(key, task))

    def _finish_operation(self, key: TopicPartition, task: "asyncio.Task[None]") -> None:
        if self._operations.get(key) is task:
            del self._operations[key]
            if key in self._deferred:
                self._deferred.discard(key)
                self._start_fetching(key)

    def begin_shutdown(self) -> None:
        """Fetches from now on only in the current leader epochs, until these end.

        The controller removes a broker that stops from the ISRs. If the broker fetched in the next
        leader epochs, their leaders would wait for it, and propose it as a member of the ISR again.
        """
        self._is_stopping = True

    async def close(self) -> None:
        """Ends all fetchers; waits for the truncations in progress, unless they hang."""
        self._is_closed = True
        self.stop(list(self._assignments))
        operations = set(self._operations.values()) - self._hanging_operations
        pending = [*self._closing, *operations]
        if pending:
            await asyncio.wait(pending, timeout=TRUNCATION_S)
        for task in pending:
            if task.done():
                with suppress(Exception):
                    task.result()

    # --- status

    def lag(self, key: TopicPartition) -> int | None:
        """Returns how far a partition is behind the leader's high watermark; None if unknown."""
        assignment = self._assignments.get(key)
        if assignment is None or assignment.fetcher not in self._fetchers:
            return None
        state = self._fetchers[assignment.fetcher].machine.find(key)
        return None if state is None else state.lag

    @property
    def failures(self) -> dict[TopicPartition, str]:
        """The partitions that are not replicated until they are added again, and why."""
        return {
            key: reason
            for fetcher in self._fetchers.values()
            for key, reason in fetcher.machine.failures.items()
        }
