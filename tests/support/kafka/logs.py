"""Logs that a real Kafka wrote, and what a real Kafka makes of logs that we wrote."""

import base64
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self, TypedDict

from penstock.core.ids import TopicPartition
from tests.support.kafka.broker import JAVA_FOLDER, KafkaBroker, KafkaParts, wait_until

WRITE_KAFKA_LOG = JAVA_FOLDER / "WriteKafkaLog.java"
WRITE_OLD_FORMATS = JAVA_FOLDER / "WriteOldFormats.java"
READ_KAFKA_LOG = JAVA_FOLDER / "ReadKafkaLog.java"


class JsonLine(TypedDict, total=False):
    """A line that one of the Java programs printed; which fields it has depends on its kind."""

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
    asked: int


@dataclass(frozen=True)
class KafkaRecord:
    """One record as Kafka's Java client saw it."""

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
    """Kafka's answer to a question for an offset by time."""

    offset: int
    timestamp: int


@dataclass
class ServedPartition:
    """Everything a broker serves of one partition."""

    first_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    uncommitted: list[KafkaRecord] = field(default_factory=list)
    """What a read_uncommitted consumer gets: every record but the markers."""
    committed: list[KafkaRecord] = field(default_factory=list)
    """What a read_committed consumer gets."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of each uncommitted record, by offset."""
    timestamp_types: dict[int, str] = field(default_factory=dict)
    """CreateTime or LogAppendTime of each uncommitted record, by offset."""
    max_timestamp: FoundOffset | None = None
    offsets_for_timestamps: dict[int, FoundOffset | None] = field(default_factory=dict)


Served = dict[TopicPartition, ServedPartition]


@dataclass(frozen=True)
class KafkaWrittenLogs:
    """Folders that a real broker wrote. They are shared: a test that changes files copies first."""

    data: Path
    """A `log.dirs` folder after a clean shutdown."""
    crashed: Path
    """The same, seen just before that shutdown, as a kill -9 would have left it."""
    written: list[WrittenRecord]
    """Every record the broker accepted, in the order of acceptance for each partition."""
    served: Served
    """What the broker itself served just before its shutdown."""

    def folder(self, where: TopicPartition) -> Path:
        return self.data / str(where)

    def files(self, suffix: str) -> list[Path]:
        """Files of all partitions that end like this (`.log`, `.index` …), in order of name."""
        return sorted(
            path
            for path in self.data.glob(f"*/*{suffix}")
            if path.parent.name != "__cluster_metadata-0"
        )


