"""A broker's compacted logs on a disk in memory: written to, cleaned, and read by consumers."""

from collections.abc import Callable, Mapping, Sequence

from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, load_offsets
from penstock.storage.cleaner.cleaning_task import CleaningTask
from penstock.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from penstock.storage.cleaner.steps import CleanerTask
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.storage.crash_disk import CrashDisk, CrashMode
from tests.support.storage.logs import batches_in, headers_of, read_all

TP = TopicPartition("accounts", 0)
DIRECTORY = "/data"
EPOCH = 5

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    index_interval_bytes=100,
    segment_index_bytes=10_000,
    delete_retention_ms=10_000,
    file_delete_delay_ms=1000,
)
"""Cleans whenever there is something dirty."""


class Broker:
    """One broker with its logs and its cleaner. It can be stopped, killed and started again."""

    def __init__(
        self,
        config: LogConfig = COMPACT,
        settings: CleanerSettings | None = None,
        *,
        directories: Sequence[str] = (DIRECTORY,),
        limits: ProducerLimits | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.disk = CrashDisk()
        self.config = config
        self.settings = settings or CleanerSettings()
        self.slept: list[float] = []
        """How long the cleaner slept each time, in seconds."""
        self.on_sleep: Callable[[], None] = lambda: None
        self._directories = directories
        self._limits = limits or ProducerLimits()
        self.sequences: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.manager = LogManager(self.disk, self._directories, self.clock, limits=self._limits)
        self.manager.startup(lambda topic: self.config, node_id=1)
        self.use(self.settings)
        log = self.manager.get(TP)
        self.log = log if log is not None else self.create(TP)

    def use(self, settings: CleanerSettings) -> None:
        """Replaces the broker's cleaner."""
        self.settings = settings
        self.cleaner = LogCleaner(self.manager, self.clock, settings, sleep=self._sleep)

    def create(self, partition: TopicPartition) -> Log:
        return self.manager.get_or_create(partition, self.config)

    def stop(self) -> None:
        """A clean stop."""
        self.manager.shutdown()

    def kill(self) -> None:
        """Simulates a kill -9 after the checkpoints: written bytes survive."""
        for log_dir in self.manager.dirs:
            log_dir.checkpoint()
        for log in self.manager:
            log.local.close_handlers()
        self.disk = self.disk.image(CrashMode.WRITTEN)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()
        self.clock.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.disk.now_ms = self.clock.now_ms()

    # --- writing

    def append(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        log: Log | None = None,
        compression: Compression = Compression.NONE,
        producer_id: int = -1,
        transactional: bool = False,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamps: Sequence[int] | None = None,
    ) -> int:
        """Appends keys and values as one batch; returns the first offset."""
        log = log or self.log
        times = timestamps or [self.clock.now_ms()] * len(pairs)
        sequence = self.sequences.get(producer_id, 0)
        batch = build_batch(
            [Record(n, times[n], *pair, headers) for n, pair in enumerate(pairs)],
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=transactional,
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(pairs)
        info = log.append_as_leader(batch, EPOCH)
        log.update_high_watermark(log.log_end_offset)
        return info.first_offset

    def end_txn(self, producer_id: int, *, commit: bool) -> int:
        """Appends a marker; returns its offset."""
        marker = build_end_txn_marker(
            commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        info = self.log.append_as_leader(marker, EPOCH, origin=AppendOrigin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def roll(self, log: Log | None = None) -> None:
        (log or self.log).roll()

    # --- cleaning

    def clean(self) -> int:
        return self.cleaner.clean()

    def clean_one(self) -> bool:
        """Cleans one log; returns False if none is due."""
        task = self.cleaner.begin()
        result = task is not None
        while task is not None:
            task.run()
            task = self.cleaner.finish(task)
        return result

    def begin(self) -> CleaningTask:
        """Returns the first cleaning task, after the flush and the checkpoint before it."""
        task = self._next_cleaning(self.cleaner.begin())
        assert task is not None, "nothing to clean"
        return task

    def finish(self, task: CleanerTask) -> CleaningTask | None:
        """Passes a task to the cleaner and runs all syncs; returns the next cleaning task."""
        return self._next_cleaning(self.cleaner.finish(task))

    def _next_cleaning(self, task: CleanerTask | None) -> CleaningTask | None:
        while task is not None and not isinstance(task, CleaningTask):
            task.run()
            task = self.cleaner.finish(task)
        return task

    # --- reading

    def records(self) -> list[Record]:
        """Returns all records in the log except those of control batches."""
        return [record for record in read_all(self.log) if record.offset not in self.markers()]

    def pairs(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in self.records()]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def markers(self) -> list[int]:
        """Offsets of the markers in the log."""
        return [header.base_offset for header in headers_of(self.log) if header.is_control]

    def bases(self) -> list[int]:
        return self.log.local.segments.base_offsets

    def committed(self) -> list[Record]:
        """Returns what a `read_committed` consumer gets, with Kafka's filter."""
        observed: list[Record] = []
        offset = self.log.log_start_offset
        while True:
            fetched = self.log.read(offset, 400, FetchIsolation.TXN_COMMITTED)
            if fetched.records is None:
                return observed
            waiting = sorted(
                fetched.aborted_transactions or [], key=lambda txn: txn.first_offset, reverse=True
            )
            aborted: set[int] = set()
            for view, position, header in batches_in(fetched.records):
                while waiting and waiting[-1].first_offset <= header.last_offset:
                    aborted.add(waiting.pop().producer_id)
                offset = header.next_offset
                if header.is_control:
                    aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    observed += read_records(view, position, header)

    def table(self) -> dict[bytes, bytes]:
        """Returns the log as a table: the last committed value of each key."""
        return as_table(self.committed())


def as_table(records: Sequence[Record]) -> dict[bytes, bytes]:
    latest: Mapping[bytes, bytes | None] = {
        record.key: record.value for record in records if record.key is not None
    }
    return {key: value for key, value in latest.items() if value is not None}


# --- common steps of tests


def fill(broker: Broker, log: Log | None = None, *, segments: int = 3, keys: int = 4) -> None:
    """Returns sealed segments in which each key occurs once, and an active one."""
    for segment in range(segments):
        for key in range(keys):
            broker.append((b"k%d" % key, b"v%d" % segment), log=log)
        broker.roll(log)
    broker.append((b"active", b"-"), log=log)


def seal_active_segment(broker: Broker) -> None:
    """Rolls the segment, so that all existing records can be cleaned."""
    broker.append((b"active", b"-"))
    broker.roll()
    broker.append((b"active", b"-"))


def cleaned(broker: Broker) -> list[tuple[bytes | None, bytes | None]]:
    """Cleans; returns the remaining keys and values of the records before the roll."""
    seal_active_segment(broker)
    assert broker.clean() == 1
    return [pair for pair in broker.pairs() if pair[0] != b"active"]


def run_all(broker: Broker, task: CleaningTask) -> None:
    """Runs one cleaning to its end."""
    following: CleaningTask | None = task
    while following is not None:
        following.run()
        following = broker.finish(following)


def checkpoint(broker: Broker, directory: str = DIRECTORY) -> dict[TopicPartition, int]:
    """Returns how far each log is cleaned, according to the file."""
    return load_offsets(broker.disk, f"{directory}/{CLEANER_OFFSET_CHECKPOINT}")


def leftovers(broker: Broker) -> list[str]:
    """Files of a cleaning that should not be there any more."""
    names = broker.disk.names(broker.log.directory)
    return [name for name in names if name.endswith((".cleaned", ".swap"))]


def header_of(broker: Broker, offset: int) -> BatchHeader:
    """The header of the batch that holds an offset, or of the next one."""
    return next(header for header in headers_of(broker.log) if header.last_offset >= offset)
