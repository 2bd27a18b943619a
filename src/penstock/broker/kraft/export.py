"""Copies the log directories of stopped nodes so that Kafka's own brokers serve them.

The originals are only read. `meta.properties` is written last: without it, Kafka does not start, so
that nobody serves a part of an export.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from penstock.broker.kraft.metadata_log import DIRECTORY
from penstock.broker.kraft.metadata_records import DirectoryIds, to_kraft_records
from penstock.broker.kraft.snapshot import build_snapshot, snapshot_name
from penstock.broker.offline.file_copies import copy_file, link_file, sync_directory, write_file
from penstock.broker.offline.log_dirs import LogDirContent, NodeContent
from penstock.controller.image import ClusterImage
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.stored.cluster_metadata import FeatureLevelRecord
from penstock.storage.checkpoint.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    MetaProperties,
    PartitionMetadata,
    encode_partition_metadata,
    store_clean_shutdown,
    store_meta_properties,
)
from penstock.storage.disk import OsDisk
from penstock.storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX

_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
_SNAPSHOT_EPOCH: Final = 1


class _LogDirCopy(NamedTuple):
    node_id: int
    source: LogDirContent
    target: Path
    directory_id: UUID
    partitions: list[TopicPartition]
    has_metadata: bool
    """Whether it is the first directory of its node, which gets the metadata of the cluster."""


class KafkaExport:
    """An export that has been planned and checked: nothing is written before `run`."""

    def __init__(
        self,
        image: ClusterImage,
        nodes: Sequence[NodeContent],
        outputs: Sequence[Path],
        *,
        now_ms: int,
    ) -> None:
        """`outputs` correspond to the log directories of each node, in their order.

        Raises KafkaStorageError if the directories are not those of nodes that were stopped
        cleanly, or if an output is not empty.
        """
        if len({output.resolve() for output in outputs}) < len(outputs):
            raise KafkaStorageError("an output is named twice", remedy="name each one once")
        self._image = image
        self._now_ms = now_ms
        self.omissions: list[str] = []
        """What Kafka cannot take over, a sentence for each."""
        self.voters = sorted({node.node_id for node in nodes} | _replica_ids(image))
        self._copies = [
            copy
            for node in nodes
            for copy in self._plan_node(node, _outputs_of(node, outputs, len(nodes)))
        ]
        directory_ids: DirectoryIds = {
            (copy.node_id, partition): copy.directory_id
            for copy in self._copies
            for partition in copy.partitions
        }
        if _replica_ids(image) - {node.node_id for node in nodes}:
            # The other nodes do not know these ids, and all need the same records.
            directory_ids = {}
        self._records, omissions = to_kraft_records(image, directory_ids)
        self.omissions += omissions

    @property
    def log_dirs(self) -> dict[int, list[Path]]:
        """The new log directories of each node."""
        result: dict[int, list[Path]] = {}
        for copy in self._copies:
            result.setdefault(copy.node_id, []).append(copy.target)
        return result

    @property
    def topics(self) -> int:
        return sum(map(self._image.has_topic, self._image.topics))

    @property
    def logs(self) -> list[Path]:
        """The directories of partitions that will be copied."""
        return [
            copy.source.directory_of(partition)
            for copy in self._copies
            for partition in copy.partitions
        ]

    def run(self, *, link: bool, copied: Callable[[int], None]) -> None:
        """Copies everything; `copied` is called with the number of bytes of each segment file.

        With `link`, files of records that are never appended to again are hard links. Raises
        KafkaStorageError if something cannot be read or written.
        """
        try:
            self._run(link, copied)
        except OSError as error:
            raise KafkaStorageError(
                f"{error.filename or 'a file'} cannot be copied: {error.strerror}",
                remedy="remove the outputs, and export again when this is solved",
            ) from error

    def _run(self, link: bool, copied: Callable[[int], None]) -> None:
        for copy in self._copies:
            copy.target.mkdir(mode=0o700, parents=True, exist_ok=True)
            for partition in copy.partitions:
                self._copy_log(copy, partition, link, copied)
            for name in _CHECKPOINTS:
                if (copy.source.path / name).exists():
                    copy_file(copy.source.path / name, copy.target / name)
            if copy.has_metadata:
                self._write_metadata(copy.target)
            sync_directory(copy.target)
        disk = OsDisk()
        for copy in self._copies:
            store_clean_shutdown(disk, str(copy.target))
            owner = MetaProperties(1, self._image.cluster_id, copy.node_id, copy.directory_id)
            store_meta_properties(disk, str(copy.target), owner)

    def _plan_node(self, node: NodeContent, outputs: Sequence[Path]) -> Iterable[_LogDirCopy]:
        if len(outputs) != len(node.log_dirs):
            raise KafkaStorageError(
                f"node {node.node_id} has {len(node.log_dirs)} log directories, and "
                f"{len(outputs)} outputs are named",
                remedy="name one output for each directory of log.dirs, in their order",
            )
        known = node.partitions
        for log_dir, output in zip(node.log_dirs, outputs, strict=True):
            self._check_source(node, log_dir)
            _check_output(output, log_dir.path)
            self.omissions += (
                f"{log_dir.path / name}: not the log of a partition"
                for name in log_dir.other_directories
            )
            partitions = [
                partition
                for partition in log_dir.partitions
                if self._is_hosted(node.node_id, partition, log_dir)
            ]
            owner = log_dir.owner
            directory_id = None if owner is None else owner.directory_id
            yield _LogDirCopy(
                node.node_id,
                log_dir,
                output,
                directory_id or uuid4(),
                partitions,
                has_metadata=log_dir is node.log_dirs[0],
            )
        self.omissions += (
            f"{key} of node {node.node_id}: it has no log, and Kafka creates an empty one"
            for key in sorted(self._hosted_by(node.node_id) - known.keys())
        )

    def _check_source(self, node: NodeContent, log_dir: LogDirContent) -> None:
        owner = log_dir.owner
        if not log_dir.is_clean:
            raise KafkaStorageError(
                f"{log_dir.path} was not closed cleanly",
                remedy="start the broker and stop it with SIGTERM, then export again",
            )
        if owner is not None and owner.node_id not in (None, node.node_id):
            raise KafkaStorageError(
                f"{log_dir.path} belongs to node {owner.node_id}, not to node {node.node_id}",
                remedy=f"set node.id={owner.node_id}",
            )
        if owner is not None and owner.cluster_id not in (None, self._image.cluster_id):
            raise KafkaStorageError(
                f"{log_dir.path} belongs to cluster {owner.cluster_id}, the metadata to "
                f"{self._image.cluster_id}",
                remedy="name the metadata store of the same cluster",
            )

    def _is_hosted(self, node_id: int, key: TopicPartition, log_dir: LogDirContent) -> bool:
        if not self._image.has_topic(key.topic):
            if key.topic not in self._image.topics:
                self.omissions.append(f"{log_dir.directory_of(key)}: there is no such topic")
            return False
        assignment = self._image.topics[key.topic].assignments.get(key.partition)
        if assignment is None or node_id not in assignment.replicas:
            self.omissions.append(f"{log_dir.directory_of(key)}: node {node_id} is no replica")
            return False
        return True

    def _hosted_by(self, node_id: int) -> set[TopicPartition]:
        return {
            TopicPartition(topic.topic, number)
            for topic in self._image.topics.values()
            if self._image.has_topic(topic.topic)
            for number, assignment in topic.assignments.items()
            if node_id in assignment.replicas
        }

    def _copy_log(
        self,
        copy: _LogDirCopy,
        partition: TopicPartition,
        link: bool,
        copied: Callable[[int], None],
    ) -> None:
        source = copy.source.directory_of(partition)
        target = copy.target / str(partition)
        target.mkdir(mode=0o700)
        files = sorted(path for path in source.iterdir() if _is_copied(path.name))
        active = max((path.name for path in files if path.suffix == LOG_SUFFIX), default="")
        for path in files:
            is_closed = path.suffix == LOG_SUFFIX and path.name != active
            if link and is_closed:
                link_file(path, target / path.name)
            else:
                copy_file(path, target / path.name)
            if path.suffix == LOG_SUFFIX:
                copied(path.stat().st_size)
        if not (target / PARTITION_METADATA).exists():
            topic_id = self._image.topics[partition.topic].topic_id
            content = encode_partition_metadata(PartitionMetadata(0, topic_id))
            write_file(target / PARTITION_METADATA, [content])
        sync_directory(target)

    def _write_metadata(self, directory: Path) -> None:
        features: list[Message] = [
            record for record in self._records if isinstance(record, FeatureLevelRecord)
        ]
        write_file(directory / "bootstrap.checkpoint", build_snapshot(features, timestamp=0))
        (directory / DIRECTORY).mkdir(mode=0o700)
        snapshot = build_snapshot(self._records, timestamp=self._now_ms, epoch=_SNAPSHOT_EPOCH)
        name = snapshot_name(len(self._records), _SNAPSHOT_EPOCH)
        write_file(directory / DIRECTORY / name, snapshot)
        sync_directory(directory / DIRECTORY)


def _outputs_of(node: NodeContent, outputs: Sequence[Path], nodes: int) -> list[Path]:
    """Returns the outputs of one node: directories within them if there are several."""
    return [output if nodes == 1 else output / f"node-{node.node_id}" for output in outputs]


def _replica_ids(image: ClusterImage) -> set[int]:
    return {
        broker_id
        for topic in image.topics.values()
        for assignment in topic.assignments.values()
        for broker_id in assignment.replicas
    }


def _check_output(output: Path, log_dir: Path) -> None:
    if output.resolve().is_relative_to(log_dir.resolve()):
        raise KafkaStorageError(
            f"{output} is in the log directory {log_dir}", remedy="name a directory elsewhere"
        )
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise KafkaStorageError(
            f"{output} exists and is not empty", remedy="name a new directory, or remove it"
        )


def _is_copied(name: str) -> bool:
    """Whether a file of a log is copied: neither left over nor Penstock's own."""
    return not name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")) and not name.startswith(
        ".penstock"
    )
