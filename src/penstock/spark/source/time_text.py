"""Durations as Spark writes them: `15m`, `500ms`, `2h`."""

import re

from penstock.spark.errors import OptionError

_UNITS = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def milliseconds(option: str, text: str) -> int:
    """Returns a duration in ms; a number without a unit is in ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise OptionError(f"{option} is a time such as 500ms, 30s, 15m, 2h or 1d, not {text!r}")
    return int(int(match[1]) * _UNITS[match[2]])
