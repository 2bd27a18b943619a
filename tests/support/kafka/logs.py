"""Logs written by a real Kafka, and how a real Kafka serves our logs."""

import base64
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self, TypedDict

from penstock.core.ids import TopicPartition
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaBroker, KafkaParts, wait_until

WRITE_KAFKA_LOG = JAVA_DIRECTORY / "WriteKafkaLog.java"
WRITE_OLD_FORMATS = JAVA_DIRECTORY / "WriteOldFormats.java"
READ_KAFKA_LOG = JAVA_DIRECTORY / "ReadKafkaLog.java"


class JsonLine(TypedDict, total=False):
    """A line printed by one of the Java programs; its fields depend on its kind."""

    kind: str
    isolation: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]
    outcome: str
    timestampType: str
    leaderEpoch: int
    first: int
    last: int
    searched: int


@dataclass(frozen=True)
class KafkaRecord:
    """One record as read by Kafka's Java client."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def from_json(cls, line: JsonLine) -> Self:
        headers = tuple((key, _bytes(value)) for key, value in line["headers"])
        return cls(
            line["offset"], line["timestamp"], _bytes(line["key"]), _bytes(line["value"]), headers
        )


@dataclass(frozen=True)
class WrittenRecord:
    """A record that a broker accepted. Outcome: plain, committed, aborted or open."""

    where: TopicPartition
    record: KafkaRecord
    outcome: str


class FoundOffset(NamedTuple):
    """Kafka's result of an offset lookup by timestamp."""

    offset: int
    timestamp: int


@dataclass
class ServedPartition:
    """Everything a broker serves of one partition."""

    first_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    uncommitted: list[KafkaRecord] = field(default_factory=list)
    """The records of a read_uncommitted consumer: all except the markers."""
    committed: list[KafkaRecord] = field(default_factory=list)
    """The records of a read_committed consumer."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of each uncommitted record, by offset."""
    timestamp_types: dict[int, str] = field(default_factory=dict)
    """CreateTime or LogAppendTime of each uncommitted record, by offset."""
    max_timestamp: FoundOffset | None = None
    offsets_for_timestamps: dict[int, FoundOffset | None] = field(default_factory=dict)


Served = dict[TopicPartition, ServedPartition]


@dataclass(frozen=True)
class KafkaWrittenLogs:
    """Directories of a real broker. They are shared: a test must copy files that it changes."""

    data: Path
    """A `log.dirs` directory after a clean shutdown."""
    crashed: Path
    """A copy from just before that shutdown, equal to the state after a kill -9."""
    written: list[WrittenRecord]
    """All records that the broker accepted, in order for each partition."""
    served: Served
    """The partitions as the broker served them just before its shutdown."""

    def directory(self, where: TopicPartition) -> Path:
        return self.data / str(where)

    def files(self, suffix: str) -> list[Path]:
        """Returns the files of all partitions with this suffix (`.log`, `.index` …), sorted."""
        return sorted(
            path
            for path in self.data.glob(f"*/*{suffix}")
            if path.parent.name != "__cluster_metadata-0"
        )


