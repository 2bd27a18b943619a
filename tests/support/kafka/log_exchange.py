"""Exchange of logs: Kafka opens ours, and we open and continue Kafka's."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.clock import Clock
from penstock.core.ids import TopicPartition
from penstock.records.compress import Compression
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.kafka.broker import CLUSTER_ID, KafkaParts
from tests.support.kafka.consumed_records import consume
from tests.support.kafka.logs import (
    KafkaWrittenLogs,
    ServedLogs,
    ServedPartition,
    read_checkpoint,
    serve_logs,
)
from tests.support.kafka.penstock_logs import (
    COMPACT,
    CONFIGS,
    KEYED,
    NODE,
    SMALL,
    PenstockWrittenLogs,
)
from tests.support.storage.log_writer import LogWriter, Notes, Producer

SOON_AFTER = 1_702_010_000_000
"""A time after the timestamps of Kafka's records and before their producers expire."""

KAFKA_EPOCH = 2
"""The leader epoch of a partition after its topic was created and its only broker restarted."""

_KAFKA_CONFIGS = {
    "append-time": replace(SMALL, message_timestamp_type="LogAppendTime"),
    "big": replace(SMALL, segment_bytes=2_000_000, max_message_bytes=4_000_000),
    "compacted-no-tombstones": replace(COMPACT, delete_retention_ms=0),
    "__consumer_offsets": COMPACT,
    "__transaction_state": COMPACT,
}


def kafka_config(topic: str) -> LogConfig:
    """Returns the settings with which Kafka wrote a topic."""
    return _KAFKA_CONFIGS.get(topic, COMPACT if topic.startswith("compacted") else SMALL)


def written_at(directory: Path) -> int:
    """Returns the time at which the records in a directory were written, in milliseconds."""
    return int(max(path.stat().st_mtime for path in directory.glob("**/*.log")) * 1000)


@contextmanager
def opened(directory: Path, clock: Clock | None = None) -> Iterator[LogManager]:
    """Opens a directory of Kafka with our log manager, which changes the files."""
    manager = LogManager(OsDisk(), [str(directory)], clock or ManualClock(written_at(directory)))
    manager.startup(kafka_config, node_id=NODE, cluster_id=CLUSTER_ID)
    try:
        yield manager
    finally:
        manager.shutdown()


def topic_properties(config: LogConfig) -> dict[str, str]:
    """Returns the settings of a log as topic configs of Kafka."""
    return {
        # segment.bytes has a minimum of 1 MiB; the internal variant exists for tests like these.
        "internal.segment.bytes": str(config.segment_bytes),
        "index.interval.bytes": str(config.index_interval_bytes),
        "cleanup.policy": ",".join(sorted(config.cleanup_policy)),
        "min.cleanable.dirty.ratio": str(config.min_cleanable_dirty_ratio),
        "delete.retention.ms": str(config.delete_retention_ms),
    }


# --- Kafka's logs, continued by us


@dataclass(frozen=True)
class ContinuedLogs:
    """Kafka's logs that we opened, appended to and closed."""

    directory: Path
    expected: Mapping[TopicPartition, ServedPartition]
    """The expected content of each, without offsets for timestamps."""

    @property
    def logs(self) -> dict[TopicPartition, Path]:
        """Returns the directories by their topic names on Kafka's broker."""
        return {renamed(where): self.directory / str(where) for where in self.expected}


def renamed(where: TopicPartition) -> TopicPartition:
    return where._replace(topic=f"given-back-{where.topic}")


def continue_logs(kafka: KafkaWrittenLogs, directory: Path, *, crashed: bool) -> ContinuedLogs:
    """Opens Kafka's logs, after a clean stop or a crash, and appends to some of them."""
    shutil.copytree(
        kafka.crashed if crashed else kafka.data,
        directory,
        ignore=shutil.ignore_patterns("__cluster_metadata-0"),
    )
    clock = ManualClock(SOON_AFTER)
    expected: dict[TopicPartition, ServedPartition] = {}
    with opened(directory, clock) as manager:
        for topic, append in _APPENDS.items():
            where = TopicPartition(topic, 0)
            log = manager.get(where)
            assert log is not None
            writer = LogWriter(log, clock, Notes(first_offset=log.log_end_offset), KAFKA_EPOCH, 0)
            append(writer)
            expected[where] = _joined(kafka.served[where], writer.notes.served())
            expected[where].max_timestamp = consume(log).max_timestamp
    return ContinuedLogs(directory, expected)


def _append_batches(writer: LogWriter) -> None:
    producer = _last_producer(writer)
    for codec in Compression:
        writer.send(writer.shapes(9, keys=5), codec=codec, producer=producer)


def _last_producer(writer: LogWriter) -> Producer:
    """Returns the producer that wrote last, with the epoch and sequence that Kafka stored."""
    entries = writer.log.producers.active_producers().values()
    last = max(entries, key=lambda entry: entry.last_data_offset)
    return Producer(last.producer_id, last.producer_epoch, last.last_sequence + 1)


def _end_transaction(writer: LogWriter) -> None:
    """Commits the open transaction."""
    entries = writer.log.producers.active_producers().values()
    (entry,) = (entry for entry in entries if entry.current_txn_first_offset is not None)
    writer.end(Producer(entry.producer_id, entry.producer_epoch), commit=True)


def _append_transactions(writer: LogWriter) -> None:
    """Appends transactions of an existing and of a new producer; one of each is aborted."""
    newest = max(writer.log.producers.active_producers().values(), key=lambda p: p.producer_id)
    old = Producer(newest.producer_id, newest.producer_epoch, 0, newest.coordinator_epoch)
    new = Producer(9_000, epoch=0, coordinator_epoch=newest.coordinator_epoch)
    for commit in (True, False):
        for producer in (old, new, old):
            writer.send(writer.shapes(4, keys=5), producer=producer, transactional=True)
        writer.end(new, commit=not commit)
        writer.end(old, commit=commit)


