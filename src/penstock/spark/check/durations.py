"""Spans of time as Spark reads them: `10 minutes`, `1 hour 30 minutes`."""

import re

_UNITS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_LONGER = ("month", "year")


def seconds(text: str) -> float:
    """How long it is; `ValueError` says why it is no such span."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    found = 0.0
    at = 0
    while at < len(rest.rstrip()):
        part = _PART.match(rest, at)
        if part is None:
            bare = rest.strip()
            if re.fullmatch(r"[+-]?\d+(\.\d+)?", bare):
                raise ValueError(f"{bare} has no unit: write `{bare} seconds`")
            raise ValueError(f"{text!r} is not a span of time such as `10 minutes`")
        unit = part[2].lower().removesuffix("s")
        if unit in _LONGER:
            raise ValueError(f"{text!r}: months and years differ in length: write it in days")
        if unit not in _UNITS:
            known = ", ".join(f"{each}s" for each in _UNITS)
            raise ValueError(f"{text!r}: {part[2]} is not one of {known}")
        found += float(part[1]) * _UNITS[unit]
        at = part.end()
    if at == 0:
        raise ValueError("a span of time is missing, such as `10 minutes`")
    if found < 0:
        raise ValueError(f"{text!r} is less than nothing")
    return found
