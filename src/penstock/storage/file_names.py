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

DELETE_FOLDER_SUFFIX = "-delete"
FUTURE_FOLDER_SUFFIX = "-future"
STRAY_FOLDER_SUFFIX = "-stray"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of a KRaft controller, which may share a folder with partitions and is none of them."""

MAX_NAME = 255
"""Bytes that a file system allows for the name of a folder."""


def segment_path(folder: str, base_offset: int, kind: str, suffix: str = "") -> str:
    """Path of one file of a segment: `segment_path(d, 42, ".index", ".swap")`."""
    return f"{folder}/{base_offset:020d}{kind}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset that a file name starts with; None where it does not start with 20 digits."""
    digits, dot, _ = name.partition(".")
    if not dot or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def parse_partition_folder(name: str) -> TopicPartition | None:
    """`topic-3` as a partition; None for folders that are none, or are marked for deletion."""
    topic, dash, partition = name.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit()):
        return None
    found = TopicPartition(topic, int(partition))
    # Not `topic-03`: that partition's folder is another one.
    return found if str(found) == name and found.partition < 2**31 else None


def parse_future_folder(name: str) -> TopicPartition | None:
    """The partition whose future log is in a folder of this name; None for any other folder."""
    if not name.endswith(FUTURE_FOLDER_SUFFIX):
        return None
    folder, dot, _ = name.removesuffix(FUTURE_FOLDER_SUFFIX).rpartition(".")
    return parse_partition_folder(folder) if dot else None


def future_folder_name(partition: TopicPartition, unique: str) -> str:
    """What the folder of a partition is called while it is copied to another one of `log.dirs`."""
    return f"{partition}.{unique}{FUTURE_FOLDER_SUFFIX}"


def stray_folder_name(partition: TopicPartition, unique: str) -> str:
    """What the folder of a partition is called that does not belong to this broker."""
    return _with_suffix(partition, unique, STRAY_FOLDER_SUFFIX)


def deleted_folder_name(partition: TopicPartition, unique: str) -> str:
    """What the folder of a partition is called until it is removed; long topics are cut."""
    return _with_suffix(partition, unique, DELETE_FOLDER_SUFFIX)


def _with_suffix(partition: TopicPartition, unique: str, suffix: str) -> str:
    rest = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: MAX_NAME - len(rest)] + rest
