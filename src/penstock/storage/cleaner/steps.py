"""The blocking steps of the log cleaner besides the cleaning itself: flush, checkpoint, swap."""

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
    progress = 0

    def __init__(self, log: Log, flush: FlushTask) -> None:
        self.log = log
        self.flush = flush
        self.error: Exception | None = None

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    def run(self) -> None:
        try:
            self.flush.run()
        except Exception as error:  # noqa: BLE001 - the log's failure, see `finish_flush`
            self.error = error


class CheckpointStep:
    """Writes checkpoints; `then` returns the next task, on the event loop."""

    is_urgent = False
    progress = 0

    def __init__(
        self,
        log: Log,
        log_dir: LogDir,
        checkpoint: FileWrite,
        then: "Callable[[], CleanerTask | None]",
    ) -> None:
        self.log = log
        self.log_dir = log_dir
        self.checkpoint = checkpoint
        self.then = then

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    def run(self) -> None:
        self.checkpoint.run()


class SwapStep:
    """Replaces old segments with a new one; the log's files are locked until it has ended."""

    is_urgent = True
    progress = 0

    def __init__(self, task: CleaningTask, replacement: Replacement) -> None:
        self.task = task
        self.replacement = replacement
        self.operation = begin_replacement(task.plan.log, [replacement.new], replacement.old)

    @property
    def log(self) -> Log:
        return self.task.log

    @property
    def partition(self) -> TopicPartition:
        return self.task.partition

    def run(self) -> None:
        self.operation.run()


CleanerTask: TypeAlias = FlushStep | CheckpointStep | SwapStep | CleaningTask
"""`run` it on any thread, soon if it `is_urgent`: other operations wait for it. While it runs for
long, its `progress` rises."""
