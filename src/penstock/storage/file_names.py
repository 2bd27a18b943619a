"""The names of a partition's files and directories (S1): `00000000000000000042.log` and so on."""

from penstock.core.ids import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

CLEANED_SUFFIX = ".cleaned"
"""Being written by compaction; a start after a crash removes the file."""
SWAP_SUFFIX = ".swap"
"""Complete and durable, about to replace its segment; a start after a crash completes the swap."""
DELETED_SUFFIX = ".deleted"
"""No longer part of the log; the file is removed after `file.delete.delay.ms`."""

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of a KRaft controller, which may share a log directory with partitions."""

MAX_NAME_BYTES = 255
"""The longest directory name that a file system allows."""


def segment_path(directory: str, base_offset: int, kind: str, suffix: str = "") -> str:
    """Returns the path of one file of a segment: `segment_path(d, 42, ".index", ".swap")`."""
    return f"{directory}/{base_offset:020d}{kind}{suffix}"


def base_offset_of(name: str) -> int | None:
    """Returns the offset that a file name starts with; None if it does not have 20 digits."""
    digits, dot, _ = name.partition(".")
    if not dot or len(digits) != 20 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Returns the partition of a directory named `topic-3`; None for any other name."""
    topic, dash, number = name.rpartition("-")
    if not (topic and dash and number.isascii() and number.isdigit()):
        return None
    partition = TopicPartition(topic, int(number))
    # Not `topic-03`: the directory of partition 3 has another name.
    return partition if str(partition) == name and partition.partition < 2**31 else None


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
    """Returns the new name for the directory of a partition that this broker does not host."""
    return _with_suffix(partition, unique, STRAY_DIRECTORY_SUFFIX)


def deleted_directory_name(partition: TopicPartition, unique: str) -> str:
    """Returns the name that a deleted partition's directory has until it is removed."""
    return _with_suffix(partition, unique, DELETE_DIRECTORY_SUFFIX)


def _with_suffix(partition: TopicPartition, unique: str, suffix: str) -> str:
    # Long topic names are shortened to fit.
    rest = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: MAX_NAME_BYTES - len(rest)] + rest


def broker_directory_name(broker_id: int) -> str:
    """Returns the log directory of a broker within that of the first broker of its machine.

    It has no hyphen, so that it is not the name of a partition's directory.
    """
    return f"broker.{broker_id}"


def is_broker_directory(name: str) -> bool:
    """Whether it is the log directory of another broker of this machine."""
    prefix, _, broker_id = name.partition(".")
    return prefix == "broker" and broker_id.isdecimal()
