"""The small text files of a log directory: checkpoints, the clean-shutdown marker, identities.

Each file has a pair of pure functions that encode and decode it, and a pair that loads and stores
it through the disk. A missing file is not an error: nothing has been stored yet. An invalid file
raises a `CorruptCheckpointError` with its path and line.

A checkpoint consists of a version (0), the number of entries, and one entry per line::

    0
    2
    orders 0 1500
    orders 1 1498
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.core.java_properties import (
    PropertiesSyntaxError,
    format_properties,
    parse_properties,
)
from penstock.storage.disk import Disk, replace_file, write_temporary

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
BOOT_ID_FILE = ".penstock_boot_id"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
MOVED_MARKER = ".penstock_moved"
FAILED_MARKER = ".penstock_failed"

_CHECKPOINT_VERSION = 0
_NODE_KEYS = ("broker.id", "node.id")
"""The key of the node id in `meta.properties`, by version: with ZooKeeper, with KRaft."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LINE_END = re.compile(r"\r\n|\r|\n")

T = TypeVar("T")


class CorruptCheckpointError(KafkaStorageError):
    """A file of this module is invalid; the message has its path and line."""


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class MetaProperties(NamedTuple):
    """`meta.properties`: the owner of a log directory. Version 0 has `broker.id`, 1 `node.id`."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None


class PartitionMetadata(NamedTuple):
    """`partition.metadata`: the topic id, which distinguishes topics of the same name."""

    version: int
    topic_id: UUID


# --- checkpoints


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Returns the content of an offset checkpoint."""
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets in a checkpoint; `path` is for the error message."""

    def entry(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = line.split()
        return TopicPartition(topic, _integer(partition, 32)), _integer(offset, 64)

    return dict(_decode(data, path, entry, "topic partition offset"))


def load_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    return decode_offsets(disk.read_file(path), path) if disk.exists(path) else {}


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Returns the content of `leader-epoch-checkpoint`."""
    return _encode(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def decode_leader_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """Returns the epochs in a `leader-epoch-checkpoint`; `path` is for the error message."""

    def entry(line: str) -> EpochEntry:
        epoch_text, start_text = line.split()
        epoch, start_offset = _integer(epoch_text, 32), _integer(start_text, 64)
        if epoch < 0 or start_offset < 0:
            raise ValueError("negative")
        return EpochEntry(epoch, start_offset)

    return _decode(data, path, entry, "epoch start-offset")


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([str(_CHECKPOINT_VERSION), str(len(entries)), *entries, ""]).encode()


def _decode(data: bytes, path: str, parse: Callable[[str], T], form: str) -> list[T]:
    lines = _lines(data, path)
    if lines:
        version = _number_line(lines, 1, path, "the version")
        if version != _CHECKPOINT_VERSION:
            raise _malformed(
                path, 1, f"version {version} is not supported, only {_CHECKPOINT_VERSION}"
            )
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
        raise _malformed(path, 2, f"there should be {count} entries, not {len(entries)}")
    return entries


def _lines(data: bytes, path: str) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _malformed(path, line, "the text is not UTF-8") from None
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
        f"{path}, line {line}: {what}. Restore the file, or delete it to start without it"
    )


# --- the clean-shutdown marker


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """Returns the content of `.kafka_cleanshutdown`."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int | None:
    """Returns the broker epoch in the marker, or None: the existence of the file is enough."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None


def has_clean_shutdown(disk: Disk, log_dir: str) -> bool:
    return disk.exists(f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}")


def store_clean_shutdown(disk: Disk, log_dir: str, broker_epoch: int = -1) -> None:
    """Creates the marker; to be called after every log of the directory was closed."""
    replace_file(disk, f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}", encode_clean_shutdown(broker_epoch))


def remove_clean_shutdown(disk: Disk, log_dir: str) -> None:
    """Removes the marker durably: if it reappeared, it would hide a later crash."""
    disk.remove(f"{log_dir}/{CLEAN_SHUTDOWN_MARKER}")
    disk.sync_directory(log_dir)


# --- the run of the machine in which a log directory was used last

UNREPORTED_LOSS: Final = "unreported loss"
"""In place of a boot id: records may be lost, and the controller does not know it yet."""


