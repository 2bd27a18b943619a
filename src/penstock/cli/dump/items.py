"""What a dump is made of: items, each of a kind and with fields under Kafka's own names."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "bool | int | str | bytes | Sequence[Value] | Mapping[str, Value] | None"
"""What a field holds. `bytes` are data of a user's: text or not, nobody knows."""

FILE = "file"
BATCH = "batch"
RECORD = "record"
ENTRY = "entry"
SUMMARY = "summary"
NOTE = "note"
PROBLEM = "problem"
ERROR = "error"


class Item(NamedTuple):
    """One thing found: a batch, a record, an index entry, something wrong …"""

    kind: str
    fields: Mapping[str, Value]


def note(text: str) -> Item:
    """Something to know that is not wrong."""
    return Item(NOTE, {"note": text})


def problem(reason: str, **where: int) -> Item:
    """Something wrong with the content of a file: the dump goes on, and ends with exit code 1."""
    return Item(PROBLEM, {"problem": reason, **where})


def error(reason: str) -> Item:
    """A file that cannot be dumped at all: the dump ends with exit code 2."""
    return Item(ERROR, {"error": reason})
