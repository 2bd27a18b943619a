"""What commands print: tables for people, JSON for programs, progress on long work.

Results go to standard output, everything else to standard error. Colours and progress bars are for
terminals only; a table that goes into a pipe or a file is plain, one line for each row, never cut.
"""

import json
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import NoReturn
from unicodedata import east_asian_width
from uuid import UUID

from penstock.core.errors import KafkaError

_GAP = "  "


class UsageError(Exception):
    """A command was called in a way that makes no sense; its text says what to do. Exit code 2."""


class Marked:
    """A value that stands out on a terminal: `style` is one of rich's, such as `red`."""

    def __init__(self, value: object, style: str) -> None:
        self.value = value
        self.style = style


class Output:
    """Where a command puts its results. With `as_json`, one JSON document and no tables."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str | None = None,
        document: object = None,
        empty: str = "nothing to show",
    ) -> None:
        """Rows under their columns; numbers to the right, None as a dash.

        As JSON it is a list of objects with the columns' names (lower case, _ for spaces), or
        `document` where that says it better. `empty` is said to people when there are no rows.
        """
        listed = [list(row) for row in rows]
        if self.as_json:
            names = [column.lower().replace(" ", "_").replace("-", "_") for column in columns]
            self.document(
                [dict(zip(names, row, strict=True)) for row in listed]
                if document is None
                else document
            )
            return
        if not listed:
            self.note(empty)
            return
        heads = [column.upper() for column in columns]
        rights = [_is_number([row[index] for row in listed]) for index in range(len(columns))]
        if sys.stdout.isatty():
            _print_rich(title, heads, rights, listed)
            return
        if title is not None:
            print(title)
        print("\n".join(text_table(heads, rights, listed)))

    def fields(self, fields: Mapping[str, object], *, document: object = None) -> None:
        """Names and values, one to a line."""
        if self.as_json:
            self.document(dict(fields) if document is None else document)
            return
        width = max(map(len, fields), default=0)
        for name, value in fields.items():
            print(f"{name + ':':<{width + 1}} {shown(value)}")

    def document(self, value: object) -> None:
        """A JSON document, indented on a terminal."""
        indent = 2 if sys.stdout.isatty() else None
        print(json.dumps(plain(value), ensure_ascii=False, indent=indent))

    def line(self, text: str) -> None:
        """A line of the result, for people only: with JSON the document says it."""
        if not self.as_json:
            print(text)

    def done(self, text: str, document: object = None) -> None:
        """Say what was done; as JSON `document`, or nothing."""
        if not self.as_json:
            print(text)
        elif document is not None:
            self.document(document)

    def note(self, text: str) -> None:
        """Something beside the result, on standard error."""
        if not self.as_json:
            print(text, file=sys.stderr)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A progress bar on a terminal, nothing elsewhere. Gives a function to call with steps."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda steps: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        console = Console(stderr=True)
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda steps: bar.advance(task, steps)


def _print_rich(
    title: str | None, heads: list[str], rights: list[bool], rows: list[list[object]]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    for head, right in zip(heads, rights, strict=True):
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for row in rows:
        styles = [each.style if isinstance(each, Marked) else "" for each in row]
        table.add_row(*(Text(shown(each), style) for each, style in zip(row, styles, strict=True)))
    Console(highlight=False).print(table)


def text_table(
    heads: Sequence[str], rights: Sequence[bool], rows: Iterable[Sequence[object]]
) -> list[str]:
    """The lines of a table without lines and colours, as it goes into a pipe."""
    cells = [list(heads), *([shown(each) for each in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = []
        for text, width, right in zip(row, widths, rights, strict=True):
            blanks = " " * (width - _width(text))
            padded.append(blanks + text if right else text + blanks)
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _width(text: str) -> int:
    """Columns on a terminal: some letters take two."""
    if text.isascii():
        return len(text)
    return len(text) + sum(east_asian_width(letter) in "WF" for letter in text)


def _is_number(values: Sequence[object]) -> bool:
    bare = [each.value if isinstance(each, Marked) else each for each in values]
    numbers = [each for each in bare if each is not None]
    return bool(numbers) and all(
        isinstance(each, int | float) and not isinstance(each, bool | Enum) for each in numbers
    )


def kafka_id(value: UUID) -> str:
    """An id as Kafka writes it: 22 letters."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def shown(value: object) -> str:
    """A value as people read it."""
    if isinstance(value, Marked):
        return shown(value.value)
    if isinstance(value, UUID):
        return kafka_id(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value) if isinstance(value.value, str) else value.name.lower()
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 100 else f"{value:.3g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple | set | frozenset) and type(value).__str__ is object.__str__:
        return ",".join(shown(each) for each in value) or "-"
    return _escaped(str(value))


def _escaped(text: str) -> str:
    """Names come from others: what would move the cursor or break a row is shown by its code."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def plain(value: object) -> object:
    """A value as JSON has it: named tuples as objects, bytes as text, enums by name."""
    if isinstance(value, Marked):
        return plain(value.value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, UUID):
        return kafka_id(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, KafkaError):
        return {"error": value.code.name, "message": value.message}
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    as_dict = getattr(value, "_asdict", None)
    if as_dict is not None:
        return {name: plain(each) for name, each in as_dict().items()}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return str(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(plain(key) if isinstance(key, Enum) else key)


def moment(timestamp_ms: int) -> datetime | None:
    """A Kafka timestamp as a time; None for -1."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def fail(text: str, *, code: str = "FAILED", as_json: bool = False, status: int = 1) -> NoReturn:
    """End the program with an error on standard error."""
    if as_json:
        print(json.dumps({"error": code, "message": text}, ensure_ascii=False), file=sys.stderr)
    elif code in ("FAILED", "USAGE", "NOT_CONFIRMED"):
        print(f"penstock: {text}", file=sys.stderr)
    else:
        print(f"penstock: {text} ({code})", file=sys.stderr)
    raise SystemExit(status)


def fail_many(
    reasons: Mapping[str, tuple[str, str]], done: Sequence[str], *, as_json: bool = False
) -> NoReturn:
    """End the program with the codes and texts of what failed; `done` is what went well."""
    if as_json:
        code, message = next(iter(reasons.values()))
        each = {item: {"error": code, "message": text} for item, (code, text) in reasons.items()}
        found = {"error": code, "message": message, "errors": each, "done": list(done)}
        print(json.dumps(found, ensure_ascii=False), file=sys.stderr)
    else:
        for code, text in reasons.values():
            print(f"penstock: {text} ({code})", file=sys.stderr)
        if done:
            print(f"penstock: went well: {', '.join(done)}", file=sys.stderr)
    raise SystemExit(1)
