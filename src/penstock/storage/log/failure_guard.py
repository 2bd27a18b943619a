"""What happens to a log when its disk fails: the first I/O error stops it.

After a failed write or sync the content of the disk is unknown. The log therefore refuses every
further change until it is loaded again, which recovers it. Reads continue.

A lack of space or descriptors is no failure: the operation that met it is refused, and the next one
is attempted. That holds for operations that then have changed nothing, such as appends and reads.
A sync that fails for lack of space stops the log: the kernel may have dropped what it could not
write.

A log whose flush does not end is stalled: it refuses records until the flush has ended.
"""

import errno
import logging
from collections.abc import Callable
from typing import NoReturn, TypeVar

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk_errors import is_lack_of_room, remedy_for
from penstock.storage.log.local_log import LocalLog
from penstock.storage.staged_operation import Steps

logger = logging.getLogger(__name__)

T = TypeVar("T")


def describe_error(error: Exception) -> str:
    """Returns the reason of an I/O error, or what another exception says."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__


def lack_of_room_error(path: str, error: Exception) -> KafkaStorageError:
    """Returns the refusal of an operation after an error that `is_lack_of_room`."""
    assert isinstance(error, OSError)
    return KafkaStorageError(
        f"{path} has no room ({describe_error(error)}); acknowledged records are safe, "
        f"and what needs room is refused until there is some",
        remedy=remedy_for(error, path),
    )


class FailureGuard:
    """Runs a log's operations and turns their `OSError` into the log's failure.

    `on_failure` is called with the first error, so that the log directory goes offline, and with
    each lack of room, for which it does not. An error that is no `OSError` is a failure too if it
    ends a flush or a staged operation: then, too, it is unknown what is on the disk.
    """

    __slots__ = (
        "_local",
        "_partition",
        "failure",
        "is_recovering",
        "is_reloadable",
        "on_failure",
        "refusal",
    )

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._partition = partition
        self._local = local
        self.on_failure = on_failure
        self.failure: KafkaStorageError | None = None
        """Why the log refuses changes; None while it accepts them."""
        self.refusal: KafkaStorageError | None = None
        """Why the log refuses records: its failure, or that it is stalled."""
        self.is_reloadable = False
        """Whether the log has stopped for lack of room, so that it can be loaded again."""
        self.is_recovering = False
        """Whether its files are being recovered, for the log that replaces it: its indexes may not
        be read any more."""

    def require_writable(self) -> None:
        """Raises the failure if there is one."""
        if self.failure is not None:
            # Without the frames of those that met it before, which hold their buffers.
            raise self.failure.with_traceback(None)

    def stop(self, failure: KafkaStorageError) -> None:
        """Makes the log refuse every change with this error, unless it has failed already."""
        if self.failure is None:
            self.failure = self.refusal = failure

    @property
    def is_stalled(self) -> bool:
        return self.refusal is not None and self.failure is None

    def stall(self, refusal: KafkaStorageError) -> None:
        """Refuses records with this error until `resume`."""
        logger.error("%s", refusal.message)
        self.refusal = refusal

    def resume(self) -> None:
        """Accepts records again, after `stall`, unless the log has failed since."""
        self.refusal = self.failure

    def require_appendable(self) -> None:
        """Raises the failure, or the reason why the log is stalled."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    def run(self, action: Callable[[], T]) -> T:
        """Returns the result of `action`; an `OSError` stops the log."""
        try:
            return action()
        except OSError as error:
            self.fail(error)

    def attempt(self, action: Callable[[], T]) -> T:
        """Returns the result of an action that changes nothing if it raises an `OSError`.

        A lack of room refuses this action only; any other `OSError` stops the log.
        """
        if self.is_recovering:
            self.require_writable()
        try:
            return action()
        except OSError as error:
            self.refuse(error)

    def refuse(self, error: OSError) -> NoReturn:
        """Raises a KafkaStorageError for an operation that has changed nothing.

        The log continues after a lack of room, and while its directory is being renamed; any other
        error stops it.
        """
        if self.failure is None:
            if is_lack_of_room(error):
                self.on_failure(error)
                raise KafkaStorageError(
                    f"{self._partition} has no room ({describe_error(error)}); its acknowledged "
                    f"records are safe, and it continues when there is room",
                    remedy=remedy_for(error, self._local.directory),
                ) from error
            if error.errno == errno.ENOENT and self._local.are_files_locked:
                raise KafkaStorageError(
                    f"{self._partition} is being moved to another directory", remedy="retry later"
                ) from error
        self.fail(error)

    def guard(self, steps: Steps[T]) -> Steps[T]:
        """Runs `steps` until the log fails or is deleted; an error stops the log."""
        try:
            self.require_writable()
            work = next(steps)
            while True:
                yield work
                self.require_writable()
                work = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        except KafkaError:
            raise
        except Exception as error:  # noqa: BLE001 - raised as the log's failure
            self.fail(error)
        finally:
            steps.close()

    def fail(self, error: Exception) -> NoReturn:
        """Stops the log because of `error` and raises the failure."""
        if self.failure is None:
            self.is_reloadable = is_lack_of_room(error)
            remedy = "Repair the disk, then restart the broker"
            if isinstance(error, OSError) and self.is_reloadable:
                remedy = (
                    f"It is recovered when there is room: "
                    f"{remedy_for(error, self._local.directory)}"
                )
            self.failure = self.refusal = KafkaStorageError(
                f"{self._partition} is offline: {describe_error(error)} in "
                f"{self._local.directory}. {remedy}"
            )
            logger.error("%s", self.failure.message)
            self.on_failure(error)
        raise self.failure.with_traceback(None) from error