def load_boot_id(disk: Disk, log_dir: str) -> str:
    """Returns the id that `store_boot_id` has stored; empty if there is none."""
    path = f"{log_dir}/{BOOT_ID_FILE}"
    return disk.read_file(path).decode("ascii", "replace") if disk.exists(path) else ""


def store_boot_id(disk: Disk, log_dir: str, boot_id: str) -> None:
    replace_file(disk, f"{log_dir}/{BOOT_ID_FILE}", boot_id.encode())


# --- the marker of a log directory that has failed


def has_failed_marker(disk: Disk, log_dir: str) -> bool:
    """Returns whether an I/O error happened since the last recovery of the directory."""
    return disk.exists(f"{log_dir}/{FAILED_MARKER}")


def store_failed_marker(disk: Disk, log_dir: str) -> None:
    """Marks a directory after an I/O error, if possible.

    It is not synced: it says that the page cache cannot be trusted, which a power failure empties.
    """
    with suppress(OSError):
        disk.open(f"{log_dir}/{FAILED_MARKER}", create=True).close()


def remove_failed_marker(disk: Disk, log_dir: str) -> None:
    disk.remove(f"{log_dir}/{FAILED_MARKER}")


# --- the marker of a moved log


def has_moved_marker(disk: Disk, directory: str) -> bool:
    """Returns whether a move copied the log from another directory, which may still exist."""
    return disk.exists(f"{directory}/{MOVED_MARKER}")


def store_moved_marker(disk: Disk, directory: str, source: str) -> None:
    """Marks a log that a move copied from the log directory `source`."""
    replace_file(disk, f"{directory}/{MOVED_MARKER}", f"{source}\n".encode())


def remove_moved_marker(disk: Disk, directory: str) -> None:
    """Removes the marker durably, even if it was already removed without a sync."""
    disk.remove(f"{directory}/{MOVED_MARKER}")
    disk.sync_directory(directory)


# --- identities


def uuid_text(value: UUID) -> str:
    """Returns a UUID as Kafka prints it: base64 for URLs, without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_uuid(text: str) -> UUID:
    """Returns the UUID that Kafka printed; raises `ValueError` for any other text."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}(==)?", text):
        raise ValueError(f"{text!r} is not a UUID in base64")
    return UUID(bytes=urlsafe_b64decode(text[:22] + "=="))


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    return f"version: {metadata.version}\ntopic_id: {uuid_text(metadata.topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> PartitionMetadata:
    """Returns the content of `partition.metadata`; `path` is for the error message."""
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
        raise _malformed(path, 1, f"{values[0]!r} is not a version") from None
    if version < 0:
        raise _malformed(path, 1, f"version {version} is not supported")
    try:
        topic_id = parse_uuid(values[1])
    except ValueError as error:
        raise _malformed(path, 2, str(error)) from None
    if topic_id.int == 0:
        raise _malformed(path, 2, "the topic id is zero, which is reserved")
    return PartitionMetadata(version, topic_id)


def load_partition_metadata(disk: Disk, directory: str) -> PartitionMetadata | None:
    path = f"{directory}/{PARTITION_METADATA}"
    return decode_partition_metadata(disk.read_file(path), path) if disk.exists(path) else None


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Writes `partition.metadata` of a new log; call `replace_by_temporary` then."""
    content = encode_partition_metadata(PartitionMetadata(0, topic_id))
    write_temporary(disk, f"{directory}/{PARTITION_METADATA}", content)


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Returns the content of `meta.properties`."""
    values = {"version": str(properties.version)}
    if properties.cluster_id is not None:
        values["cluster.id"] = properties.cluster_id
    if properties.node_id is not None:
        values[_NODE_KEYS[properties.version]] = str(properties.node_id)
    if properties.directory_id is not None:
        values["directory.id"] = uuid_text(properties.directory_id)
    return format_properties(values).encode("ascii")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Returns the content of `meta.properties`; `path` is for the error message."""
    try:
        entries = parse_properties(data.decode("latin-1"))
    except PropertiesSyntaxError as error:
        raise _malformed(path, error.line, str(error)) from None

    def value(key: str, parse: Callable[[str], T], kind: str) -> T | None:
        if key not in entries:
            return None
        text, line = entries[key]
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
