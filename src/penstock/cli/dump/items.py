"""The items of a dump, each with a kind and with fields under Kafka's names."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "bool | int | str | bytes | Sequence[Value] | Mapping[str, Value] | None"
"""The value of a field. `bytes` are data of users, which may be text or not."""

FILE = "file"
BATCH = "batch"
RECORD = "record"
ENTRY = "entry"
SUMMARY = "summary"
NOTE = "note"
PROBLEM = "problem"
ERROR = "error"


class Item(NamedTuple):
    """A batch, a record, an index entry, a problem …"""

    kind: str
    fields: Mapping[str, Value]


def note(text: str) -> Item:
    """Returns an item with information that is not a problem."""
    return Item(NOTE, {"note": text})


def problem(reason: str, **where: int) -> Item:
    """Returns a problem in the content of a file: the dump continues, and exits with 1."""
    return Item(PROBLEM, {"problem": reason, **where})


def error(reason: str) -> Item:
    """Returns the error of a file that cannot be dumped: the dump exits with 2."""
    return Item(ERROR, {"error": reason})
