"""The moves of partitions between folders that are under way, on the logs' own thread.

What a crash leaves of a move: a `-future` folder, with which nothing is lost, and the current log;
or, between the two renames of the swap, the partition in both folders, the new one marked. Then
the one with more records is the partition's (`settle_doubles`): both have all that was flushed.
"""

import errno
import logging
from collections.abc import Sequence

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage import checkpoints
from penstock.storage.disk import Disk
from penstock.storage.log_dir import LogDir
from penstock.storage.log_move import LogMove

_log = logging.getLogger(__name__)

_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors that end a move and do not mean that the disk has failed."""

_PATIENCE = 8
"""How often a move may find the current log more durable before it flushes here and now."""


class LogMoves:
    """At most one move of each partition."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._moves: dict[TopicPartition, LogMove] = {}
        self._open: set[LogMove] = set()
        """All that have not ended, those that were cancelled too."""

    def get(self, partition: TopicPartition) -> LogMove | None:
        return self._moves.get(partition)

    def into(self, target: LogDir) -> list[LogMove]:
        """The moves into a folder."""
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

    def advance(self, move: LogMove) -> bool:
        """Takes over what the last `run` did; False: `run` it again. True once it has ended."""
        if move.ended:
            return True
        if not (move.cancelled or move.error):
            self._look_for_trouble(move)
        if move.cancelled or move.error:
            return self._give_up(move)
        try:
            ready = move.synced and move.is_nearly_there and self._may_swap(move)
            rest = move.read_rest() if ready else b""
            if not ready:
                move.plan_copy()
        except OSError as error:
            self._fail(move, move.source, error)
            return self._give_up(move)
        if not ready:
            return False
        return self._swap(move, rest) or self._give_up(move)

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
        move.ended = True
        self._open.discard(move)
        if move.error is not None:
            _log.error("%s", move.error.message)
        return True

    def _may_swap(self, move: LogMove) -> bool:
        if move.log.local.is_flushing:
            # The flush would miss the folder that it makes durable.
            return False
        if move.is_as_durable:
            return True
        # Where every append is flushed, the current log is always a flush ahead.
        move.overtaken += 1
        return move.overtaken >= _PATIENCE

    def _swap(self, move: LogMove, rest: bytes) -> bool:
        """Renames the folders; False where that went wrong."""
        old, new, target = move.log, move.future, move.target
        assert new is not None, "a future log that has caught up is there"
        try:
            move.append_rest(rest)
            if not move.is_as_durable:
                new.flush()
            new.take_over(old)
            target.adopt_future(new)
        except KafkaStorageError as error:
            cause = error.__cause__
            self._fail(
                move, target, cause if isinstance(cause, OSError) else OSError(error.message)
            )
            return False
        except KafkaError as error:
            move.error = KafkaStorageError(f"{move.partition} cannot be moved: {error.message}")
            return False
        except OSError as error:
            # What its folder is called is not known: nothing of it may be removed.
            move.removed = True
            target.fail(error)
            self._fail(move, target, error)
            return False
        del self._moves[move.partition]
        self._open.discard(move)
        move.log, move.done, move.ended = new, True, True
        self._take_away(move, f"was moved to {target.path}")
        return True

    def _take_away(self, move: LogMove, reason: str) -> None:
        old_dir = move.source
        old = old_dir.logs[move.partition]
        try:
            old_dir.delete(move.partition, reason)
            # For good with the next sync of the folder, or at the next start.
            self._disk.remove(f"{move.log.folder}/{checkpoints.MOVED_MARKER}")
        except OSError as error:
            move.target.fail(error)
        except KafkaStorageError as error:
            # Its disk has failed. The new log is marked: a start with both will find out.
            old_dir.logs.pop(move.partition, None)
            old.failure = error
            old.local.close_handlers()

    def close(self) -> None:
        """Lets go of all files. The next start goes on with the moves."""
        for move in self._open:
            move.close()


def settle_doubles(disk: Disk, dirs: Sequence[LogDir]) -> None:
    """Gives each partition that a move has left in two folders the log with more records."""
    for log_dir in dirs:
        for partition in [*log_dir.logs, *log_dir.broken]:
            if not log_dir.online:
                break
            folder = f"{log_dir.path}/{partition}"
            if checkpoints.has_moved_marker(disk, folder):
                _settle(disk, dirs, log_dir, partition)


def _settle(disk: Disk, dirs: Sequence[LogDir], marked: LogDir, partition: TopicPartition) -> None:
    folder = f"{marked.path}/{partition}"
    others = [each for each in dirs if each is not marked and each.has(partition)]
    if len(others) > 1 or any(
        checkpoints.has_moved_marker(disk, f"{each.path}/{partition}") for each in others
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
            checkpoints.remove_moved_marker(disk, folder)
    except OSError as error:
        marked.fail(error)


def _end_of(log_dir: LogDir, partition: TopicPartition) -> int:
    log = log_dir.logs.get(partition)
    return -1 if log is None else log.log_end_offset
