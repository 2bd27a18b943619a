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

    def unwanted(where: str, result: list[str]) -> list[str]:
        if Path(where) != directory:
            return []
        return [
            name
            for name in result
            if name in (".lock", "__cluster_metadata-0")
            or (names and name not in names and (directory / name).is_dir())
        ]

    shutil.copytree(directory, copied, ignore=unwanted)
    return copied


def files_in(directory: Path) -> Files:
    """Returns the files of a partition, without its identity and files to be removed."""
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
    """Compares the names and the bytes of the files.

    The producers in a snapshot are in the order of a Java hash map, which depends on its size and
    history: they are compared as a set, together with the length of the file.
    """
    assert sorted(ours) == sorted(theirs)
    for name, data in ours.items():
        if name.endswith(".snapshot"):
            assert producers_in(data) == producers_in(theirs[name]), name
            assert len(data) == len(theirs[name]), name
        else:
            assert data == theirs[name], name
