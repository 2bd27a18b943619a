"""What the results of a coordinator wait for: its records must be durable and committed.

Records are durable after the flush that `flush.messages` demands, and committed when the high
watermark has passed them. Until then the decisions that they express may be lost, so no client may
learn of them, and no effect may start.
"""

import asyncio
from collections.abc import Iterator

from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.core.errors import ErrorCode, KafkaError
from penstock.storage.log.results import LogAppendInfo

_COMMITTED = frozenset({ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""The high watermark has passed the records; with the second, some replicas left the ISR since."""


class PendingWrites:
    """The last flush and the last commit that are waited for, by partition."""

    def __init__(self, log_flusher: LogFlusher) -> None:
        self._log_flusher = log_flusher
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._commits: dict[int, asyncio.Future[None]] = {}
        """High watermarks only rise, so the last commit includes the earlier ones."""

    def add(self, partition: int, replica: Replica, info: LogAppendInfo) -> None:
        """Waits for the records of an append, from now on."""
        if info.needs_flush:
            self._flushes[partition] = self._log_flusher.flush(replica.log)
        elif info.has_rolled:
            self._log_flusher.flush(replica.log)
        if replica.partition.followers:
            self.add_offset(partition, replica, info.last_offset + 1)

    def add_offset(self, partition: int, replica: Replica, offset: int) -> None:
        """Waits until the high watermark has reached an offset."""
        if replica.commit_result(offset) not in _COMMITTED:
            self._commits[partition] = wait_for_commit(replica, offset)

    def forget(self, partition: int) -> None:
        """Drops the waits of a partition that this broker does not coordinate any more."""
        self._flushes.pop(partition, None)
        self._commits.pop(partition, None)

    def last(self, partition: int) -> "asyncio.Future[None] | None":
        """Returns a future that completes, or fails, with everything that was added so far.

        None means that all of it has completed. A failure stays until `forget`.
        """
        waits = list(self._unfinished(partition))
        if len(waits) <= 1:
            return waits[0] if waits else None
        return _all(waits)

    def _unfinished(self, partition: int) -> "Iterator[asyncio.Future[None]]":
        for waits in (self._flushes, self._commits):
            wait = waits.get(partition)
            if wait is not None:
                if wait.done() and not wait.cancelled() and wait.exception() is None:
                    del waits[partition]
                else:
                    yield wait


def wait_for_commit(replica: Replica, offset: int) -> "asyncio.Future[None]":
    """Returns a future that completes when the high watermark has reached an offset.

    It fails with a KafkaError when this broker does not lead the partition any more.
    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def complete(code: ErrorCode) -> None:
        if future.done():
            return
        if code in _COMMITTED:
            future.set_result(None)
            return
        key = replica.partition.key
        future.set_exception(KafkaError(code, f"records of {key} may not have been replicated"))
        # Not every write has a result that waits for it.
        future.exception()

    code = replica.commit_result(offset)
    if code is None:
        replica.commit_watchers.add(offset, complete)
    else:
        complete(code)
    return future


def _all(waits: "list[asyncio.Future[None]]") -> "asyncio.Future[None]":
    """Returns a future for several: it fails with the first that fails."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    remaining = len(waits)

    def complete(wait: "asyncio.Future[None]") -> None:
        nonlocal remaining
        remaining -= 1
        if future.done():
            return
        error = asyncio.CancelledError() if wait.cancelled() else wait.exception()
        if error is not None:
            future.set_exception(
                error if isinstance(error, Exception) else OSError("the write was cancelled")
            )
            future.exception()
        elif not remaining:
            future.set_result(None)

    for wait in waits:
        wait.add_done_callback(complete)
    return future
