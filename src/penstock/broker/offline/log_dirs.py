"""The log directories of stopped nodes: their locks, their owners and the partitions in them.

Nothing is changed in them, except that the file `.lock` is created.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.broker.config.broker_config import BrokerConfig
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint.checkpoint_files import (
    FAILED_MARKER,
    MetaProperties,
    has_clean_shutdown,
    load_meta_properties,
)
from penstock.storage.disk import OsDisk
from penstock.storage.file_names import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIRECTORY_SUFFIX,
    is_broker_directory,
)
from penstock.storage.manager.dir_identity import lock_log_dir
from penstock.storage.manager.log_discovery import partition_of_directory


class LogDirContent(NamedTuple):
    """What is in a log directory."""

    path: Path
    owner: MetaProperties | None
    partitions: list[TopicPartition]
    other_directories: list[str]
    """The names of directories that are not logs: stray ones and those of interrupted moves."""
    is_clean: bool
    """Whether the broker was stopped cleanly, and no disk had failed."""

    def directory_of(self, partition: TopicPartition) -> Path:
        return self.path / str(partition)


class NodeContent(NamedTuple):
    """A node and its log directories."""

    node_id: int
    log_dirs: list[LogDirContent]

    @property
    def partitions(self) -> dict[TopicPartition, LogDirContent]:
        """Returns the log directory of each partition. Raises KafkaStorageError if it has two."""
        found: dict[TopicPartition, LogDirContent] = {}
        for log_dir in self.log_dirs:
            for partition in log_dir.partitions:
                if partition in found:
                    raise KafkaStorageError(
                        f"{partition} is in {found[partition].path} and in {log_dir.path}",
                        remedy="start and stop the broker once: it completes the move",
                    )
                found[partition] = log_dir
        return found


@contextmanager
def locked_nodes(config: BrokerConfig) -> Iterator[list[NodeContent]]:
    """Locks the log directories of this node, and of further brokers of its supervisor.

    Raises KafkaStorageError if a directory does not exist, or a broker is running on it.
    """
    disk = OsDisk()
    with ExitStack() as locks:
        nodes = []
        for node_id, paths in node_directories(config):
            contents = []
            for path in paths:
                if not path.is_dir():
                    raise KafkaStorageError(
                        f"{path} does not exist", remedy="name the log.dirs of the broker"
                    )
                locks.callback(lock_log_dir(disk, str(path)).release)
                contents.append(_content(disk, path))
            nodes.append(NodeContent(node_id, contents))
        yield nodes


def node_directories(config: BrokerConfig) -> Iterator[tuple[int, Sequence[Path]]]:
    """Yields the nodes with their directories: `penstock serve --brokers` has several."""
    paths = [Path(path) for path in config.list("log.dirs")]
    yield config.int("node.id"), paths
    if paths[0].is_dir():
        for name in sorted(path.name for path in paths[0].iterdir()):
            if is_broker_directory(name):
                yield int(name.partition(".")[2]), [path / name for path in paths]


def has_partitions(path: Path) -> bool:
    """Returns whether the directory exists and has logs, without locking it."""
    return path.is_dir() and any(partition_of_directory(entry.name) for entry in path.iterdir())


def _content(disk: OsDisk, path: Path) -> LogDirContent:
    partitions, others = [], []
    for entry in sorted(path.iterdir()):
        if not entry.is_dir() or is_broker_directory(entry.name):
            continue
        partition = partition_of_directory(entry.name)
        if partition is not None:
            partitions.append(partition)
        elif entry.name != f"{CLUSTER_METADATA_TOPIC}-0" and not entry.name.endswith(
            DELETE_DIRECTORY_SUFFIX
        ):
            others.append(entry.name)
    is_clean = has_clean_shutdown(disk, str(path)) and not (path / FAILED_MARKER).exists()
    return LogDirContent(path, load_meta_properties(disk, str(path)), partitions, others, is_clean)
