"""The small text files of a log directory: checkpoints, the clean-shutdown marker, identities.

Each has pure functions from and to its bytes, and a pair that loads and stores it through the
disk. A file that is not there is no error: it means nothing has been noted yet. One that cannot
be read is a `CorruptCheckpointError` with its path and the line.

A checkpoint has a version (0), the number of its entries, then one entry per line::

    0
    2
    orders 0 1500
    orders 1 1498
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.core.java_properties import (
    PropertiesSyntaxError,
    format_properties,
    parse_properties,
)
from penstock.storage.disk import Disk, replace_file

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
MOVED_MARKER = ".penstock_moved"

_CHECKPOINT_VERSION = 0
_NODE_KEYS = ("broker.id", "node.id")
"""What a node's number is called in `meta.properties`, by version: ZooKeeper's days, KRaft's."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LINE_END = re.compile(r"\r\n|\r|\n")

T = TypeVar("T")


class CorruptCheckpointError(KafkaStorageError):
    """A file of this module that cannot be read; the message names it and the line."""


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class MetaProperties(NamedTuple):
    """`meta.properties`: whose directory this is. Version 0 says `broker.id`, 1 says `node.id`."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None


class PartitionMetadata(NamedTuple):
    """`partition.metadata`: which topic of that name this is."""

    version: int
    topic_id: UUID


# --- checkpoints


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A checkpoint of partitions and offsets."""
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint; `path` is for the error."""

    def entry(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = line.split()
        return TopicPartition(topic, _integer(partition, 32)), _integer(offset, 64)

    return dict(_decode(data, path, entry, "topic partition offset"))


def load_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    return decode_offsets(disk.read_file(path), path) if disk.exists(path) else {}


def store_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, path, encode_offsets(offsets))


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The content of `leader-epoch-checkpoint`."""
    return _encode(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def decode_leader_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """The epochs in a `leader-epoch-checkpoint`; `path` is for the error."""

    def entry(line: str) -> EpochEntry:
        epoch, start_offset = line.split()
        found = EpochEntry(_integer(epoch, 32), _integer(start_offset, 64))
        if found.epoch < 0 or found.start_offset < 0:
            raise ValueError("negative")
        return found

    return _decode(data, path, entry, "epoch start-offset")


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([str(_CHECKPOINT_VERSION), str(len(entries)), *entries, ""]).encode()


def _decode(data: bytes, path: str, parse: Callable[[str], T], form: str) -> list[T]:
    lines = _lines(data, path)
    if lines:
        version = _number_line(lines, 1, path, "the version")
        if version != _CHECKPOINT_VERSION:
            raise _malformed(path, 1, f"version {version}; {_CHECKPOINT_VERSION} is the only one")
    if len(lines) < 2:
        return []
    count = _number_line(lines, 2, path, "the number of entries")
    entries: list[T] = []
    for number, line in enumerate(lines[2:], 3):
        try:
            entries.append(parse(line))
        except ValueError:
            raise _malformed(path, number, f"{line!r} is not of the form '{form}'") from None
    if len(entries) != count:
        raise _malformed(path, 2, f"{count} entries were written, {len(entries)} are there")
    return entries


def _lines(data: bytes, path: str) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _malformed(path, line, "bytes that are not UTF-8") from None
    lines = _LINE_END.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def _number_line(lines: list[str], number: int, path: str, what: str) -> int:
    line = lines[number - 1]
    try:
        return _integer(line, 32)
    except ValueError:
        raise _malformed(path, number, f"{line!r} should be {what}") from None


def _integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _malformed(path: str, line: int, what: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{path}, line {line}: {what}. Restore the file, or delete it to start without what it says"
    )


# --- the clean-shutdown marker


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """The content of `.kafka_cleanshutdown`."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int | None:
    """The broker epoch in the marker. None where it has none: the file's being there counts."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None


def has_clean_shutdown(disk: Disk, log_dir: str) -> bool:
    return disk.exists(f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}")


def store_clean_shutdown(disk: Disk, log_dir: str, broker_epoch: int = -1) -> None:
    """Notes that every log of the directory was flushed and closed; to be called after that."""
    replace_file(disk, f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}", encode_clean_shutdown(broker_epoch))


def remove_clean_shutdown(disk: Disk, log_dir: str) -> None:
    """Takes the marker away for good: one that came back would hide a later crash."""
    disk.remove(f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}")
    disk.sync_directory(log_dir)


# --- the mark of a log that was moved


def has_moved_marker(disk: Disk, directory: str) -> bool:
    """Whether the log in a directory was copied from another one, which may still be there."""
    return disk.exists(f"{directory}/{MOVED_MARKER}")


def store_moved_marker(disk: Disk, directory: str, source: str) -> None:
    """Marks a log that was copied from the directory `source` of `log.dirs`."""
    replace_file(disk, f"{directory}/{MOVED_MARKER}", f"{source}\n".encode())


def remove_moved_marker(disk: Disk, directory: str) -> None:
    """Takes the mark away for good, also where that was done and is not durable yet."""
    disk.remove(f"{directory}/{MOVED_MARKER}")
    disk.sync_directory(directory)


# --- identities


def uuid_text(value: UUID) -> str:
    """A UUID as Kafka prints it: base64 for URLs, without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_uuid(text: str) -> UUID:
    """The UUID that Kafka printed so; `ValueError` for anything else."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}(==)?", text):
        raise ValueError(f"{text!r} is no UUID in base64")
    return UUID(bytes=urlsafe_b64decode(text[:22] + "=="))


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    return f"version: {metadata.version}\ntopic_id: {uuid_text(metadata.topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> PartitionMetadata:
    """The content of `partition.metadata`; `path` is for the error."""
    values: list[str] = []
    lines = _lines(data, path)
    for number, key in enumerate(("version", "topic_id"), 1):
        line = lines[number - 1] if number <= len(lines) else ""
        match = re.fullmatch(rf"{key}:\s+(\S+)\s*", line)
        if match is None:
            raise _malformed(path, number, f"{line!r} is not of the form '{key}: …'")
        values.append(match[1])
    try:
        version = _integer(values[0], 32)
    except ValueError:
        raise _malformed(path, 1, f"{values[0]!r} is no version") from None
    if version < 0:
        raise _malformed(path, 1, f"version {version} is not known")
    try:
        topic_id = parse_uuid(values[1])
    except ValueError as error:
        raise _malformed(path, 2, str(error)) from None
    if topic_id.int == 0:
        raise _malformed(path, 2, "the topic id is zero, which no topic has")
    return PartitionMetadata(version, topic_id)