def write_kafka_logs(parts: KafkaParts, folder: Path) -> KafkaWrittenLogs:
    """Has a real broker write topics of every kind, with a restart (and so a new epoch) between."""
    broker = KafkaBroker(parts, folder)
    written: list[WrittenRecord] = []
    with broker:
        for phase in (1, 2):
            if phase == 2:
                broker.stop()
                broker.start()
            written += _write(broker, phase)
            wait_until(lambda: _is_all_compacted(broker.data), "compaction by Kafka")
        served = read_all(broker, sorted({item.where.topic for item in written}), _times(written))
        crashed = folder / "crashed"
        shutil.copytree(broker.data, crashed, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
        broker.stop()
    return KafkaWrittenLogs(broker.data, crashed, written, served)


def write_old_formats(parts: KafkaParts, folder: Path) -> list[WrittenRecord]:
    """Segments of the message formats v0 and v1 in `folder`: a topic for each format and codec."""
    return _written(parts.run(WRITE_OLD_FORMATS, str(folder)).stdout)


@dataclass(frozen=True)
class ServedLogs:
    """What Kafka served of folders that it had not written, and what it logged while at it."""

    partitions: Served
    broker_log: list[str]
    data: Path
    """Kafka's `log.dirs` folder after it has stopped, with the given files as it left them."""


def serve_logs(
    parts: KafkaParts,
    folder: Path,
    logs: Mapping[TopicPartition, Path],
    *,
    timestamps: Mapping[TopicPartition, Sequence[int]] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    clean: bool = True,
    checkpoints: Path | None = None,
    ready: Callable[[Path], bool] = lambda data: True,
) -> ServedLogs:
    """Has a real broker open and serve the partition folders in `logs`, which somebody else wrote.

    Kafka creates the topics (with `configs` by topic), stops, gets the files of each folder in
    place of its own, and starts again. With `clean=False` the mark of the clean shutdown is removed
    first, so that Kafka recovers every segment. The given folders are copied, not changed.

    `checkpoints` is a `log.dirs` folder whose checkpoints, and mark of a clean shutdown, replace
    Kafka's. Reading starts once `ready(data)` says that Kafka has done what is waited for.
    """
    topics: dict[str, int] = {}
    for topic, partition in logs:
        topics[topic] = max(topics.get(topic, 0), partition + 1)
    broker = KafkaBroker(parts, folder)
    with broker:
        _create_topics(broker, topics, configs or {})
        broker.stop()
        for where, source in logs.items():
            _replace_files(broker.partition_folder(*where), source)
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
    """Reads the topics from end to end with Kafka's own consumer, under both isolation levels."""
    request = {
        "read": topics,
        "timestamps": {str(where): list(asked) for where, asked in timestamps.items()},
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
            partition.max_timestamp = _found(line)
        case "offset-for-timestamp", None:
            partition.offsets_for_timestamps[line["asked"]] = _found(line)
        case other:
            raise ValueError(f"ReadKafkaLog printed a line of an unknown kind: {other}")


def _found(line: JsonLine) -> FoundOffset | None:
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
    """Timestamps worth asking about: before, at, between and after those of the records."""
    times: dict[TopicPartition, set[int]] = {}
    for item in written:
        times.setdefault(item.where, set()).add(item.record.timestamp)
    return {
        where: [0, *sorted(result)[::40], sorted(result)[len(result) // 2] + 1, max(result) + 1]
        for where, result in times.items()
    }


def _is_all_compacted(data: Path) -> bool:
    """Whether Kafka's cleaner has been over everything but the active segments."""
    cleaned = read_checkpoint(data / "cleaner-offset-checkpoint")
    directories = data.glob("compacted*-0")
    return all(
        cleaned.get(TopicPartition(directory.name.removesuffix("-0"), 0), 0)
        == max(int(path.stem) for path in directory.glob("*.log"))
        for directory in directories
    )


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """An offset checkpoint of Kafka's: a version, a count, then a topic, partition and offset."""
    entries = path.read_text().splitlines()[2:] if path.exists() else []
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partition, offset in (entry.split(" ") for entry in entries)
    }


def _create_topics(
    broker: KafkaBroker, topics: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
) -> None:
    # Old timestamps are data to these tests, never a reason to delete.
    keep = {"retention.ms": "-1"}
    create = {
        topic: {"partitions": count, "configs": {**keep, **configs.get(topic, {})}}
        for topic, count in topics.items()
    }
    broker.parts.run(READ_KAFKA_LOG, broker.bootstrap, stdin=json.dumps({"create": create}))
    expected = [
        broker.partition_folder(topic, partition) / "partition.metadata"
        for topic, count in topics.items()
        for partition in range(count)
    ]
    wait_until(lambda: all(path.exists() for path in expected), "folders of the new topics")


def _replace_files(folder: Path, source: Path) -> None:
    """Puts the files of `source` into `folder`, which keeps only Kafka's id of the topic."""
    for path in folder.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, folder / path.name)


def _replace_checkpoints(data: Path, source: Path) -> None:
    """Puts everything that somebody noted about all logs of a folder in the place of Kafka's."""
    names = [".kafka_cleanshutdown", *(path.name for path in data.glob("*-checkpoint"))]
    for name in names:
        (data / name).unlink(missing_ok=True)
    for path in source.iterdir():
        if path.name == names[0] or path.name.endswith("-checkpoint"):
            shutil.copy2(path, data / path.name)


def _bytes(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)