_APPENDS: dict[str, Callable[[LogWriter], None]] = {
    "append-time": _append_batches,
    "codec-zstd": _append_batches,
    "compacted": _append_batches,
    "transaction-open": _end_transaction,
    "transactions": _append_transactions,
}


def _joined(before: ServedPartition, after: ServedPartition) -> ServedPartition:
    """Returns the expected content after `after` is appended and ends all transactions."""
    was_open = before.last_stable_offset < before.high_watermark
    return ServedPartition(
        first_offset=before.first_offset,
        high_watermark=after.high_watermark,
        last_stable_offset=after.last_stable_offset,
        uncommitted=before.uncommitted + after.uncommitted,
        committed=(before.uncommitted if was_open else before.committed) + after.committed,
        leader_epochs={**before.leader_epochs, **after.leader_epochs},
        timestamp_types={**before.timestamp_types, **after.timestamp_types},
    )


# --- logs that Kafka serves

MOVED = {
    TopicPartition("moved-transactions", 0): TopicPartition("transactions", 1),
    TopicPartition("moved-codecs", 0): TopicPartition("codec-lz4", 0),
    TopicPartition("moved-codecs", 1): TopicPartition("codec-zstd", 0),
}
"""Logs of one broker that another broker opens unchanged, by their names there."""


def compaction_inputs(
    ours: PenstockWrittenLogs, kafka: KafkaWrittenLogs
) -> dict[TopicPartition, Path]:
    """Returns the logs for both cleaners, by their names on Kafka's broker."""
    inputs = {
        "ours": ours.data / str(KEYED),
        # Its tombstones and markers are already due for removal.
        "ours-again": ours.data / "compacted-0",
    }
    topics = ["append-time", "not-idempotent", "transactions"]
    topics += [f"codec-{codec.codec_name}" for codec in Compression]
    inputs |= {topic: kafka.directory(TopicPartition(topic, 0)) for topic in topics}
    return {TopicPartition(f"cleaned-{name}", 0): directory for name, directory in inputs.items()}


def serve_after_clean_stop(
    parts: KafkaParts,
    directory: Path,
    ours: PenstockWrittenLogs,
    kafka: KafkaWrittenLogs,
    continued_logs: ContinuedLogs,
    to_clean: Mapping[TopicPartition, Path],
) -> ServedLogs:
    """Kafka opens our directories unchanged, serves them, and compacts some."""
    logs = {where: ours.data / str(where) for where in ours.partitions}
    return serve_logs(
        parts,
        directory,
        {**logs, **continued_logs.logs, **to_clean, **_moved(kafka)},
        timestamps=_timestamps(ours, kafka),
        configs={
            **{topic: topic_properties(config) for topic, config in CONFIGS.items()},
            **{where.topic: topic_properties(COMPACT) for where in to_clean},
        },
        checkpoints=ours.data,
        ready=lambda data: _are_cleaned(data, to_clean),
    )


def _moved(kafka: KafkaWrittenLogs) -> dict[TopicPartition, Path]:
    return {where: kafka.directory(source) for where, source in MOVED.items()}


def _timestamps(
    ours: PenstockWrittenLogs, kafka: KafkaWrittenLogs
) -> dict[TopicPartition, list[int]]:
    """Returns the timestamps to look up on Kafka."""
    timestamps = {where: ours.times(where) for where in ours.notes}
    for where, source in MOVED.items():
        timestamps[where] = list(kafka.served[source].offsets_for_timestamps)
    return timestamps


def _are_cleaned(data: Path, logs: Mapping[TopicPartition, Path]) -> bool:
    cleaned = read_checkpoint(data / "cleaner-offset-checkpoint")
    return all(
        cleaned.get(where) == max(int(path.stem) for path in source.glob("*.log"))
        for where, source in logs.items()
    )


def serve_after_crash(
    parts: KafkaParts,
    directory: Path,
    ours: PenstockWrittenLogs,
    kafka: KafkaWrittenLogs,
    continued_logs: ContinuedLogs,
    more: Mapping[TopicPartition, Path],
) -> ServedLogs:
    """Kafka recovers our directories from our recovery points, and serves them."""
    logs = {where: ours.crashed / str(where) for where in ours.partitions}
    return serve_logs(
        parts,
        directory,
        {**logs, **continued_logs.logs, **more, **_moved(kafka)},
        timestamps=_timestamps(ours, kafka),
        configs={
            **{topic: topic_properties(config) for topic, config in CONFIGS.items()},
            **{where.topic: topic_properties(SMALL) for where in more},
        },
        clean=False,
        checkpoints=ours.crashed,
    )


def without_indexes(
    kafka: KafkaWrittenLogs, old_formats: Path, directory: Path
) -> Mapping[str, Path]:
    """Returns logs without indexes, which both brokers must rebuild, by topic name."""
    sources = {
        f"rebuilt-{topic}": kafka.directory(TopicPartition(topic, 0))
        for topic in (
            "append-time",
            "codec-gzip",
            "codec-none",
            "compacted-lz4",
            "compacted-transactions",
            "transactions",
        )
    }
    sources |= {f"old-{path.name[:-2]}": path for path in old_formats.glob("*-0")}
    for topic, source in sources.items():
        shutil.copytree(
            source, directory / topic, ignore=shutil.ignore_patterns("*index", "*.deleted")
        )
    return {topic: directory / topic for topic in sources}
