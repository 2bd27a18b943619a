"""The moves of partitions between directories that are under way, on the logs' own thread.

What a crash leaves of a move: a `-future` directory, with which nothing is lost, and the current
log; or, while the one is swapped for the other, the partition in both directories, the new one
marked. Then the one with more records is the partition's (`resolve_duplicate_logs`): both have all
that was flushed.
"""

import errno
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

_log = logging.getLogger(__name__)

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors that end a move and do not mean that the disk has failed."""

_NAP_SECONDS = 0.002
"""How often a deletion looks whether the swap that it waits for is through."""


class LogMoves:
    """At most one move of each partition."""

    def __init__(self, disk: Disk, watchers: Sequence[LogListener]) -> None:
        self._disk = disk
        self._watchers = watchers
        self._moves: dict[TopicPartition, LogMove] = {}
        self._open: set[LogMove] = set()
        """All that have not ended, those that were cancelled too."""

    def get(self, partition: TopicPartition) -> LogMove | None:
        return self._moves.get(partition)

    def into(self, target: LogDir) -> list[LogMove]:
        """The moves into a directory."""
        return [move for move in self._moves.values() if move.target is target]

    def begin(self, partition: TopicPartition, source: LogDir, target: LogDir) -> LogMove:
        left_over = target.futures.pop(partition, None)
        move = LogMove(self._disk, source.log(partition), source, target, left_over)
        self._moves[partition] = move
        self._open.add(move)
        return move

    def cancel(self, partition: TopicPartition) -> LogMove | None:
        """Has a move end, if there is one; what it has copied goes when it is advanced."""
        move = self._moves.pop(partition, None)
        if move is not None:
            move.cancelled = True
        return move

    def truncated(self, partition: TopicPartition) -> None:
        """Notes that the current log has lost its end, perhaps what was copied."""
        move = self._moves.get(partition)
        if move is not None:
            move.outdated = True

    def end_of_swaps(self, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Waits until none of these partitions has a directory that a swap is about to rename."""
        while self._swapping(partitions):
            yield partial(time.sleep, _NAP_SECONDS)

    def finish_swaps(self, partitions: Collection[TopicPartition]) -> None:
        """Brings such swaps to their end, here and now."""
        for move in self._swapping(partitions):
            while move.swap is not None and not self.advance(move):
                move.run()

    def _swapping(self, partitions: Collection[TopicPartition]) -> list[LogMove]:
        return [
            move for move in self._open if move.swap is not None and move.partition in partitions
        ]

    def advance(self, move: LogMove) -> bool:
        """Takes over what the last `run` did; False: `run` it again. True once it has ended."""
        if move.ended:
            return True
        if move.swap is not None:
            return self._advance_swap(move, move.swap)
        move.release()
        if not (move.cancelled or move.error):
            self._look_for_trouble(move)
        if move.cancelled or move.error:
            return self._give_up(move)
        try:
            ready = move.synced and move.is_nearly_there and self._may_swap(move)
            if not ready:
                move.plan_copy()
        except OSError as error:
            self._fail(move, move.source, error)
            return self._give_up(move)
        if not ready:
            return False
        move.swap = StagedOperation(self._swap(move))
        return self._advance_swap(move, move.swap)

    def _look_for_trouble(self, move: LogMove) -> None:
        if move.source.logs.get(move.partition) is not move.log:
            move.cancelled = True
        elif move.log.failure is not None:
            move.error = move.log.failure
        elif move.target.error is not None:
            move.error = move.target.error
        elif move.outdated:
            # Whatever went wrong, it was read while the log was cut.
            move.synced = False
        elif move.read_error is not None:
            self._fail(move, move.source, move.read_error)
        elif move.write_error is not None:
            self._fail(move, move.target, move.write_error)
        elif move.problem is not None:
            move.error = KafkaStorageError(
                f"{move.partition} cannot be copied to {move.target.path}: {move.problem.message}"
            )

    def _fail(self, move: LogMove, log_dir: LogDir, error: OSError) -> None:
        if error.errno not in _PASSING:
            log_dir.fail(error)
        move.error = KafkaStorageError(
            f"{move.partition} could not be moved to {move.target.path}: "
            f"{error.strerror or error}. It stays in {move.source.path}; mend that, and ask for "
            f"the move again"
        )

    def _give_up(self, move: LogMove) -> bool:
        if self._moves.get(move.partition) is move:
            del self._moves[move.partition]
        if not move.removed and move.target.online:
            move.plan_removal()
            return False
        move.close()
        self._end(move)
        for watcher in self._watchers:
            watcher.move_ended(move.partition)
        if move.error is not None:
            _log.error("%s", move.error.message)
        return True

    def _end(self, move: LogMove) -> None:
        move.ended = True
        self._open.discard(move)

    def _may_swap(self, move: LogMove) -> bool:
        log = move.log
        if not log.local.is_busy and move.is_as_durable and not self._swapping([move.partition]):
            return True
        # A flush that runs would miss the directory that it makes durable; and the new log must
        # have what was flushed in the old one. It has after the next step, if none comes in
        # between.
        move.hold()
        return False

    # --- the swap

    def _advance_swap(self, move: LogMove, swap: StagedOperation[None]) -> bool:
        if not swap.advance():
            return False
        move.swap = None
        if move.done:
            self._end(move)
            return True
        return self.advance(move)

    def _swap(self, move: LogMove) -> Steps[None]:
        """Makes the future log the current one; leaves all as it was where that cannot be.

        The current log goes on being appended to, until the moment when all is in the other one.
        It is held: there is no flush, no retention and no truncation, so that what was flushed is
        in both. A deletion of the partition waits for the end of this: see `end_of_swaps`.
        """
        old, new, target = move.log, move.future, move.target
        assert new is not None, "a future log that has caught up is there"
        with old.local.lock_files():
            target.passing[move.partition] = old
            try:
                moved = yield from self._take_the_name(move, old, new)
            finally:
                target.passing.pop(move.partition, None)
            if moved:
                self._switch(move, old, new)
        if moved:
            yield from self._leave(move, old, new)

    def _take_the_name(self, move: LogMove, old: Log, new: Log) -> Steps[bool]:
        """Renames the future log's directory and copies the rest; False if it was renamed back."""
        target = move.target
        # Before the directory has its name: without its start offset, deleted records came back.
        stored = yield from self._store_start(move, old)
        if not self._is_fine(move):
            return False
        try:
            yield target.begin_adoption(new)
            new.update_directory(f"{target.path}/{move.partition}")
            while self._is_fine(move) and not self._copy_rest(move, old, new, stored):
                if stored != old.log_start_offset:
                    stored = yield from self._store_start(move, old)
                else:
                    yield move.run_step
            if self._is_fine(move):
                return True
            yield target.begin_return(new, move.directory_name)
            new.update_directory(move.directory)
        except OSError as error:
            # What its directory is called is not known: nothing of it may be removed.
            move.removed = True
            target.fail(error)
            self._fail(move, target, error)
        return False

    def _store_start(self, move: LogMove, old: Log) -> Steps[int]:
        """Has the target's checkpoints name the partition; returns the start offset they have."""
        start_offset = old.log_start_offset
        checkpoint = move.target.begin_checkpoint()
        if checkpoint is not None:
            yield checkpoint.run
            move.target.finish_checkpoint(checkpoint)
        return start_offset

    def _is_fine(self, move: LogMove) -> bool:
        """Whether the swap may go on."""
        if not (move.cancelled or move.error):
            self._look_for_trouble(move)
        anew = move.outdated or move.end_offset < move.log.log_start_offset
        return not (move.cancelled or move.error or anew)

    def _copy_rest(self, move: LogMove, old: Log, new: Log, stored: int) -> bool:
        """Copies what is left, where that is little; False: not yet, or something went wrong."""
        if stored != old.log_start_offset:
            return False
        try:
            if not move.is_nearly_there:
                move.plan_copy()
                return False
            rest = move.read_rest()
        except OSError as error:
            self._fail(move, move.source, error)
            return False
        try:
            move.append_rest(rest)
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

    def _switch(self, move: LogMove, old: Log, new: Log) -> None:
        """From now on the new log is the partition's."""
        partition, source, target = move.partition, move.source, move.target
        target.adopt(new)
        del source.logs[partition]
        source.passing[partition] = old
        old.guard.stop(KafkaStorageError(f"{partition} was moved to {target.path}"))
        old.successor = new
        if self._moves.get(partition) is move:
            del self._moves[partition]
        move.log, move.done = new, True
        for watcher in self._watchers:
            watcher.moved(source, target, old, new)
            watcher.move_ended(partition)

    def _leave(self, move: LogMove, old: Log, new: Log) -> Steps[None]:
        """Has the directory of the old log deleted."""
        source, target = move.source, move.target
        try:
            yield from source.deletion([move.partition], f"was moved to {target.path}")
        except KafkaStorageError:
            # Its disk has failed. The new log is marked: a start with both will find out.
            source.passing.pop(move.partition, None)
            old.local.close_handlers()
            return
        for log_dir in (source, target):
            for watcher in self._watchers:
                file = watcher.begin_store(log_dir)
                if file is not None:
                    yield file.run
                    log_dir.finish_checkpoint(file)
        try:
            # For good with the next sync of the directory, or at the next start.
            yield partial(self._disk.remove, f"{new.directory}/{checkpoint_files.MOVED_MARKER}")
        except OSError as error:
            target.fail(error)

    def close(self) -> None:
        """Lets go of all files. The next start goes on with the moves."""
        for move in self._open:
            move.close()


