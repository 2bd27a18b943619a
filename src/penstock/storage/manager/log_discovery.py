"""What is in a directory of `log.dirs`, by the names in it and the topic ids: nothing is loaded."""

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from penstock.core.ids import TopicId, TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    CorruptCheckpointError,
    load_partition_metadata,
)
from penstock.storage.disk import Disk
from penstock.storage.file_names import (
    CLUSTER_METADATA_TOPIC,
    parse_future_directory,
    parse_partition_directory,
    stray_directory_name,
)

_log = logging.getLogger(__name__)

Belongs: TypeAlias = Callable[[TopicPartition, TopicId | None], bool]
"""Whether a partition of a topic with this id (None: its directory has none) is this broker's."""


class DiscoveredLog(NamedTuple):
    """A partition's directory, before anything of it is loaded."""

    log_dir: str
    partition: TopicPartition
    topic_id: TopicId | None


class StrayLog(NamedTuple):
    """A partition's directory that does not belong to this broker, under the name it has now."""

    partition: TopicPartition
    topic_id: TopicId | None
    path: str


def partition_in(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None for the log of a controller, too."""
    partition = parse_partition_directory(name)
    return None if partition is None or partition.topic == CLUSTER_METADATA_TOPIC else partition


def discover_logs(disk: Disk, path: str) -> list[DiscoveredLog]:
    """The partitions in the directory `path`."""
    logs: list[DiscoveredLog] = []
    for name in disk.names(path):
        partition = partition_in(name)
        if partition is not None and disk.is_directory(f"{path}/{name}"):
            logs.append(DiscoveredLog(path, partition, _topic_id_in(disk, f"{path}/{name}")))
    return logs


def set_strays_aside(disk: Disk, path: str, belongs: Belongs) -> list[StrayLog]:
    """Renames the directories of partitions that do not belong here; none is deleted."""
    strays: list[StrayLog] = []
    for name in disk.names(path):
        directory = f"{path}/{name}"
        partition = partition_in(name) or parse_future_directory(name)
        if partition is None or not disk.is_directory(directory):
            continue
        topic_id = _topic_id_in(disk, directory)
        if not belongs(partition, topic_id):
            stray = f"{path}/{stray_directory_name(partition, uuid4().hex)}"
            disk.rename(directory, stray)
            strays.append(StrayLog(partition, topic_id, stray))
    if strays:
        disk.sync_directory(path)
    return strays


def _topic_id_in(disk: Disk, directory: str) -> TopicId | None:
    try:
        metadata = load_partition_metadata(disk, directory)
    except CorruptCheckpointError as error:
        _log.error("%s", error.message)
        return None
    return None if metadata is None else metadata.topic_id
