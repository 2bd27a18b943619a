"""The move of one partition to another directory of `log.dirs`, while it is appended to (S1).

The batches are copied, as they are, into a future log: `<topic>-<partition>.<uuid>-future` in the
target directory. Once it has nearly all that the current log has, its directory gets the
partition's name; then what is left is copied, and from that moment on it is the current log. The
other directory is renamed and removed after that.

`LogMove.run` is the slow part, for any thread; it reads through a handle of its own and writes to
the future log, which nobody else uses. `log_moves.LogMoves` does the rest on the logs' own thread.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
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
from penstock.storage.staged_operation import StagedOperation

CHUNK_BYTES = 4 * 1024 * 1024
"""How much one step copies."""
FINAL_BYTES = 128 * 1024
"""So little is copied on the logs' own thread, right before the directories are renamed."""
_WAIT_SECONDS = 0.005
"""How long a step waits that has nothing to copy, while the current log is being flushed."""


class Chunk(Struct, frozen=True):
    """Whole batches of the current log, readable by any thread."""

    file: File
    position: int
    size: int
    starts_anew: bool
    """What the future log has is of no use: this is the start of the current log."""
    start_offset: int
    """Where the current log starts."""
    end_offset: int | None
    """Where it ends, if this is its last batch: that may be behind all that compaction left."""
    sync: bool
    """Make the future log durable after this."""


