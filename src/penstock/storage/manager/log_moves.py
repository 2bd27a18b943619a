"""The moves of partitions between log directories that are in progress, on the event loop.

What a crash leaves of a move: the current log and a `-future` directory, with which nothing is
lost; or, during the swap, the partition in both log directories, the new one with a marker. At the
next start the log with more records becomes the partition's log (`resolve_duplicate_logs`): both
have everything that was flushed.
"""

import logging
import time
from collections.abc import Collection, Sequence
from functools import partial

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint import checkpoint_files
from penstock.storage.disk import Disk
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir
from penstock.storage.manager.log_listener import LogListener
from penstock.storage.manager.log_move import LogMove
from penstock.storage.staged_operation import StagedOperation, Steps

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.002
"""How often a deletion checks whether the swap that it waits for has ended."""


class LogMoves:
    """The moves in progress, at most one for each partition."""

    def __init__(self, disk: Disk, listeners: Sequence[LogListener]) -> None:
        self._disk = disk
        self._listeners = listeners
        self._moves: dict[TopicPartition, LogMove] = {}
        self._open_moves: set[LogMove] = set()
        """All moves that have not ended, including the cancelled ones."""

    def get(self, partition: TopicPartition) -> LogMove | None:
        return self._moves.get(partition)

    def moves_into(self, target: LogDir) -> list[LogMove]:
        return [move for move in self._moves.values() if move.target is target]

    def begin(self, partition: TopicPartition, source: LogDir, target: LogDir) -> LogMove:
        """Creates the move of a partition that has none."""
        leftover_name = target.future_directories.pop(partition, None)
        move = LogMove(self._disk, source.log(partition), source, target, leftover_name)
        self._moves[partition] = move
        self._open_moves.add(move)
        return move

    def cancel(self, partition: TopicPartition) -> None:
        """Cancels the partition's move, if any; its files are removed when it is advanced."""
        move = self._moves.pop(partition, None)
        if move is not None:
            move.is_cancelled = True

    def on_truncated(self, partition: TopicPartition) -> None:
        """Makes the partition's move start again: the truncated records may have been copied."""
        move = self._moves.get(partition)
        if move is not None:
            move.is_outdated = True

    def wait_for_swaps(self, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Waits until no swap is about to rename a directory of these partitions."""
        while self._swapping_moves(partitions):
            yield partial(time.sleep, _POLL_SECONDS)

    def finish_swaps(self, partitions: Collection[TopicPartition]) -> None:
        """Completes the swaps of these partitions on this thread."""
        for move in self._swapping_moves(partitions):
            while move.swap is not None and not self.advance(move):
                move.run()

    def _swapping_moves(self, partitions: Collection[TopicPartition]) -> list[LogMove]:
        return [
            move
            for move in self._open_moves
            if move.swap is not None and move.partition in partitions
        ]

    def advance(self, move: LogMove) -> bool:
        """Continues a move after `run`; returns True when it has ended, else `run` it again."""
        if move.has_ended:
            return True
        if move.swap is not None:
            return self._advance_swap(move, move.swap)
        move.unlock_log()
        if not self._has_stopped(move):
            self._check_for_errors(move)
        if self._has_stopped(move):
            return self._abandon(move)
        try:
            can_swap = (
                move.is_synced
                and not self._needs_restart(move)
                and move.has_nearly_caught_up
                and self._can_swap(move)
            )
            if not can_swap:
                move.plan_copy()
        except OSError as error:
            self._fail(move, move.source, error)
            return self._abandon(move)
        if not can_swap:
            return False
        move.swap = StagedOperation(self._swap(move))
        return self._advance_swap(move, move.swap)

    def _has_stopped(self, move: LogMove) -> bool:
        return move.is_cancelled or move.error is not None

    def _check_for_errors(self, move: LogMove) -> None:
        if move.source.logs.get(move.partition) is not move.log:
            move.is_cancelled = True
        elif move.log.failure is not None:
            move.error = move.log.failure
        elif move.target.error is not None:
            move.error = move.target.error
        elif move.is_outdated:
            # Any other error may come from reading the log while it was truncated.
            move.is_synced = False
        elif move.read_error is not None:
            self._fail(move, move.source, move.read_error)
        elif move.write_error is not None:
            self._fail(move, move.target, move.write_error)
        elif move.batch_error is not None:
            move.error = KafkaStorageError(
                f"{move.partition} cannot be copied to {move.target.path}: "
                f"{move.batch_error.message}"
            )

    def _fail(self, move: LogMove, log_dir: LogDir, error: OSError) -> None:
        log_dir.fail(error)
        move.error = KafkaStorageError(
            f"{move.partition} could not be moved to {move.target.path}: "
            f"{error.strerror or error}. It stays in {move.source.path}; fix the cause, then "
            f"request the move again"
        )

    def _abandon(self, move: LogMove) -> bool:
        if self._moves.get(move.partition) is move:
            del self._moves[move.partition]
        if not move.is_removed and move.target.is_online:
            move.plan_removal()
            return False
        move.close()
        self._end(move)
        for listener in self._listeners:
            listener.on_move_ended(move.partition)
        if move.error is not None:
            logger.error("%s", move.error.message)
        return True

    def _end(self, move: LogMove) -> None:
        move.has_ended = True
        self._open_moves.discard(move)

    def _can_swap(self, move: LogMove) -> bool:
        log = move.log
        if (
            not log.local.is_busy
            and move.is_as_durable
            and not self._swapping_moves([move.partition])
        ):
            return True
        # A running flush would miss the directory that it syncs; and everything that was flushed in
        # the current log must be durable in the future log. It is after the next step, if no other
        # flush comes in between.
        move.lock_log()
        return False

    def release_hanging(self, move: LogMove) -> None:
        """See `LogManager.release_hanging_move`."""
        move.unlock_log()
        if move.swap is not None and not move.is_done:
            # It is renamed back when the step has ended: nobody else uses the directory. What the
            # current log flushes until then is in no other log.
            if self._moves.get(move.partition) is move:
                self.cancel(move.partition)
            move.is_cancelled = True
            move.log.local.may_flush_locked = True

    # --- the swap

    def _advance_swap(self, move: LogMove, swap: StagedOperation[None]) -> bool:
        if not swap.advance():
            return False
        move.swap = None
        if move.is_done:
            self._end(move)
            return True
        return self.advance(move)

    def _swap(self, move: LogMove) -> Steps[None]:
        """Makes the future log the current one, or leaves everything as it was.

        The current log is appended to until the moment when the future log has all its records.
        Its files are locked: no flush, retention or truncation runs, so that everything flushed is
        in both logs. A deletion of the partition waits for the end: see `wait_for_swaps`.
        """
        old, new, target = move.log, move.future, move.target
        assert new is not None, "a move that has caught up has a future log"
        with old.local.lock_files():
            target.transient_logs[move.partition] = old
            try:
                has_caught_up = yield from self._rename_and_catch_up(move, old, new)
            finally:
                target.transient_logs.pop(move.partition, None)
                old.local.may_flush_locked = False
            if has_caught_up:
                self._switch_logs(move, old, new)
        if has_caught_up:
            yield from self._delete_source(move, old, new)

    def _rename_and_catch_up(self, move: LogMove, old: Log, new: Log) -> Steps[bool]:
        """Renames the future log's directory and copies the remaining batches.

        Returns False if the swap cannot continue and the directory was renamed back.
        """
        target = move.target
        # Before the directory is renamed: without the start offset, deleted records would reappear.
        stored_start = yield from self._store_start_offset(move, old)
        if not self._can_continue(move):
            return False
        try:
            yield partial(self._rename, target, new, str(move.partition))
            new.update_directory(f"{target.path}/{move.partition}")
            while self._can_continue(move) and not self._copy_remaining(
                move, old, new, stored_start
            ):
                if stored_start != old.log_start_offset:
                    stored_start = yield from self._store_start_offset(move, old)
                else:
                    yield move.run_step
            if self._can_continue(move):
                return True
            yield partial(self._rename, target, new, move.directory_name)
            new.update_directory(move.directory)
        except OSError as error:
            # It is unknown which name the directory has, so nothing may be removed.
            move.is_removed = True
            target.fail(error)
            self._fail(move, target, error)
        return False

    def _store_start_offset(self, move: LogMove, old: Log) -> Steps[int]:
        """Writes the target's checkpoints with the partition; returns the stored start offset."""
        start_offset = old.log_start_offset
        checkpoint = move.target.begin_checkpoint()
        if checkpoint is not None:
            yield checkpoint.run
            move.target.finish_checkpoint(checkpoint)
        return start_offset

    def _can_continue(self, move: LogMove) -> bool:
        if not self._has_stopped(move):
            self._check_for_errors(move)
        return not (self._has_stopped(move) or self._needs_restart(move))

    def _needs_restart(self, move: LogMove) -> bool:
        """Returns whether the current log was truncated, or has lost what would be copied next."""
        return move.is_outdated or move.end_offset < move.log.log_start_offset

    def _copy_remaining(self, move: LogMove, old: Log, new: Log, stored_start: int) -> bool:
        """Copies the remaining batches if they are few; returns False if not, or on an error."""
        if stored_start != old.log_start_offset:
            return False
        try:
            if not move.has_nearly_caught_up:
                move.plan_copy()
                return False
            data = move.read_remaining()
        except OSError as error:
            self._fail(move, move.source, error)
            return False
        try:
            move.append_remaining(data)
            new.copy_state_from(old)
        except KafkaStorageError as error:
            cause = error.__cause__
            self._fail(
                move, move.target, cause if isinstance(cause, OSError) else OSError(error.message)
            )
            return False
        except KafkaError as error:
            move.error = KafkaStorageError(f"{move.partition} cannot be moved: {error.message}")
            return False
        return True

    def _rename(self, log_dir: LogDir, log: Log, name: str) -> None:
        """Renames the directory of a log; after an `OSError` it is unknown which name it has."""
        self._disk.rename(log.directory, f"{log_dir.path}/{name}")
        self._disk.sync_directory(log_dir.path)

    def _switch_logs(self, move: LogMove, old: Log, new: Log) -> None:
        """Makes the new log the log of the partition."""
        partition, source, target = move.partition, move.source, move.target
        target.add_moved_log(new)
        del source.logs[partition]
        source.transient_logs[partition] = old
        old.guard.stop(KafkaStorageError(f"{partition} was moved to {target.path}"))
        old.successor = new
        if self._moves.get(partition) is move:
            del self._moves[partition]
        move.log, move.is_done = new, True
        for listener in self._listeners:
            listener.on_moved(source, target, old, new)
            listener.on_move_ended(partition)

    def _delete_source(self, move: LogMove, old: Log, new: Log) -> Steps[None]:
        """Deletes the directory of the old log and stores the listeners' checkpoints."""
        source, target = move.source, move.target
        try:
            yield from source.delete_steps([move.partition], f"was moved to {target.path}")
        except KafkaStorageError:
            # Its disk has failed. The new log has a marker, so the next start resolves it.
            source.transient_logs.pop(move.partition, None)
            old.local.close_handlers()
            return
        for log_dir in (source, target):
            for listener in self._listeners:
                checkpoint = listener.begin_checkpoint(log_dir)
                if checkpoint is not None:
                    yield checkpoint.run
                    log_dir.finish_checkpoint(checkpoint)
        try:
            # Durable with the next sync of the directory, or at the next start.
            yield partial(self._disk.remove, f"{new.directory}/{checkpoint_files.MOVED_MARKER}")
        except OSError as error:
            target.fail(error)

    def close(self) -> None:
        """Closes the files of all future logs. The moves continue after the next start."""
        for move in self._open_moves:
            move.close()


def resolve_duplicate_logs(disk: Disk, log_dirs: Sequence[LogDir]) -> None:
    """Keeps the log with more records of each partition that a move has left in two directories."""
    for log_dir in log_dirs:
        for partition in [*log_dir.logs, *log_dir.load_errors]:
            if not log_dir.is_online:
                break
            if checkpoint_files.has_moved_marker(disk, f"{log_dir.path}/{partition}"):
                _resolve_duplicate(disk, log_dirs, log_dir, partition)


def _resolve_duplicate(
    disk: Disk, log_dirs: Sequence[LogDir], marked: LogDir, partition: TopicPartition
) -> None:
    duplicates = [
        log_dir for log_dir in log_dirs if log_dir is not marked and log_dir.has(partition)
    ]
    if len(duplicates) > 1 or any(
        checkpoint_files.has_moved_marker(disk, f"{log_dir.path}/{partition}")
        for log_dir in duplicates
    ):
        return
    try:
        for duplicate in duplicates:
            is_marked_longer = _end_offset(marked, partition) >= _end_offset(duplicate, partition)
            loser = duplicate if is_marked_longer else marked
            logger.warning(
                "%s is in %s and in %s because its move was interrupted; deleting the one in %s, "
                "which has fewer records",
                partition,
                duplicate.path,
                marked.path,
                loser.path,
            )
            try:
                loser.delete(partition, "was left over by a move")
            except KafkaStorageError:
                # Its disk has failed: the next start tries again.
                log = loser.logs.pop(partition, None)
                if log is not None:
                    log.local.close_handlers()
                return
            if loser is marked:
                return
        if all(log_dir.is_loaded for log_dir in log_dirs):
            checkpoint_files.remove_moved_marker(disk, f"{marked.path}/{partition}")
    except OSError as error:
        marked.fail(error)


def _end_offset(log_dir: LogDir, partition: TopicPartition) -> int:
    log = log_dir.logs.get(partition)
    return -1 if log is None else log.log_end_offset
