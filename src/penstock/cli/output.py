"""Output of commands: tables for people, JSON for programs, progress bars for long operations.

Results go to standard output, everything else to standard error. Colours and progress bars appear
only on a terminal; in a pipe or a file a table is plain text with one untruncated line per row.
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

from penstock.core.errors import KafkaError, StructuredError

_GAP = "  "


class UsageError(StructuredError):
    """A command was called with wrong arguments. Exit code 2."""


class Marked:
    """A value that is highlighted on a terminal; `style` is a style of rich, such as `red`."""

    def __init__(self, value: object, style: str) -> None:
        self.value = value
        self.style = style


class Output:
    """The output of a command. With `as_json` it is one JSON document instead of tables."""

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
        """Prints rows under their columns; numbers are right-aligned, None is a dash.

        As JSON it is a list of objects with the columns' names (lower case, _ for spaces), or
        `document` if it is given. `empty` is printed for people if there are no rows.
        """
        cells = [list(row) for row in rows]
        if self.as_json:
            names = [column.lower().replace(" ", "_").replace("-", "_") for column in columns]
            self.document(
                [dict(zip(names, row, strict=True)) for row in cells]
                if document is None
                else document
            )
            return
        if not cells:
            self.note(empty)
            return
        heads = [column.upper() for column in columns]
        rights = [_is_number([row[index] for row in cells]) for index in range(len(columns))]
        if sys.stdout.isatty():
            _print_rich(title, heads, rights, cells)
            return
        if title is not None:
            print(title)
        print("\n".join(text_table(heads, rights, cells)))

    def fields(self, fields: Mapping[str, object], *, document: object = None) -> None:
        """Prints names and values, one per line."""
        if self.as_json:
            self.document(dict(fields) if document is None else document)
            return
        width = max(map(len, fields), default=0)
        for name, value in fields.items():
            print(f"{name + ':':<{width + 1}} {shown(value)}")

    def document(self, value: object) -> None:
        """Prints a JSON document, indented on a terminal."""
        indent = 2 if sys.stdout.isatty() else None
        print(json.dumps(plain(value), ensure_ascii=False, indent=indent))

    def line(self, text: str) -> None:
        """Prints a line of the result, for people only."""
        if not self.as_json:
            print(text)

    def done(self, text: str | Iterable[str], document: object = None) -> None:
        """Prints what was done, in one line or several; as JSON, `document` if it is given."""
        if not self.as_json:
            for line in [text] if isinstance(text, str) else text:
                print(line)
        elif document is not None:
            self.document(document)

    def note(self, text: str) -> None:
        """Prints a remark on standard error, for people only."""
        if not self.as_json:
            print(text, file=sys.stderr)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Shows a progress bar on a terminal. Yields a function that advances it by some steps."""
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
        styles = [cell.style if isinstance(cell, Marked) else "" for cell in row]
        table.add_row(*(Text(shown(cell), style) for cell, style in zip(row, styles, strict=True)))
    Console(highlight=False).print(table)


def text_table(
    heads: Sequence[str], rights: Sequence[bool], rows: Iterable[Sequence[object]]
) -> list[str]:
    """Returns the lines of a table in plain text."""
    cells = [list(heads), *([shown(cell) for cell in row] for row in rows)]
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
    """Returns the width on a terminal, where some letters take two columns."""
    if text.isascii():
        return len(text)
    return len(text) + sum(east_asian_width(letter) in "WF" for letter in text)


def _is_number(values: Sequence[object]) -> bool:
    bare = [value.value if isinstance(value, Marked) else value for value in values]
    numbers = [value for value in bare if value is not None]
    return bool(numbers) and all(
        isinstance(number, int | float) and not isinstance(number, bool | Enum)
        for number in numbers
    )


def kafka_id(value: UUID) -> str:
    """Returns an id in Kafka's notation, 22 characters."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def shown(value: object) -> str:
    """Returns a value as text for people."""
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
        return ",".join(shown(element) for element in value) or "-"
    return escape(str(value))


def escape(text: str) -> str:
    """Escapes unprintable characters, because names from a cluster could move the cursor."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def plain(value: object) -> object:
    """Returns a value as JSON: named tuples as objects, bytes as text, enums by name."""
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
        return {_key(key): plain(element) for key, element in value.items()}
    as_dict = getattr(value, "_asdict", None)
    if as_dict is not None:
        return {name: plain(element) for name, element in as_dict().items()}
    if isinstance(value, Iterable):
        return [plain(element) for element in value]
    return str(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(plain(key) if isinstance(key, Enum) else key)


def moment(timestamp_ms: int) -> datetime | None:
    """Returns a Kafka timestamp as a datetime; None for -1."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def fail(text: str, *, code: str = "FAILED", as_json: bool = False, status: int = 1) -> NoReturn:
    """Ends the program with an error on standard error."""
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
    """Ends the program with the code and text of each failure; `done` lists what succeeded."""
    if as_json:
        code, message = next(iter(reasons.values()))
        errors = {
            subject: {"error": code, "message": text} for subject, (code, text) in reasons.items()
        }
        document = {"error": code, "message": message, "errors": errors, "done": list(done)}
        print(json.dumps(document, ensure_ascii=False), file=sys.stderr)
    else:
        for code, text in reasons.values():
            print(f"penstock: {text} ({code})", file=sys.stderr)
        if done:
            print(f"penstock: succeeded: {', '.join(done)}", file=sys.stderr)
    raise SystemExit(1)
