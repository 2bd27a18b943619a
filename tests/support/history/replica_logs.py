"""Compares the logs of all replicas of stopped brokers: the same batches, byte by byte.

Where segments begin may differ: a follower rolls a segment before what it has fetched at once, the
leader before a batch. So the segment files are compared as one sequence of bytes.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

_BATCH_HEAD = struct.Struct(">qi")
"""Base offset, length of the rest."""

Batches = dict[int, bytes]
"""Batches by base offset."""


def read_batches(directory: Path) -> Batches:
    """Returns the batches of a partition's directory."""
    batches: Batches = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + _BATCH_HEAD.size <= len(data):
            base_offset, length = _BATCH_HEAD.unpack_from(data, position)
            end = position + _BATCH_HEAD.size + length
            batches[base_offset] = data[position:end]
            position = end
    return batches


def damage_of(directory: Path) -> str:
    """Returns what the segment files have besides whole batches in the order of their offsets."""
    next_offset = -1
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position < len(data):
            if position + _BATCH_HEAD.size > len(data):
                return f"{path} ends within a batch"
            base_offset, length = _BATCH_HEAD.unpack_from(data, position)
            position += _BATCH_HEAD.size + length
            if position > len(data) or base_offset < max(next_offset, int(path.stem)):
                return f"{path} has no batch of {length} bytes at offset {base_offset}"
            next_offset = base_offset + 1
    return ""


def differences(
    directories: Mapping[int, Path], partitions: Sequence[str], *, is_in_sync: bool = True
) -> list[str]:
    """Returns where the log directories of brokers differ, for partitions such as `topic-0`.

    Unless they are in sync, a replica may have fewer batches, but no other ones.
    """
    result: list[str] = []
    for partition in partitions:
        result += filter(None, (damage_of(path / partition) for path in directories.values()))
        logs = {number: read_batches(path / partition) for number, path in directories.items()}
        first_id, first = next(iter(logs.items()))
        for broker_id, log in logs.items():
            compared = first.keys() | log.keys() if is_in_sync else first.keys() & log.keys()
            offsets = [o for o in sorted(compared) if first.get(o) != log.get(o)]
            if offsets:
                result.append(
                    f"{partition}: brokers {first_id} and {broker_id} differ at {offsets[:5]} "
                    f"({len(offsets)} batches)"
                )
    return result


def partitions_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())