def resolve_duplicate_logs(disk: Disk, dirs: Sequence[LogDir]) -> None:
    """Gives each partition that a move has left in two directories the log with more records."""
    for log_dir in dirs:
        for partition in [*log_dir.logs, *log_dir.broken]:
            if not log_dir.online:
                break
            directory = f"{log_dir.path}/{partition}"
            if checkpoint_files.has_moved_marker(disk, directory):
                _settle(disk, dirs, log_dir, partition)


def _settle(disk: Disk, dirs: Sequence[LogDir], marked: LogDir, partition: TopicPartition) -> None:
    directory = f"{marked.path}/{partition}"
    others = [each for each in dirs if each is not marked and each.has(partition)]
    if len(others) > 1 or any(
        checkpoint_files.has_moved_marker(disk, f"{each.path}/{partition}") for each in others
    ):
        return
    try:
        for other in others:
            loser = other if _end_of(marked, partition) >= _end_of(other, partition) else marked
            _log.warning(
                "%s is in %s and in %s: its move was interrupted; the log in %s has less and goes",
                partition,
                other.path,
                marked.path,
                loser.path,
            )
            try:
                loser.delete(partition, "was left over by a move")
            except KafkaStorageError:
                # Its disk has failed: the next start finds it again.
                log = loser.logs.pop(partition, None)
                if log is not None:
                    log.local.close_handlers()
                return
            if loser is marked:
                return
        if all(each.loaded for each in dirs):
            checkpoint_files.remove_moved_marker(disk, directory)
    except OSError as error:
        marked.fail(error)


def _end_of(log_dir: LogDir, partition: TopicPartition) -> int:
    log = log_dir.logs.get(partition)
    return -1 if log is None else log.log_end_offset
