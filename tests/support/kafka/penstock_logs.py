"""Logs of every kind, written by Penstock for a real Kafka to read, and their expected content."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from penstock.core.ids import TopicPartition
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.disk import OsDisk
from penstock.storage.log.retention import delete_old_segments
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.kafka.logs import ServedPartition
from tests.support.storage.log_writer import LogWriter, Notes, Producer
from tests.support.storage.logs import old_message, remove_deleted_segments

NODE = 1
CLUSTER = "cGVuc3RvY2stY29tcGF0MQ"
NOW = 1_700_000_000_000

SMALL = LogConfig(
    segment_bytes=16 * 1024,
    index_interval_bytes=512,
    segment_index_bytes=64 * 1024,
    retention_ms=-1,
)
"""The settings of the logs that Kafka writes for these tests: several segments, full indexes."""

COMPACT = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0001)


@dataclass(frozen=True)
class PenstockWrittenLogs:
    """Directories that we wrote. They are shared: a test that changes files copies first."""

    data: Path
    """A `log.dirs` directory after a clean stop."""
    crashed: Path
    """The same, seen just before that stop, as a kill -9 would have left it."""
    configs: Mapping[str, LogConfig]
    notes: Mapping[TopicPartition, Notes]
    """The expected content of each log except the compacted one."""

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(TopicPartition(topic, 0) for topic in self.configs)

    def expected(self, where: TopicPartition, *, crashed: bool = False) -> ServedPartition:
        """Returns the expected content of a log that was not compacted."""
        notes = self.notes[where]
        if crashed and where == TORN:
            notes = Notes(notes.batches[:-1], notes.first_offset)
        return notes.served(self.times(where))

    def times(self, where: TopicPartition) -> list[int]:
        return self.notes[where].times()

    def files(self, *suffixes: str, crashed: bool = False) -> list[Path]:
        root = self.crashed if crashed else self.data
        return sorted(path for path in root.glob("*/*") if path.name.endswith(suffixes))


COMPACTED = TopicPartition("compacted", 0)
TORN = TopicPartition("torn", 0)
TORN_BYTES = 40
"""How much is missing of the last batch where a write was torn."""
RECOVERED = TopicPartition("recovered", 0)
KEYED = TopicPartition("keyed", 0)

CONFIGS: dict[str, LogConfig] = {
    **{f"codec-{codec.codec_name}": SMALL for codec in Compression},
    "append-time": replace(SMALL, message_timestamp_type="LogAppendTime"),
    "big": replace(SMALL, segment_bytes=3_000_000, max_message_bytes=4_000_000),
    "compacted": COMPACT,
    "converted": SMALL,
    "deleted": SMALL,
    "empty": SMALL,
    "epochs": SMALL,
    "far": SMALL,
    "idempotent": SMALL,
    "keyed": SMALL,
    "no-timestamps": SMALL,
    "recompressed": replace(SMALL, compression_type="zstd"),
    "recovered": SMALL,
    "rolled": SMALL,
    "torn": SMALL,
    "transaction-open": SMALL,
    "transactions": SMALL,
    "truncated": SMALL,
}

_EPOCHS = {"recovered": (1, 1), "truncated": (0, 4)}
"""Of the first and the second part, where not 0 and 1."""

HIGH_EPOCHS = ("epochs", "truncated")
"""Topics with higher epochs than a broker has that was started twice and now serves them."""


def write_penstock_logs(directory: Path) -> PenstockWrittenLogs:
    """Writes every kind of log, with a crash, a recovery and a clean restart between them."""
    data, crashed = directory / "data", directory / "crashed"
    writing = _Writing()
    _write_what_a_crash_tears(writing, directory / "killed", data)
    with writing.started(data) as manager:
        for topic in CONFIGS:
            writing.write(manager, topic, first=True)
    with writing.started(data) as manager:
        for topic in CONFIGS:
            writing.write(manager, topic, first=False)
        shutil.copytree(data, crashed)
    _tear(crashed / str(TORN))
    notes = {where: notes for where, notes in writing.notes.items() if where != COMPACTED}
    return PenstockWrittenLogs(data, crashed, CONFIGS, notes)


def _write_what_a_crash_tears(writing: "_Writing", killed: Path, data: Path) -> None:
    """A log whose last write was torn; the next start recovers it."""
    with writing.started(killed) as manager:
        writer = writing.writer(manager, RECOVERED.topic, epoch=0)
        _write_transactions(writer, rounds=3, first_id=800)
        writer.log.flush()
        manager.dirs[0].checkpoint()
        _write_plain(writer, 60)
        shutil.copytree(killed, data)
    _tear(data / str(RECOVERED))
    writing.notes[RECOVERED].batches.pop()


def _tear(directory: Path) -> None:
    last = max(directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-TORN_BYTES])


class _Started:
    """A manager that runs for the length of a block and then stops cleanly."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self._manager = LogManager(OsDisk(), [str(directory)], clock)

    def __enter__(self) -> LogManager:
        self._manager.startup(CONFIGS.__getitem__, node_id=NODE, cluster_id=CLUSTER)
        return self._manager

    def __exit__(self, *unused: object) -> None:
        self._manager.shutdown()