def write_kafka_logs(parts: KafkaParts, directory: Path) -> KafkaWrittenLogs:
    """Writes topics of every kind with a real broker, with a restart (a new epoch) between."""
    broker = KafkaBroker(parts, directory)
    written: list[WrittenRecord] = []
    with broker:
        for phase in (1, 2):
            if phase == 2:
                broker.stop()
                broker.start()
            written += _write(broker, phase)
            wait_until(lambda: _is_all_compacted(broker.data), "compaction by Kafka")
        served = read_all(broker, sorted({entry.where.topic for entry in written}), _times(written))
        crashed = directory / "crashed"
        shutil.copytree(broker.data, crashed, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
        broker.stop()
    return KafkaWrittenLogs(broker.data, crashed, written, served)


def write_old_formats(parts: KafkaParts, directory: Path) -> list[WrittenRecord]:
    """Writes segments of the formats v0 and v1: one topic for each format and codec."""
    return _written(parts.run(WRITE_OLD_FORMATS, str(directory)).stdout)


@dataclass(frozen=True)
class ServedLogs:
    """The partitions that Kafka served from foreign directories, and its log."""

    partitions: Served
    broker_log: list[str]
    data: Path
    """Kafka's `log.dirs` directory after it has stopped."""


def serve_logs(
    parts: KafkaParts,
    directory: Path,
    logs: Mapping[TopicPartition, Path],
    *,
    timestamps: Mapping[TopicPartition, Sequence[int]] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    clean: bool = True,
    checkpoints: Path | None = None,
    ready: Callable[[Path], bool] = lambda data: True,
) -> ServedLogs:
    """Serves the partition directories in `logs` with a real broker that did not write them.

    Kafka creates the topics (with `configs` by topic), stops, gets the files of each directory in
    place of its own, and starts again. With `clean=False` the mark of the clean shutdown is removed
    first, so that Kafka recovers every segment. The given directories are copied, not changed.

    `checkpoints` is a `log.dirs` directory whose checkpoints, and mark of a clean shutdown, replace
    Kafka's. Reading starts once `ready(data)` says that Kafka has done what is waited for.
    """
    topics: dict[str, int] = {}
    for topic, partition in logs:
        topics[topic] = max(topics.get(topic, 0), partition + 1)
    broker = KafkaBroker(parts, directory)
    with broker:
        _create_topics(broker, topics, configs or {})
        broker.stop()
        for where, source in logs.items():
            _replace_files(broker.partition_directory(*where), source)
        if checkpoints is not None:
            _replace_checkpoints(broker.data, checkpoints)
        if not clean:
            (broker.data / ".kafka_cleanshutdown").unlink(missing_ok=True)
        broker.start()
        wait_until(lambda: ready(broker.data), "what Kafka does with the logs before they are read")
        served = read_all(broker, sorted(topics), timestamps or {})
        broker.stop()
    return ServedLogs(served, broker.log_lines(), broker.data)


def read_all(
    broker: KafkaBroker,
    topics: Sequence[str],
    timestamps: Mapping[TopicPartition, Sequence[int]],
) -> Served:
    """Reads the whole topics with Kafka's consumer, under both isolation levels."""
    request = {
        "read": topics,
        "timestamps": {str(where): list(times) for where, times in timestamps.items()},
    }
    run = broker.parts.run(READ_KAFKA_LOG, broker.bootstrap, stdin=json.dumps(request))
    served: Served = {}
    for text in run.stdout.splitlines():
        line: JsonLine = json.loads(text)
        where = TopicPartition(line["topic"], line["partition"])
        _take(served.setdefault(where, ServedPartition()), line)
    return served


def _take(partition: ServedPartition, line: JsonLine) -> None:
    match line["kind"], line.get("isolation"):
        case "record", "read_uncommitted":
            partition.uncommitted.append(KafkaRecord.from_json(line))
            partition.leader_epochs[line["offset"]] = line["leaderEpoch"]
            partition.timestamp_types[line["offset"]] = line["timestampType"]
        case "record", "read_committed":
            partition.committed.append(KafkaRecord.from_json(line))
        case "offsets", "read_uncommitted":
            partition.first_offset = line["first"]
            partition.high_watermark = line["last"]
        case "offsets", "read_committed":
            partition.last_stable_offset = line["last"]
        case "max-timestamp", None:
            partition.max_timestamp = _found_offset(line)
        case "offset-for-timestamp", None:
            partition.offsets_for_timestamps[line["searched"]] = _found_offset(line)
        case other:
            raise ValueError(f"ReadKafkaLog printed a line of an unknown kind: {other}")


def _found_offset(line: JsonLine) -> FoundOffset | None:
    return FoundOffset(line["offset"], line["timestamp"]) if line["offset"] >= 0 else None


def _write(broker: KafkaBroker, phase: int) -> list[WrittenRecord]:
    return _written(broker.parts.run(WRITE_KAFKA_LOG, broker.bootstrap, str(phase)).stdout)


def _written(stdout: str) -> list[WrittenRecord]:
    lines: Iterable[JsonLine] = map(json.loads, stdout.splitlines())
    return [
        WrittenRecord(
            TopicPartition(line["topic"], line["partition"]),
            KafkaRecord.from_json(line),
            line["outcome"],
        )
        for line in lines
    ]


def _times(written: Sequence[WrittenRecord]) -> dict[TopicPartition, list[int]]:
    """Returns timestamps to look up: before, at, between and after those of the records."""
    times: dict[TopicPartition, set[int]] = {}
    for entry in written:
        times.setdefault(entry.where, set()).add(entry.record.timestamp)
    return {
        where: [0, *sorted(result)[::40], sorted(result)[len(result) // 2] + 1, max(result) + 1]
        for where, result in times.items()
    }


def _is_all_compacted(data: Path) -> bool:
    """Returns whether Kafka's cleaner has cleaned everything but the active segments."""
    cleaned = read_checkpoint(data / "cleaner-offset-checkpoint")
    directories = data.glob("compacted*-0")
    return all(
        cleaned.get(TopicPartition(directory.name.removesuffix("-0"), 0), 0)
        == max(int(path.stem) for path in directory.glob("*.log"))
        for directory in directories
    )


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Reads an offset checkpoint of Kafka: version, count, then topic, partition and offset."""
    entries = path.read_text().splitlines()[2:] if path.exists() else []
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partition, offset in (entry.split(" ") for entry in entries)
    }


def _create_topics(
    broker: KafkaBroker, topics: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
) -> None:
    # Retention by time must not delete the old timestamps of these tests.
    keep = {"retention.ms": "-1"}
    create = {
        topic: {"partitions": count, "configs": {**keep, **configs.get(topic, {})}}
        for topic, count in topics.items()
    }
    broker.parts.run(READ_KAFKA_LOG, broker.bootstrap, stdin=json.dumps({"create": create}))
    expected = [
        broker.partition_directory(topic, partition) / "partition.metadata"
        for topic, count in topics.items()
        for partition in range(count)
    ]
    wait_until(lambda: all(path.exists() for path in expected), "directories of the new topics")


def _replace_files(directory: Path, source: Path) -> None:
    """Replaces the files in `directory`, except Kafka's topic id, with those of `source`."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, directory / path.name)


def _replace_checkpoints(data: Path, source: Path) -> None:
    """Replaces Kafka's checkpoints of all logs with those of `source`."""
    names = [".kafka_cleanshutdown", *(path.name for path in data.glob("*-checkpoint"))]
    for name in names:
        (data / name).unlink(missing_ok=True)
    for path in source.iterdir():
        if path.name == names[0] or path.name.endswith("-checkpoint"):
            shutil.copy2(path, data / path.name)


def _bytes(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)