class LogMove:
    """A move. `advance` of `LogManager` and `run` take steps until `ended`."""

    def __init__(
        self, disk: Disk, log: Log, source: LogDir, target: LogDir, left_over: str | None = None
    ) -> None:
        self.log = log
        """The current log; the new one once the move is `done`."""
        self.source = source
        self.target = target
        self.future: Log | None = None
        self.directory_name = future_directory_name(log.partition, uuid4().hex)
        self.cancelled = False
        self.ended = False
        self.done = False
        """Whether the partition is in its new directory."""
        self.error: KafkaStorageError | None = None
        """Why the move was given up."""
        self.end_offset = log.log_start_offset
        """How far the future log has come."""
        self.size = 0
        """Bytes of the future log."""
        self.synced = False
        """Whether all was durable in the future log at some time after it had caught up."""
        self.read_error: OSError | None = None
        """What went wrong with the current log's files in the last step."""
        self.write_error: OSError | None = None
        """What went wrong in the target directory in the last step."""
        self.problem: KafkaError | None = None
        """What was wrong with the batches that were read in the last step."""
        self.outdated = False
        """Whether the current log was truncated below what was copied."""
        self.removed = False
        """Whether the files of the future log are gone, after a move that was given up."""
        self.swap: StagedOperation[None] | None = None
        """The change from the current log to the future one, while it is under way."""
        self._holding = ExitStack()
        self._left_over = left_over
        """Name of the directory that an earlier move into the target has left."""
        self._disk = disk
        self._step: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"LogMove({self.partition}, {self.source.path} to {self.target.path})"

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def directory(self) -> str:
        """Where the future log is."""
        return f"{self.target.path}/{self.directory_name}"

    @property
    def lag(self) -> int:
        """How many offsets the future log is behind."""
        return max(self.log.log_end_offset - self.end_offset, 0)

    # --- on the logs' own thread

    def plan_copy(self) -> None:
        """Decides what the next `run` copies."""
        log = self.log
        starts_anew = self.future is None or self.outdated or self.end_offset < log.log_start_offset
        self.outdated = False
        offset = log.log_start_offset if starts_anew else self.end_offset
        end = log.log_end_offset
        found = log.local.read(offset, CHUNK_BYTES, end, min_one=True)
        active = log.local.segments.active
        segment, position, size = active, active.size, 0
        if found is not None:
            (records, segment) = found
            position, size = records.position, records.size
        # A handle of the move's own: the log may close its one at any moment.
        file = self._disk.open(segment.log_path)
        at_end = segment is active and position + size == active.size
        sync = at_end and (starts_anew or not self.synced or not self.is_as_durable)
        chunk = Chunk(
            file,
            position,
            size,
            starts_anew,
            start_offset=log.log_start_offset,
            end_offset=end if at_end else None,
            sync=sync,
        )
        self._step = lambda: self._copy(chunk)

    def hold(self) -> None:
        """Keeps the current log from being flushed until `release`.

        Where every append is flushed, the current log would always be a flush ahead.
        """
        self.release()
        self._holding.enter_context(self.log.local.lock_files())

    def release(self) -> None:
        """Undoes `hold`; fine where nothing is held."""
        self._holding.close()

    def plan_removal(self) -> None:
        """Has the next `run` remove what was copied."""
        self._step = self._remove

    @property
    def is_as_durable(self) -> bool:
        """Whether the future log has on disk what the current one has there."""
        return self.future is not None and self.future.recovery_point >= self.log.recovery_point

    @property
    def is_nearly_there(self) -> bool:
        """Whether what is left to copy is little."""
        log = self.log
        if self.end_offset >= log.log_end_offset:
            return True
        found = log.local.read(self.end_offset, FINAL_BYTES, log.log_end_offset, min_one=True)
        if found is None:
            return True
        records, segment = found
        active = log.local.segments.active
        return segment is active and records.position + records.size == active.size

    def read_rest(self) -> bytes:
        """What is left to copy, where that is little."""
        log = self.log
        found = None
        if self.end_offset < log.log_end_offset:
            found = log.local.read(self.end_offset, FINAL_BYTES, log.log_end_offset, min_one=True)
        return b"" if found is None else found[0].read()

    def append_rest(self, data: bytes) -> None:
        """Copies what is left, here and now."""
        self._append(data)
        self._reach(self.log.log_end_offset)

    def close(self) -> None:
        """Lets go of the files as they are."""
        if self.future is not None:
            self.future.local.close_handlers()

    # --- on any thread

    def run(self) -> None:
        """Does the next step; what goes wrong is found by whoever goes on with the move."""
        if self.swap is not None:
            self.swap.run()
        else:
            self.run_step()

    def run_step(self) -> None:
        """Does what was planned."""
        step, self._step = self._step, None
        if step is not None:
            step()

    def _copy(self, chunk: Chunk) -> None:
        self.read_error = self.write_error = self.problem = None
        try:
            data = chunk.file.read_at(chunk.position, chunk.size)
        except OSError as error:
            self.read_error = error
            return
        finally:
            chunk.file.close()
        try:
            if chunk.starts_anew:
                self._start_anew(data, chunk.start_offset)
            if data:
                self._append(data)
            if chunk.end_offset is not None:
                self._reach(chunk.end_offset)
            if not data and not chunk.sync:
                time.sleep(_WAIT_SECONDS)
            if chunk.sync:
                self._sync()
        except OSError as error:
            self.write_error = error
        except KafkaStorageError as error:
            cause = error.__cause__
            self.write_error = cause if isinstance(cause, OSError) else OSError(error.message)
        except KafkaError as error:
            self.problem = error

    def _start_anew(self, data: bytes, start: int) -> None:
        """A future log without records, from the start of the current log on."""
        self.close()
        if self._left_over is not None:
            self._disk.remove_directory(f"{self.target.path}/{self._left_over}")
        # Two directories that were both moved could not be told apart after a crash.
        checkpoint_files.remove_moved_marker(self._disk, self.log.directory)
        if data:
            # The log may start within a batch, or before the first one that compaction left.
            start = min(start, header_at(memoryview(data), 0).base_offset)
        self.future = self.target.make_future(
            self.directory_name, self.partition, self.log.config, self.log.topic_id, start
        )
        self.end_offset = start
        self.size = 0
        self.synced = False

    def _append(self, data: bytes) -> None:
        future = self.future
        assert future is not None, "a future log is made before it is appended to"
        room = future.config.segment_bytes
        group: list[memoryview] = []
        size = 0
        for batch in _batches(data):
            if group and size + len(batch) > room:
                self._append_group(future, group)
                group, size = [], 0
            group.append(batch)
            size += len(batch)
        if group:
            self._append_group(future, group)
        self.end_offset = future.log_end_offset
        self.size = future.size

    def _append_group(self, future: Log, group: list[memoryview]) -> None:
        data = b"".join(group)
        config = future.config
        if len(data) > config.segment_bytes:
            # One batch, from before segment.bytes was lowered.
            future.config = replace(config, segment_bytes=len(data))
        try:
            future.append_as_follower(data)
        finally:
            future.config = config

    def _reach(self, offset: int) -> None:
        """Has the future log end where the current one does."""
        future = self.future
        assert future is not None, "a future log is made before it is appended to"
        if future.log_end_offset < offset:
            future.roll(offset)
            self.end_offset = offset

    def _sync(self) -> None:
        future = self.future
        assert future is not None, "a future log is made before it is flushed"
        future.flush()
        if not self.synced:
            checkpoint_files.store_moved_marker(self._disk, future.directory, self.source.path)
            self.synced = True

    def _remove(self) -> None:
        self.close()
        try:
            self._disk.remove_directory(self.directory)
        except OSError as error:
            self.write_error = error
        self.removed = True


def _batches(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    position = 0
    while position < len(view):
        size = header_at(view, position).size
        yield view[position : position + size]
        position += size