class _Writing:
    """The notes of all logs, and how each kind of log is written."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.notes = {TopicPartition(topic, 0): Notes() for topic in CONFIGS}

    def started(self, directory: Path) -> _Started:
        return _Started(directory, self.clock)

    def writer(self, manager: LogManager, topic: str, epoch: int) -> LogWriter:
        where = TopicPartition(topic, 0)
        topic_id = UUID(int=1000 + list(CONFIGS).index(topic))
        log = manager.get_or_create(where, CONFIGS[topic], topic_id)
        return LogWriter(log, self.clock, self.notes[where], epoch, seed=epoch)

    def write(self, manager: LogManager, topic: str, *, first: bool) -> None:
        """Writes the first or the second part of a topic."""
        epochs = _EPOCHS.get(topic, (0, 1))
        writer = self.writer(manager, topic, epochs[0] if first else epochs[1])
        kind = topic.removeprefix("codec-")
        if kind != topic:
            _write_plain(writer, 120, codec=Compression.from_name(kind))
        elif topic in ("compacted", "deleted", "far", "truncated"):
            _CHANGED[topic](writer, manager, first)
        else:
            _KINDS[topic](writer, first)
        if first:
            writer.log.flush()
        if not first and topic == "recompressed":
            # As a chore would: some logs are known to be flushed, and most not.
            manager.dirs[0].checkpoint()


def _write_plain(
    writer: LogWriter,
    count: int,
    *,
    codec: Compression = Compression.NONE,
    producer: Producer | None = None,
) -> None:
    """Batches of one to twelve records of all shapes."""
    for size in _sizes(count):
        writer.send(writer.shapes(size), codec=codec, producer=producer)


def _sizes(count: int) -> Iterator[int]:
    size = 0
    while count > 0:
        size = min(size % 12 + 1, count)
        yield size
        count -= size


def _write_transactions(writer: LogWriter, rounds: int, first_id: int) -> None:
    """Two producers whose transactions overlap, and one that is idempotent only."""
    left, right, plain = (Producer(first_id + n, epoch=writer.epoch) for n in range(3))
    for number in range(rounds):
        left.coordinator_epoch = right.coordinator_epoch = number // 2
        for n in range(6):
            writer.send(writer.shapes(3), producer=left, transactional=True)
            if n % 2:
                writer.send(writer.shapes(2), producer=plain, codec=Compression.LZ4)
            writer.send(writer.shapes(2, keys=9), producer=right, transactional=True)
        writer.end(left, commit=number % 3 != 1)
        writer.send(writer.shapes(1), producer=right, transactional=True)
        writer.end(right, commit=number % 3 != 2)
    # Markers of a transaction that wrote nothing here, and of a client without KIP-890.
    writer.end(left, commit=True)
    writer.send(writer.shapes(2), producer=left, transactional=True)
    writer.end(left, commit=False, bump=False)


def _write_transactions_twice(writer: LogWriter, first: bool) -> None:
    _write_transactions(writer, rounds=7, first_id=700 if first else 710)


def _write_open_transaction(writer: LogWriter, first: bool) -> None:
    """The first part leaves a transaction open that the second part ends, and leaves another."""
    old, new, plain = Producer(601), Producer(602), Producer(603, epoch=writer.epoch)
    _write_plain(writer, 10, producer=plain)
    if first:
        writer.send(writer.shapes(4), producer=old, transactional=True)
        _write_plain(writer, 6, producer=plain)
        return
    old.sequence = 4
    writer.send(writer.shapes(4), producer=old, transactional=True)
    writer.send(writer.shapes(5), producer=new, transactional=True)
    writer.end(old, commit=False)
    _write_plain(writer, 6, producer=plain)


def _write_append_time(writer: LogWriter, first: bool) -> None:
    for size in _sizes(60):
        writer.send(writer.shapes(size), codec=Compression.GZIP if size % 2 else Compression.NONE)


def _write_big(writer: LogWriter, first: bool) -> None:
    """Records up to one and a half megabytes, packed and not."""
    for codec in (Compression.NONE, Compression.ZSTD):
        for size in (1, 127, 128, 16_383, 16_384, 1_048_576, 1_500_000):
            value = writer.filler(size // 16) * 16
            record = Record(0, writer.next_timestamp(), b"size-%d" % size, value)
            writer.send([record], codec=codec)


def _write_converted(writer: LogWriter, first: bool) -> None:
    """Message sets of formats 0 and 1, as clients before 0.11 send them."""
    for magic in (0, 1):
        for size in (1, 5, 30):
            time = writer.next_timestamp()
            records = [
                Record(n, time + n if magic else -1, b"k", None if n == 3 else b"value %d" % n)
                for n in range(size)
            ]
            messages = [
                old_message(record.offset, record.value, magic=magic, timestamp=time + n)
                for n, record in enumerate(records)
            ]
            writer.send_as_is(b"".join(messages), records)


def _write_nothing(writer: LogWriter, first: bool) -> None:
    assert writer.log.log_end_offset == 0


def _write_epochs(writer: LogWriter, first: bool) -> None:
    """Leaders come and go; some append nothing."""
    for epoch in (0, 2, 3) if first else (5, 7, 2**31 - 1):
        writer.epoch = epoch
        _write_plain(writer, 40)


def _write_idempotent(writer: LogWriter, first: bool) -> None:
    """Producers side by side; one's sequence starts anew at 0, another one's epoch rises."""
    wrapping = Producer(501, sequence=2**31 - 25 if first else 35)
    bumped = Producer(502, epoch=10 if first else 20)
    second = Producer(2**62, epoch=2**15 - 1, sequence=0 if first else 40)
    for n in range(20):
        writer.send(writer.shapes(3), producer=wrapping)
        writer.send(writer.shapes(2), producer=second, codec=Compression.SNAPPY)
        if n % 7 == 6:
            bumped.epoch, bumped.sequence = bumped.epoch + 1, 0
        writer.send(writer.shapes(1), producer=bumped)


def _write_keyed(writer: LogWriter, first: bool) -> None:
    """Input for compaction: few keys, tombstones, every codec, producers, transactions."""
    producer = Producer(401, epoch=writer.epoch)
    ended = Producer(402, epoch=100 * writer.epoch)
    for n in range(60):
        codec = Compression(n % 5)
        writer.send(writer.shapes(n % 9 + 1, keys=20), codec=codec, producer=producer)
        writer.send(writer.shapes(n % 5 + 1, keys=20), codec=codec)
        writer.send(writer.shapes(2, keys=20), codec=codec, producer=ended, transactional=True)
        if n % 4 == 3:
            writer.end(ended, commit=n % 8 == 7)


def _write_without_timestamps(writer: LogWriter, first: bool) -> None:
    for size in _sizes(60):
        writer.send([record._replace(timestamp=-1) for record in writer.shapes(size)])


def _write_recompressed(writer: LogWriter, first: bool) -> None:
    for n, size in enumerate(_sizes(120)):
        codec = Compression(n % 5)
        stored = None if codec is Compression.ZSTD else Compression.ZSTD
        writer.send(writer.shapes(size), codec=codec, stored_codec=stored)


def _write_recovered(writer: LogWriter, first: bool) -> None:
    assert writer.log.log_end_offset == writer.notes.next_offset, "recovered to the last batch"
    _write_transactions(writer, rounds=2, first_id=810 if first else 820)


def _write_rolled(writer: LogWriter, first: bool) -> None:
    """Segments that were rolled explicitly; the last one is empty."""
    for _ in range(3):
        _write_plain(writer, 7)
        writer.log.roll()


def _write_torn(writer: LogWriter, first: bool) -> None:
    _write_plain(writer, 90, producer=Producer(301, epoch=writer.epoch))


# --- kinds that are not only appended to


def _write_truncated(writer: LogWriter, manager: LogManager, first: bool) -> None:
    """A follower's truncation after a leader change: records, epochs, an abort."""
    producer = Producer(201, epoch=writer.epoch)
    aborted = Producer(202, epoch=writer.epoch)
    _write_plain(writer, 70, producer=producer)
    end_offset = writer.log.log_end_offset
    writer.epoch += 1
    writer.send(writer.shapes(3), producer=aborted, transactional=True)
    writer.end(aborted, commit=False)
    _write_plain(writer, 90, producer=producer)
    manager.begin_truncation(writer.log.partition, end_offset).complete()
    writer.notes.truncate_to(end_offset)
    writer.epoch += 1
    _write_plain(writer, 30, producer=Producer(203, epoch=writer.epoch))


