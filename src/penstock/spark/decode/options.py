"""Options of a source that concern its format; all others are those of the data source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import Format, SourceSpec

Tombstones: TypeAlias = Literal["dead-letter", "keep", "skip"]
Wire: TypeAlias = Literal["plain", "confluent"]

EPOCHS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
"""What a number stands for where a timestamp is expected, in microseconds."""

_ESCAPES = {"t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
"""What Spark reads behind a backslash in CSV's `sep`."""
_BOOLEAN = ("true", "false")
_TOMBSTONES = ("dead-letter", "keep", "skip")
_WIRES = ("plain", "confluent")
_ANY: tuple[str, ...] = ()

_TEXT = {"tombstones": _TOMBSTONES, "epoch": tuple(EPOCHS)}
_KNOWN: Mapping[Format, Mapping[str, tuple[str, ...]]] = {
    "json": _TEXT,
    "csv": {
        **_TEXT,
        "sep": _ANY,
        "quote": _ANY,
        "escape": _ANY,
        "nullValue": _ANY,
        "header": _BOOLEAN,
        "ignoreLeadingWhiteSpace": _BOOLEAN,
        "ignoreTrailingWhiteSpace": _BOOLEAN,
    },
    "avro": {"tombstones": _TOMBSTONES, "avro.wire": _WIRES, "avro.schemas": _ANY},
    "protobuf": {"tombstones": _TOMBSTONES, "protobuf.wire": _WIRES},
    "raw": {},
}
_CSV = (
    "sep",
    "quote",
    "escape",
    "nullValue",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
)


@dataclass(frozen=True)
class FormatOptions:
    tombstones: Tombstones = "dead-letter"
    """A record without a value: a dead letter, a row whose fields are null, or no row."""
    epoch: str = "millis"
    """One of `EPOCHS`."""
    wire: Wire = "plain"
    """`confluent`: a zero and four bytes of a schema's id go before the value."""
    schemas: str | None = None
    """A folder with the Avro schemas of writers, `<id>.avsc`."""
    separator: str = ","
    """CSV's `sep`, with tabs as tabs."""
    header: bool = False
    """Records that are only the names of the fields are no rows."""
    csv: Mapping[str, str] = field(default_factory=dict)
    """Passed on to Spark."""


def format_options(spec: SourceSpec) -> FormatOptions:
    """`OptionError` for a value that the format does not know."""
    known = _KNOWN[spec.format]
    given: dict[str, str] = {}
    for name, value in spec.options.items():
        if name not in known:
            continue
        allowed = known[name]
        text = value.lower() if allowed else value
        if allowed and text not in allowed:
            raise OptionError(
                f"source {spec.name}: option {name} is {value!r}: it must be one of "
                f"{', '.join(allowed)}"
            )
        given[name] = text
    for name in ("quote", "escape"):
        if len(given.get(name, "")) > 1:
            raise OptionError(
                f"source {spec.name}: option {name} is {given[name]!r}: it must be one character"
            )
    return FormatOptions(
        tombstones=cast(Tombstones, given.get("tombstones", "dead-letter")),
        epoch=given.get("epoch", "millis"),
        wire=cast(Wire, given.get(f"{spec.format}.wire", "plain")),
        schemas=given.get("avro.schemas"),
        separator=_separator(spec, given.get("sep", ",")),
        header=given.get("header") == "true",
        csv={name: given[name] for name in _CSV if name in given},
    )


def _separator(spec: SourceSpec, text: str) -> str:
    found = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), text)
    if not found or re.search(r"\\[^trbf\"'\\]|[\r\n\0]", text) or text == "\\":
        raise OptionError(
            f"source {spec.name}: option sep is {text!r}: it must be one character or more, such "
            "as `;` or `\\t`"
        )
    return found


def source_options(spec: SourceSpec) -> dict[str, str]:
    """What is left for the data source."""
    known = _KNOWN[spec.format]
    return {name: value for name, value in spec.options.items() if name not in known}
