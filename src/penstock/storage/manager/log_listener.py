"""Who must know what happens to logs."""

from typing import Protocol

from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir


class LogListener(Protocol):
    """Who must know when a log loses its end, moves, or is deleted: the cleaner.

    None of these waits for the disk: `begin_store` tells what is to be written because of them.
    """

    def truncated(self, partition: TopicPartition, offset: int) -> None:
        """The log now ends at `offset`; nothing was appended yet."""
        ...

    def deleted(self, partition: TopicPartition) -> None:
        """The log is about to be deleted."""
        ...

    def move_began(self, partition: TopicPartition) -> None:
        """The log is being copied to another directory: its segments must stay as they are."""
        ...

    def move_ended(self, partition: TopicPartition) -> None:
        """The copy is done, or was given up."""
        ...

    def moved(self, source: LogDir, target: LogDir, old: Log, new: Log) -> None:
        """The partition's log is another one, in another directory, with the same records."""
        ...

    def begin_store(self, log_dir: LogDir) -> FileWrite | None:
        """What the watcher keeps in a directory, where it is not stored as it is now."""
        ...
