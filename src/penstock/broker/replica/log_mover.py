"""Moves partitions between the directories of `log.dirs` on a thread, while they are served."""

import asyncio
import logging

from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.workers import Workers
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.storage.manager.log_manager import LogManager
from penstock.storage.manager.log_move import LogMove

logger = logging.getLogger(__name__)

STALL_S = 30.0
"""How long a step may take before the log that is moved no longer waits for it."""


class LogMover:
    """Runs moves step by step; a replica gets its new log when its move is complete."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager, workers: Workers) -> None:
        self._logs = logs
        self._replicas = replicas
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self, partition: TopicPartition, path: str) -> None:
        """Starts a move, or changes its target; raises KafkaError if that is not possible."""
        move = self._logs.begin_move(partition, path)
        if move is not None:
            task = asyncio.get_running_loop().create_task(self._run(move))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def resume(self) -> None:
        """Continues the moves that a shutdown interrupted."""
        for partition, path in self._logs.unfinished_moves():
            try:
                self.start(partition, path)
            except KafkaError as error:
                logger.error(
                    "the move of %s to %s cannot be continued: %s", partition, path, error.message
                )

    async def _run(self, move: LogMove) -> None:
        partition = move.partition
        has_ended = has_replaced_log = False
        while not has_ended:
            has_ended = self._logs.advance_move(move)
            if move.is_done and not has_replaced_log:
                # At once: the old log accepts no more records.
                self._replicas.on_log_replaced(partition)
                has_replaced_log = True
            if not has_ended:
                if self._stopping and move.swap is None:
                    return
                await self._run_step(move)
        if move.is_done:
            logger.info("%s was moved from %s to %s", partition, move.source.path, move.target.path)

    async def _run_step(self, move: LogMove) -> None:
        pool = self._workers.move_pool(move.source.path, move.target.path)
        running = asyncio.ensure_future(self._workers.run(pool, move.run))
        await asyncio.wait([running], timeout=STALL_S)
        if not running.done():
            logger.warning(
                "the move of %s from %s to %s has made no progress for %g s: a disk may hang",
                move.partition,
                move.source.path,
                move.target.path,
                STALL_S,
            )
            self._logs.release_hanging_move(move)
        await running

    async def close(self) -> None:
        """Stops between two steps; the next start continues with what has been copied."""
        self._stopping = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