def load_partition_metadata(disk: Disk, directory: str) -> PartitionMetadata | None:
    path = f"{directory}/{PARTITION_METADATA}"
    return decode_partition_metadata(disk.read_file(path), path) if disk.exists(path) else None


def store_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> None:
    content = encode_partition_metadata(PartitionMetadata(0, topic_id))
    replace_file(disk, f"{directory}/{PARTITION_METADATA}", content)


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """The content of `meta.properties`."""
    values = {"version": str(properties.version)}
    if properties.cluster_id is not None:
        values["cluster.id"] = properties.cluster_id
    if properties.node_id is not None:
        values[_NODE_KEYS[properties.version]] = str(properties.node_id)
    if properties.directory_id is not None:
        values["directory.id"] = uuid_text(properties.directory_id)
    return format_properties(values).encode("ascii")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """The content of `meta.properties`; `path` is for the error."""
    try:
        found = parse_properties(data.decode("latin-1"))
    except PropertiesSyntaxError as error:
        raise _malformed(path, error.line, str(error)) from None

    def value(key: str, parse: Callable[[str], T], kind: str) -> T | None:
        if key not in found:
            return None
        text, line = found[key]
        try:
            return parse(text)
        except ValueError:
            raise _malformed(path, line, f"{key} is {text!r}, not {kind}") from None

    version = value("version", lambda text: ("0", "1").index(text), "0 or 1") or 0
    cluster_id = value("cluster.id", str, "a text")
    node_id = value(_NODE_KEYS[version], lambda text: _integer(text, 32), "a number")
    directory_id = value("directory.id", parse_uuid, "a UUID in base64")
    if version == 1 and (cluster_id is None or node_id is None):
        missing = "cluster.id" if cluster_id is None else "node.id"
        raise _malformed(path, data.count(b"\n") + 1, f"{missing} is missing")
    return MetaProperties(version, cluster_id, node_id, directory_id)


def load_meta_properties(disk: Disk, log_dir: str) -> MetaProperties | None:
    path = f"{log_dir}/{META_PROPERTIES}"
    return decode_meta_properties(disk.read_file(path), path) if disk.exists(path) else None


def store_meta_properties(disk: Disk, log_dir: str, properties: MetaProperties) -> None:
    replace_file(disk, f"{log_dir}/{META_PROPERTIES}", encode_meta_properties(properties))