def _write_deleted(writer: LogWriter, manager: LogManager, first: bool) -> None:
    """DeleteRecords within a segment, after which the segments before it are deleted."""
    _write_plain(writer, 200, producer=Producer(101, epoch=writer.epoch))
    log = writer.log
    start = log.local.segments.base_offsets[-2] + 3
    assert log.increment_log_start_offset(start)
    assert delete_old_segments(log)
    writer.clock.advance(log.config.file_delete_delay_ms)
    assert remove_deleted_segments(log)
    notes = writer.notes
    notes.first_offset = start
    there_from = log.local.segments.first.base_offset
    notes.batches = [batch for batch in notes.batches if batch.base_offset >= there_from]


def _write_far(writer: LogWriter, manager: LogManager, first: bool) -> None:
    """Offsets that need more than 32 bits."""
    if first:
        writer.notes.first_offset = 5_000_000_000
        manager.begin_full_truncation(writer.log.partition, writer.notes.first_offset).complete()
    _write_plain(writer, 100)


def _write_compacted(writer: LogWriter, manager: LogManager, first: bool) -> None:
    _write_keyed(writer, first)
    assert LogCleaner(manager, writer.clock).clean() == 1


_KINDS: dict[str, Callable[[LogWriter, bool], None]] = {
    "append-time": _write_append_time,
    "big": _write_big,
    "converted": _write_converted,
    "empty": _write_nothing,
    "epochs": _write_epochs,
    "idempotent": _write_idempotent,
    "keyed": _write_keyed,
    "no-timestamps": _write_without_timestamps,
    "recompressed": _write_recompressed,
    "recovered": _write_recovered,
    "rolled": _write_rolled,
    "torn": _write_torn,
    "transaction-open": _write_open_transaction,
    "transactions": _write_transactions_twice,
}

_CHANGED: dict[str, Callable[[LogWriter, LogManager, bool], None]] = {
    "compacted": _write_compacted,
    "deleted": _write_deleted,
    "far": _write_far,
    "truncated": _write_truncated,
}
