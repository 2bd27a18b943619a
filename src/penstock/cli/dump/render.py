"""Formats items as lines: as text like Kafka's DumpLogSegments, or as JSON."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from penstock.cli.dump.items import ERROR, FILE, NOTE, PROBLEM, RECORD, SUMMARY, Item, Value
from penstock.cli.output import escape

Style = Callable[[str, str], str]
"""Returns a text in the style of a role: `name`, `problem`, `note` or `file`."""

_PREFIXES = {RECORD: "| ", SUMMARY: "= "}
_TIMESTAMPS = ("timestamp", "maxTimestamp")


def plain(text: str, role: str) -> str:
    """Returns the text without colour."""
    return text


def to_json(path: str, item: Item) -> str:
    """Returns one JSON object: `file`, `kind`, then the fields.

    Keys and values of records are strings where they are UTF-8, else `{"base64": "…"}`.
    """
    return _JSON.encode({"file": path, "kind": item.kind, **item.fields})


def _json_bytes(value: object) -> object:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} is not a value of a dump")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


_JSON = json.JSONEncoder(default=_json_bytes, separators=(",", ":"))


def to_text(path: str, item: Item, style: Style = plain) -> str:
    """Returns one line of text, with control characters escaped."""
    fields = item.fields
    if item.kind == FILE:
        more = " ".join(_pairs({name: fields[name] for name in fields if name != "type"}, style))
        return f"{style(f'Dumping {escape(path)}', 'file')} {more}"
    if item.kind == NOTE:
        return style(f"# {_text(fields['note'])}", "note")
    if item.kind in (PROBLEM, ERROR):
        reason = _text(fields[item.kind])
        where = {name: value for name, value in fields.items() if name != item.kind}
        return style(" ".join([f"! {reason}", *_pairs(where, plain)]), "problem")
    return _PREFIXES.get(item.kind, "") + " ".join(_pairs(fields, style))


def _pairs(fields: Mapping[str, Value], style: Style) -> Iterator[str]:
    labels = _labels(style)
    timestamp_type = ""
    for name, value in fields.items():
        if name == "timestampType":
            # Kafka's name for a timestamp is the name of its type.
            timestamp_type = str(value)
        elif name in _TIMESTAMPS and timestamp_type:
            yield labels[timestamp_type] + _text(value)
        elif value is not None or name not in ("key", "payload"):
            yield labels[name] + _text(value)


class _Labels(dict[str, str]):
    """A cache of names with a colon in their style, because every line of a dump has them."""

    def __init__(self, style: Style) -> None:
        self._style = style

    def __missing__(self, name: str) -> str:
        label = self[name] = self._style(f"{name}:", "name") + " "
        return label


_labels = cache(_Labels)


def _text(value: Value) -> str:
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, bytes):
        return escape(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return _JSON.encode(value)
    if isinstance(value, Sequence):
        return f"[{','.join([_text(element) for element in value])}]"
    return "none"
