"""The kinds of files are recognised by their names (S1)."""

import pytest

from penstock.cli.dump.names import FileName, FileType, parse_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000042.log", FileName(FileType.LOG, 42, "")),
        ("00000000000000000042.index", FileName(FileType.OFFSET_INDEX, 42, "")),
        ("00000000000000000042.timeindex", FileName(FileType.TIME_INDEX, 42, "")),
        ("00000000000000000042.txnindex", FileName(FileType.TXN_INDEX, 42, "")),
        ("00000000000000000042.snapshot", FileName(FileType.SNAPSHOT, 42, "")),
        ("00000000000000000007.log.cleaned", FileName(FileType.LOG, 7, ".cleaned")),
        ("00000000000000000007.index.swap", FileName(FileType.OFFSET_INDEX, 7, ".swap")),
        ("00000000000000000007.log.deleted", FileName(FileType.LOG, 7, ".deleted")),
        ("00000000000000000007.snapshot.deleted", FileName(FileType.SNAPSHOT, 7, ".deleted")),
        ("leader-epoch-checkpoint", FileName(FileType.LEADER_EPOCHS, 0, "")),
        ("recovery-point-offset-checkpoint", FileName(FileType.OFFSETS, 0, "")),
        ("replication-offset-checkpoint", FileName(FileType.OFFSETS, 0, "")),
        ("log-start-offset-checkpoint", FileName(FileType.OFFSETS, 0, "")),
        ("cleaner-offset-checkpoint", FileName(FileType.OFFSETS, 0, "")),
        ("partition.metadata", FileName(FileType.PARTITION_METADATA, 0, "")),
        ("meta.properties", FileName(FileType.META_PROPERTIES, 0, "")),
        (".kafka_cleanshutdown", FileName(FileType.CLEAN_SHUTDOWN, 0, "")),
    ],
)
def test_every_file_of_a_log_is_known(name: str, expected: FileName) -> None:
    assert parse_name(name) == expected


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "42.log", "0000000000000000004x.log", "00000000000000000042.tmp", ".lock", ""],
)
def test_other_files_are_not(name: str) -> None:
    assert parse_name(name) is None
