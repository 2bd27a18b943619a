"""Moves of partitions between the folders of `log.dirs`, on a thread, while they are served."""

import asyncio
import logging

from penstock.broker.replicas import ReplicaManager
from penstock.broker.workers import Workers
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.storage.log_move import LogMove
from penstock.storage.manager import LogManager

logger = logging.getLogger("penstock.moves")


class LogMoves:
    """Runs moves one step at a time; a replica gets its new log when its move is done."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager, workers: Workers) -> None:
        self._logs = logs
        self._replicas = replicas
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, partition: TopicPartition, path: str) -> None:
        """Starts a move, or changes the target of one; KafkaError where that cannot be."""
        move = self._logs.begin_move(partition, path)
        if move is not None:
            task = asyncio.get_running_loop().create_task(self._run(move))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def resume(self) -> None:
        """Goes on with the moves that a stop interrupted."""
        for partition, path in self._logs.unfinished_moves():
            try:
                self.start(partition, path)
            except KafkaError as error:
                logger.error("%s cannot be moved on to %s: %s", partition, path, error.message)

    async def _run(self, move: LogMove) -> None:
        partition = move.partition
        while not self._logs.advance_move(move):
            await self._workers.run(self._workers.clean, move.run)
        if move.done:
            self._replicas.moved(partition)
            logger.info("%s was moved from %s to %s", partition, move.source.path, move.target.path)

    async def close(self) -> None:
        """Stops between two steps; what is copied is taken up again at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
