"""The names of a partition's files and directories (S1)."""

import pytest

from penstock.core.ids import TopicPartition
from penstock.storage.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    base_offset_of,
    deleted_directory_name,
    parse_partition_directory,
    segment_path,
)


def test_a_segment_is_named_by_its_base_offset_in_20_digits() -> None:
    assert segment_path("/d/t-0", 0, LOG_SUFFIX) == "/d/t-0/00000000000000000000.log"
    assert segment_path("/d", 42, INDEX_SUFFIX, SWAP_SUFFIX) == "/d/00000000000000000042.index.swap"
    assert segment_path("/d", 2**63 - 1, LOG_SUFFIX) == "/d/09223372036854775807.log"


def test_the_files_of_a_segment() -> None:
    assert SEGMENT_SUFFIXES == (".log", ".index", ".timeindex", ".txnindex")


@pytest.mark.parametrize("kind", [*SEGMENT_SUFFIXES, ".snapshot", ".log.deleted", ".index.swap"])
def test_the_base_offset_is_read_back(kind: str) -> None:
    assert base_offset_of(f"00000000000000012345{kind}") == 12345


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "00000000000000000000",
        "0.log",
        "000000000000000000000.log",
        "0000000000000000000x.log",
        "-0000000000000000001.log",
        "0000000000000000000².log",
        ".log",
        "",
    ],
)
def test_names_without_an_offset(name: str) -> None:
    assert base_offset_of(name) is None


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("orders-17", TopicPartition("orders", 17)),
        ("with-dash.and_more-3", TopicPartition("with-dash.and_more", 3)),
        ("-1-0", TopicPartition("-1", 0)),
        ("t--0", TopicPartition("t-", 0)),
        ("t-2147483647", TopicPartition("t", 2**31 - 1)),
    ],
)
def test_the_directory_of_a_partition(name: str, partition: TopicPartition) -> None:
    assert parse_partition_directory(name) == partition
    assert str(partition) == name


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "-0",
        "orders-",
        "orders-x",
        "orders-1x",
        "orders-²",
        "orders-0.e2a5f1-delete",
        "orders-0.e2a5f1-future",
        "orders-0.e2a5f1-stray",
        "lost+found",
        "",
    ],
)
def test_directories_that_are_not_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize("name", ["orders-00", "orders-007", "orders-2147483648"])
def test_a_directory_that_no_partition_would_be_given_is_none(name: str) -> None:
    """If `orders-00` counted as partition 0, it would be opened as the directory `orders-0`."""
    assert parse_partition_directory(name) is None


def test_the_directory_of_a_deleted_partition() -> None:
    """Kafka's format, shortened to what the file system allows; never taken for a partition."""
    name = deleted_directory_name(TopicPartition("orders", 3), "0" * 32)
    assert name == f"orders-3.{'0' * 32}-delete"
    assert parse_partition_directory(name) is None
    longest = deleted_directory_name(TopicPartition("t" * 249, 1234), "0" * 32)
    assert len(longest) == 255
    assert longest.endswith(f"t-1234.{'0' * 32}-delete")
