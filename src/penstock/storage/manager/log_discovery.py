"""The partitions in a log directory, by directory names and topic ids, before they are loaded."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from uuid import uuid4

from penstock.core.errors import KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    CorruptCheckpointError,
    load_partition_metadata,
)
from penstock.storage.disk import Disk
from penstock.storage.disk_errors import is_lack_of_room, remedy_for
from penstock.storage.file_names import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIRECTORY_SUFFIX,
    is_broker_directory,
    parse_future_directory,
    parse_partition_directory,
    stray_directory_name,
)
from penstock.storage.log.failure_guard import describe_error

logger = logging.getLogger(__name__)

PARTITION_ERRNOS: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.EEXIST,
        errno.ENAMETOOLONG,
    }
)
"""Errors that concern the files of one partition, not the disk."""

IsHosted: TypeAlias = Callable[[TopicPartition, TopicId | None], bool]
"""Returns whether this broker hosts the partition of the topic with this id (None: unknown)."""


class StrayLog(NamedTuple):
    """The directory of a partition that this broker does not host, under its new name."""

    partition: TopicPartition
    topic_id: TopicId | None
    path: str


class PartitionDirectories(NamedTuple):
    """The directories in a log directory, by the partition that they belong to."""

    partitions: list[TopicPartition]
    """The partitions to load."""
    future_names: dict[TopicPartition, str]
    """Directory names of future logs that an interrupted move has left."""


def partition_of_directory(name: str) -> TopicPartition | None:
    """Returns the partition with this directory name; None also for a controller's log."""
    partition = parse_partition_directory(name)
    return None if partition is None or partition.topic == CLUSTER_METADATA_TOPIC else partition


def list_partition_directories(disk: Disk, path: str) -> PartitionDirectories:
    """Returns the directories of partitions, and removes those of deleted partitions."""
    directories = PartitionDirectories([], {})
    for name in disk.names(path):
        directory = f"{path}/{name}"
        if not disk.is_directory(directory):
            continue
        if name.endswith(DELETE_DIRECTORY_SUFFIX):
            disk.remove_directory(directory)
            continue
        future_partition = parse_future_directory(name)
        if future_partition is not None:
            directories.future_names[future_partition] = name
            continue
        partition = partition_of_directory(name)
        if partition is not None:
            directories.partitions.append(partition)
        elif not is_broker_directory(name):
            logger.warning("ignoring %s, which is not the directory of a partition", directory)
    return directories


def load_error_of(partition: TopicPartition, directory: str, error: Exception) -> KafkaStorageError:
    """Returns the error of a partition that is offline because loading it raised `error`."""
    if isinstance(error, OSError) and is_lack_of_room(error):
        return KafkaStorageError(
            f"{partition} is offline because there is no room to load it: {describe_error(error)}. "
            f"It is loaded when there is room: {remedy_for(error, str(Path(directory).parent))}"
        )
    if isinstance(error, KafkaStorageError):
        return KafkaStorageError(f"{partition} is offline: {error.message}")
    reason = error.message if isinstance(error, KafkaError) else describe_error(error)
    return KafkaStorageError(
        f"{partition} is offline because it cannot be loaded: {reason}. Restore {directory}, or "
        f"move it away and have it copied from another replica"
    )


def rename_stray_logs(disk: Disk, path: str, is_hosted: IsHosted) -> list[StrayLog]:
    """Renames the directories of partitions that this broker does not host; deletes none."""
    strays: list[StrayLog] = []
    for name in disk.names(path):
        directory = f"{path}/{name}"
        partition = partition_of_directory(name) or parse_future_directory(name)
        if partition is None or not disk.is_directory(directory):
            continue
        topic_id = _topic_id_of(disk, directory)
        if not is_hosted(partition, topic_id):
            stray_path = f"{path}/{stray_directory_name(partition, uuid4().hex)}"
            disk.rename(directory, stray_path)
            strays.append(StrayLog(partition, topic_id, stray_path))
    if strays:
        disk.sync_directory(path)
    return strays


def _topic_id_of(disk: Disk, directory: str) -> TopicId | None:
    try:
        metadata = load_partition_metadata(disk, directory)
    except CorruptCheckpointError:
        # Reported when the partition is loaded.
        return None
    except OSError as error:
        if error.errno not in PARTITION_ERRNOS:
            raise
        return None
    return None if metadata is None else metadata.topic_id
