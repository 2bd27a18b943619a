"""What the cleaner has others run, beside the cleaning itself: each waits for the disk."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.latest_files import FileWrite
from penstock.storage.cleaner.cleaning_task import CleaningTask, Replacement
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from penstock.storage.log.replacement import begin_replacement
from penstock.storage.manager.log_dir import LogDir


class FlushStep:
    """Makes sealed segments durable before they are cleaned."""

    is_urgent = False

    def __init__(self, log: Log, flush: FlushTask) -> None:
        self.log = log
        self.flush = flush
        self.error: OSError | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    def run(self) -> None:
        try:
            self.flush.run()
        except OSError as error:
            self.error = error


class StoreStep:
    """Stores checkpoints; `then` says what comes next, on the logs' own thread."""

    is_urgent = False

    def __init__(
        self,
        log: Log,
        home: LogDir,
        file: FileWrite,
        then: "Callable[[], CleanerTask | None]",
    ) -> None:
        self.log = log
        self.home = home
        self.file = file
        self.then = then

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    def run(self) -> None:
        self.file.run()


class SwapStep:
    """Puts a new segment in the place of old ones; the log is held until it is through."""

    is_urgent = True

    def __init__(self, task: CleaningTask, replacement: Replacement) -> None:
        self.task = task
        self.replacement = replacement
        self.stages = begin_replacement(task.plan.log, [replacement.new], replacement.old)

    @property
    def partition(self) -> TopicPartition:
        return self.task.partition

    def run(self) -> None:
        self.stages.run()


CleanerTask: TypeAlias = FlushStep | StoreStep | SwapStep | CleaningTask
"""`run` it on any thread, soon where it `is_urgent`: others wait for it."""
