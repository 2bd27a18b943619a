"""The names of the files of a partition (S1): `00000000000000000042.log` and its companions."""

from penstock.core.ids import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

CLEANED_SUFFIX = ".cleaned"
"""Being written by compaction: worthless after a crash."""
SWAP_SUFFIX = ".swap"
"""Whole and durable, about to take its segment's place: a crash completes the swap."""
DELETED_SUFFIX = ".deleted"
"""Out of the log; removed for good after `file.delete.delay.ms`."""

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of a KRaft controller, which may share a log directory with partitions."""

MAX_NAME = 255
"""Bytes that a file system allows for the name of a directory."""


def segment_path(directory: str, base_offset: int, kind: str, suffix: str = "") -> str:
    """Path of one file of a segment: `segment_path(d, 42, ".index", ".swap")`."""
    return f"{directory}/{base_offset:020d}{kind}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset that a file name starts with; None where it does not start with 20 digits."""
    digits, dot, _ = name.partition(".")
    if not dot or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def parse_partition_directory(name: str) -> TopicPartition | None:
    """`topic-3` as a partition; None for directories that are none, or are marked for deletion."""
    topic, dash, partition = name.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit()):
        return None
    found = TopicPartition(topic, int(partition))
    # Not `topic-03`: that partition's directory is another one.
    return found if str(found) == name and found.partition < 2**31 else None


def parse_future_directory(name: str) -> TopicPartition | None:
    """Returns the partition whose future log has this directory name, or None."""
    if not name.endswith(FUTURE_DIRECTORY_SUFFIX):
        return None
    directory, dot, _ = name.removesuffix(FUTURE_DIRECTORY_SUFFIX).rpartition(".")
    return parse_partition_directory(directory) if dot else None


def future_directory_name(partition: TopicPartition, unique: str) -> str:
    """Returns the directory name of a partition's future log, which a move writes."""
    return f"{partition}.{unique}{FUTURE_DIRECTORY_SUFFIX}"


def stray_directory_name(partition: TopicPartition, unique: str) -> str:
    """What the directory of a partition is called that does not belong to this broker."""
    return _with_suffix(partition, unique, STRAY_DIRECTORY_SUFFIX)


def deleted_directory_name(partition: TopicPartition, unique: str) -> str:
    """What the directory of a partition is called until it is removed; long topics are cut."""
    return _with_suffix(partition, unique, DELETE_DIRECTORY_SUFFIX)


def _with_suffix(partition: TopicPartition, unique: str, suffix: str) -> str:
    rest = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: MAX_NAME - len(rest)] + rest
