"""The interface for components that follow what happens to logs, such as the log cleaner."""

from typing import Protocol

from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir


class LogListener(Protocol):
    """Is notified when a log is truncated, moved or deleted, on the event loop.

    The methods do no I/O: `begin_checkpoint` returns what must be written because of them.
    """

    def on_truncated(self, partition: TopicPartition, offset: int) -> None:
        """The log now ends at `offset`; nothing has been appended yet."""
        ...

    def on_deleted(self, partition: TopicPartition) -> None:
        """The log is about to be deleted."""
        ...

    def on_move_started(self, partition: TopicPartition) -> None:
        """The log is being copied to another log directory: its segments must not change."""
        ...

    def on_move_ended(self, partition: TopicPartition) -> None:
        """The copy is complete, or was abandoned."""
        ...

    def on_moved(self, source: LogDir, target: LogDir, old: Log, new: Log) -> None:
        """The partition now has another log with the same records, in another log directory."""
        ...

    def begin_checkpoint(self, log_dir: LogDir) -> FileWrite | None:
        """Returns the write of the listener's file in a log directory; None if it is current."""
        ...
