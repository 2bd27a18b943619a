"""The kinds of files of a log, by their names."""

from enum import Enum
from typing import NamedTuple

from penstock.storage.checkpoint.checkpoint_files import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from penstock.storage.checkpoint.leader_epoch_cache import LEADER_EPOCH_CHECKPOINT
from penstock.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
)


class FileType(Enum):
    """The kinds of file that can be dumped."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    OFFSETS = "offset-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    META_PROPERTIES = "meta.properties"
    CLEAN_SHUTDOWN = "clean-shutdown"

    @property
    def is_index(self) -> bool:
        return self in (FileType.OFFSET_INDEX, FileType.TIME_INDEX, FileType.TXN_INDEX)


class FileName(NamedTuple):
    """The parts of a file name."""

    type: FileType
    base_offset: int
    """The offset that the name starts with; 0 if it has none."""
    suffix: str
    """The suffix: `.cleaned`, `.swap`, `.deleted` or nothing."""


_BY_KIND = {
    LOG_SUFFIX: FileType.LOG,
    INDEX_SUFFIX: FileType.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileType.TIME_INDEX,
    TXN_INDEX_SUFFIX: FileType.TXN_INDEX,
    SNAPSHOT_SUFFIX: FileType.SNAPSHOT,
}

_BY_NAME = {
    LEADER_EPOCH_CHECKPOINT: FileType.LEADER_EPOCHS,
    RECOVERY_POINT_CHECKPOINT: FileType.OFFSETS,
    REPLICATION_OFFSET_CHECKPOINT: FileType.OFFSETS,
    LOG_START_OFFSET_CHECKPOINT: FileType.OFFSETS,
    CLEANER_OFFSET_CHECKPOINT: FileType.OFFSETS,
    PARTITION_METADATA: FileType.PARTITION_METADATA,
    META_PROPERTIES: FileType.META_PROPERTIES,
    CLEAN_SHUTDOWN_MARKER: FileType.CLEAN_SHUTDOWN,
}

KNOWN_NAMES = (*(f"<20 digits>{kind}" for kind in _BY_KIND), *_BY_NAME)
"""The possible names, for errors."""


def parse_name(name: str) -> FileName | None:
    """Returns the parts of a name; None if it is not a file of a log."""
    if name in _BY_NAME:
        return FileName(_BY_NAME[name], 0, "")
    base_offset = base_offset_of(name)
    if base_offset is None:
        return None
    suffix = ""
    rest = name[20:]
    for end in (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX):
        if rest.endswith(end):
            rest, suffix = rest.removesuffix(end), end
    kind = _BY_KIND.get(rest)
    return None if kind is None else FileName(kind, base_offset, suffix)
