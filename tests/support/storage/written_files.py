"""Directories of logs as files: copied to be changed, and compared byte for byte."""

import shutil
from pathlib import Path

from penstock.core.ids import TopicPartition
from penstock.storage.producer.append_info import ProducerStateEntry
from penstock.storage.producer.snapshot import decode_snapshot

Files = dict[str, bytes]


def copy_of(directory: Path, target: Path, *partitions: TopicPartition) -> Path:
    """A `log.dirs` directory to be changed, with these partitions or all."""
    copied = target / "copied"
    names = {str(where) for where in partitions}

    def unwanted(where: str, found: list[str]) -> list[str]:
        if Path(where) != directory:
            return []
        return [
            name
            for name in found
            if name in (".lock", "__cluster_metadata-0")
            or (names and name not in names and (directory / name).is_dir())
        ]

    shutil.copytree(directory, copied, ignore=unwanted)
    return copied


def files_in(directory: Path) -> Files:
    """What is in the directory of a partition, without its identity and what is about to go."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name != "partition.metadata" and not path.name.endswith(".deleted")
    }


def epochs_in(files: Files) -> list[tuple[int, int]]:
    """The leader epochs and start offsets in `leader-epoch-checkpoint`."""
    lines = files.get("leader-epoch-checkpoint", b"").decode().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]


def producers_in(snapshot: bytes) -> dict[int, ProducerStateEntry]:
    return {entry.producer_id: entry for entry in decode_snapshot(snapshot)}


def same_files(ours: Files, theirs: Files) -> None:
    """The same names, and the same bytes in each.

    The producers in a snapshot come in the order of a hash map of Java's, which depends on its
    size and its history: they are compared as a set, and so is the length of the file.
    """
    assert sorted(ours) == sorted(theirs)
    for name, data in ours.items():
        if name.endswith(".snapshot"):
            assert producers_in(data) == producers_in(theirs[name]), name
            assert len(data) == len(theirs[name]), name
        else:
            assert data == theirs[name], name
