"""The JSON files of Kafka's scripts: partitions, offsets, moves.

    {"partitions": [{"topic": "orders", "partition": 0, "offset": 42}]}

Every function takes a path, `-` for standard input, and raises UsageError with the file and the
entry for invalid content.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.cli.output import UsageError
from penstock.core.ids import TopicPartition

ANY_DIR = "any"
"""The log directory in a move that leaves the choice to the broker."""


class Move(NamedTuple):
    """The new replicas of a partition: brokers, and the log directory on each, or `any`."""

    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]


def read_text(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(str(error.strerror), subject=str(path)) from None
    except UnicodeDecodeError:
        raise UsageError("it is not UTF-8 text", subject=str(path)) from None


def partitions_in(path: Path) -> list[TopicPartition]:
    """Returns the partitions in a file."""
    return [_Entry(path, entry).partition() for entry in _entries(path, "partitions")]


def offsets_in(path: Path) -> dict[TopicPartition, int]:
    """Reads the file of kafka-delete-records.sh: an offset for each partition."""
    return {partition: entry.number("offset") for partition, entry in _by_partition(path).items()}


def topics_in(path: Path) -> list[str]:
    """Reads the file of kafka-reassign-partitions.sh --generate: the topics to move."""
    return [_Entry(path, entry).text("topic") for entry in _entries(path, "topics")]


def moves_in(path: Path) -> dict[TopicPartition, Move]:
    """Reads the file of kafka-reassign-partitions.sh: the brokers of each partition."""
    moves: dict[TopicPartition, Move] = {}
    for partition, entry in _by_partition(path).items():
        replicas = tuple(entry.numbers("replicas"))
        if len(set(replicas)) < len(replicas):
            raise UsageError(
                f"{partition}: each replica needs a broker of its own", subject=str(path)
            )
        dirs = entry.texts("log_dirs") or [ANY_DIR] * len(replicas)
        if len(dirs) != len(replicas):
            raise UsageError(
                f"{partition}: log_dirs needs one for each of its replicas", subject=str(path)
            )
        moves[partition] = Move(replicas, tuple(dirs))
    return moves


def moves_document(moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """Returns the document that `moves_in` reads."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "replicas": list(replicas),
                "log_dirs": [ANY_DIR] * len(replicas),
            }
            for move, replicas in sorted(moves.items())
        ],
    }


class _Entry:
    """An object of a list in a file, with checks of its members."""

    def __init__(self, path: Path, value: object) -> None:
        if not isinstance(value, dict):
            raise UsageError(f"{json.dumps(value)} is not an object", subject=str(path))
        self._path = path
        self._value: dict[str, object] = value

    def partition(self) -> TopicPartition:
        return TopicPartition(self.text("topic"), self.number("partition"))

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if isinstance(value, str):
            return value
        raise self._invalid(name, "text")

    def number(self, name: str) -> int:
        value = self._value.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self._invalid(name, "a whole number")

    def numbers(self, name: str) -> list[int]:
        value = self._value.get(name)
        if isinstance(value, list) and value and all(type(number) is int for number in value):
            return value
        raise self._invalid(name, "a list of whole numbers")

    def texts(self, name: str) -> list[str]:
        """Returns a list of texts; an empty one if it is missing."""
        value = self._value.get(name, [])
        if isinstance(value, list) and all(isinstance(text, str) for text in value):
            return value
        raise self._invalid(name, "a list of texts")

    def _invalid(self, name: str, kind: str) -> UsageError:
        return UsageError(
            f'{json.dumps(self._value)} needs "{name}", {kind}', subject=str(self._path)
        )


def _by_partition(path: Path) -> dict[TopicPartition, _Entry]:
    entries: dict[TopicPartition, _Entry] = {}
    for value in _entries(path, "partitions"):
        entry = _Entry(path, value)
        partition = entry.partition()
        if partition in entries:
            raise UsageError(f"it names {partition} twice", subject=str(path))
        entries[partition] = entry
    return entries


def _entries(path: Path, name: str) -> list[object]:
    text = read_text(path)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"it is not JSON: {error}", subject=str(path)) from None
    entries = document.get(name) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f'it must be an object with a list "{name}"', subject=str(path))
    return entries
