"""The move of one partition to another log directory, while it is appended to (S1).

The batches are copied unchanged into a future log, `<topic>-<partition>.<uuid>-future` in the
target directory. When it has nearly caught up with the current log, its directory is renamed to
the partition's name. Then the remaining batches are copied, and the future log becomes the current
one. The source directory is renamed and removed after that.

`LogMove.run` does the blocking part, on any thread: it reads through a file handle of its own and
writes to the future log, which nothing else uses. `log_moves.LogMoves` does the rest on the event
loop.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

from msgspec import Struct

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint import checkpoint_files
from penstock.storage.disk import Disk, File
from penstock.storage.file_names import future_directory_name
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.segment.batch_scan import header_at
from penstock.storage.segment.log_segment import LogSegment, LogSlice
from penstock.storage.staged_operation import StagedOperation

CHUNK_BYTES = 4 * 1024 * 1024
"""How much one step copies."""
FINAL_BYTES = 128 * 1024
"""How much is copied at most on the event loop, right before the logs are switched."""
_WAIT_SECONDS = 0.005
"""How long a step waits that has nothing to copy, while the current log is being flushed."""


class Chunk(Struct, frozen=True):
    """Whole batches of the current log, readable by any thread."""

    file: File
    position: int
    size: int
    is_restart: bool
    """The future log must be created again: this is the start of the current log."""
    start_offset: int
    """The start offset of the current log."""
    end_offset: int | None
    """The end offset of the current log if this is its last chunk. Compaction may have removed the
    last batches, so that the log ends after this chunk."""
    needs_sync: bool
    """The future log must be made durable after this chunk."""


class LogMove:
    """A move. `LogManager.advance_move` and `run` alternate until it `has_ended`."""

    def __init__(
        self,
        disk: Disk,
        log: Log,
        source: LogDir,
        target: LogDir,
        leftover_name: str | None = None,
    ) -> None:
        self.log = log
        """The current log; the new one once the move `is_done`."""
        self.source = source
        self.target = target
        self.future: Log | None = None
        self.directory_name = future_directory_name(log.partition, uuid4().hex)
        self.is_cancelled = False
        self.has_ended = False
        self.is_done = False
        """Whether the partition is in the target directory."""
        self.error: KafkaStorageError | None = None
        """Why the move was abandoned."""
        self.end_offset = log.log_start_offset
        """The end offset of the future log."""
        self.size = 0
        """The number of bytes in the future log."""
        self.is_synced = False
        """Whether the future log was durable at some time after it had caught up."""
        self.read_error: OSError | None = None
        """The error of the last step in the directory of the current log."""
        self.write_error: OSError | None = None
        """The error of the last step in the target directory."""
        self.batch_error: KafkaError | None = None
        """Why the batches of the last step are invalid."""
        self.is_outdated = False
        """Whether the current log was truncated below the end of the future log."""
        self.is_removed = False
        """Whether the files of the future log were removed, after the move was abandoned."""
        self.swap: StagedOperation[None] | None = None
        """The switch from the current log to the future one, while it is in progress."""
        self._log_lock = ExitStack()
        self._leftover_name = leftover_name
        """The name of a directory in the target that an earlier move has left."""
        self._disk = disk
        self._step: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"LogMove({self.partition}, {self.source.path} to {self.target.path})"

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def directory(self) -> str:
        """The directory of the future log."""
        return f"{self.target.path}/{self.directory_name}"

    @property
    def lag(self) -> int:
        """How many offsets the future log is behind."""
        return max(self.log.log_end_offset - self.end_offset, 0)

    # --- on the event loop

    def plan_copy(self) -> None:
        """Decides what the next `run` copies."""
        log = self.log
        is_restart = (
            self.future is None or self.is_outdated or self.end_offset < log.log_start_offset
        )
        self.is_outdated = False
        offset = log.log_start_offset if is_restart else self.end_offset
        end = log.log_end_offset
        active = log.local.segments.active
        segment, position, size = active, active.size, 0
        batches = log.local.read(offset, CHUNK_BYTES, end, min_one=True)
        if batches is not None:
            records, segment = batches
            position, size = records.position, records.size
        is_at_end = segment is active and position + size == active.size
        chunk = Chunk(
            # A handle of its own: the log may close its handle at any moment.
            self._disk.open(segment.log_path),
            position,
            size,
            is_restart,
            start_offset=log.log_start_offset,
            end_offset=end if is_at_end else None,
            needs_sync=is_at_end and (is_restart or not self.is_synced or not self.is_as_durable),
        )
        self._step = lambda: self._copy(chunk)

    def lock_log(self) -> None:
        """Prevents flushes of the current log until `unlock_log`.

        Otherwise a log that is flushed after every append would always be one flush ahead.
        """
        self.unlock_log()
        self._log_lock.enter_context(self.log.local.lock_files())

    def unlock_log(self) -> None:
        """Reverts `lock_log`, if it was called."""
        self._log_lock.close()

    def plan_removal(self) -> None:
        """Makes the next `run` remove the future log."""
        self._step = self._remove

    @property
    def is_as_durable(self) -> bool:
        """Whether everything that is durable in the current log is durable in the future log."""
        return self.future is not None and self.future.recovery_point >= self.log.recovery_point

    @property
    def has_nearly_caught_up(self) -> bool:
        """Whether the remaining batches are few enough for `append_remaining`."""
        batches = self._remaining_batches()
        if batches is None:
            return True
        records, segment = batches
        active = self.log.local.segments.active
        return segment is active and records.position + records.size == active.size

    def read_remaining(self) -> bytes:
        """Returns the remaining batches."""
        batches = self._remaining_batches()
        return b"" if batches is None else batches[0].read()

    def _remaining_batches(self) -> tuple[LogSlice, LogSegment] | None:
        log = self.log
        if self.end_offset >= log.log_end_offset:
            return None
        return log.local.read(self.end_offset, FINAL_BYTES, log.log_end_offset, min_one=True)

    def append_remaining(self, data: bytes) -> None:
        """Appends the remaining batches to the future log, on this thread."""
        self._append(data)
        self._extend_to(self.log.log_end_offset)

    def close(self) -> None:
        """Closes the files of the future log without flushing them."""
        if self.future is not None:
            self.future.local.close_handlers()

    # --- on any thread

    def run(self) -> None:
        """Does the next step; errors are kept for the next `advance_move`."""
        if self.swap is not None:
            self.swap.run()
        else:
            self.run_step()

    def run_step(self) -> None:
        """Does the planned copy or removal."""
        step, self._step = self._step, None
        if step is not None:
            step()

    def _copy(self, chunk: Chunk) -> None:
        self.read_error = self.write_error = self.batch_error = None
        try:
            data = chunk.file.read_at(chunk.position, chunk.size)
            if chunk.is_restart:
                # With two marked directories, a start after a crash could not tell the new one.
                checkpoint_files.remove_moved_marker(self._disk, self.log.directory)
        except OSError as error:
            self.read_error = error
            return
        finally:
            chunk.file.close()
        try:
            if chunk.is_restart:
                self._create_future_log(data, chunk.start_offset)
            if data:
                self._append(data)
            if chunk.end_offset is not None:
                self._extend_to(chunk.end_offset)
            if not data and not chunk.needs_sync:
                time.sleep(_WAIT_SECONDS)
            if chunk.needs_sync:
                self._sync()
        except OSError as error:
            self.write_error = error
        except KafkaStorageError as error:
            cause = error.__cause__
            self.write_error = cause if isinstance(cause, OSError) else OSError(error.message)
        except KafkaError as error:
            self.batch_error = error

    def _create_future_log(self, data: bytes, start_offset: int) -> None:
        """Creates an empty future log that starts where the current log starts."""
        self.close()
        if self._leftover_name is not None:
            self._disk.remove_directory(f"{self.target.path}/{self._leftover_name}")
        if data:
            # The log may start within a batch, or before the first one that compaction left.
            start_offset = min(start_offset, header_at(memoryview(data), 0).base_offset)
        self.future = self.target.create_future_log(
            self.directory_name,
            self.partition,
            self.log.config,
            self.log.topic_id,
            start_offset,
        )
        self.end_offset = start_offset
        self.size = 0
        self.is_synced = False

    def _append(self, data: bytes) -> None:
        future = self._require_future()
        max_size = future.config.segment_bytes
        group: list[memoryview] = []
        size = 0
        for batch in _batches(data):
            if group and size + len(batch) > max_size:
                self._append_group(future, group)
                group, size = [], 0
            group.append(batch)
            size += len(batch)
        if group:
            self._append_group(future, group)
        self.end_offset = future.log_end_offset
        self.size = future.size

    def _append_group(self, future: Log, group: list[memoryview]) -> None:
        future.append_as_follower(b"".join(group))

    def _extend_to(self, offset: int) -> None:
        """Makes the future log end at `offset`, where the current log ends."""
        future = self._require_future()
        if future.log_end_offset < offset:
            future.roll(offset)
            self.end_offset = offset

    def _sync(self) -> None:
        future = self._require_future()
        future.flush()
        if not self.is_synced:
            checkpoint_files.store_moved_marker(self._disk, future.directory, self.source.path)
            self.is_synced = True

    def _require_future(self) -> Log:
        assert self.future is not None, "the first step creates the future log"
        return self.future

    def _remove(self) -> None:
        self.close()
        try:
            self._disk.remove_directory(self.directory)
        except OSError as error:
            self.write_error = error
        self.is_removed = True


def _batches(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    position = 0
    while position < len(view):
        size = header_at(view, position).size
        yield view[position : position + size]
        position += size
