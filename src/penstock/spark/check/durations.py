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
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)(\s*)([A-Za-z]+)(\s*)")
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
        sign, number, space, name, behind = part.groups()
        unit = name.lower().removesuffix("s")
        if unit in _LONGER:
            raise ValueError(f"{text!r}: months and years differ in length: write it in days")
        if unit not in _UNITS:
            known = ", ".join(f"{each}s" for each in _UNITS)
            raise ValueError(f"{text!r}: {name} is not one of {known}")
        if not space:
            raise ValueError(f"{text!r} needs a space: write `{number} {name}`")
        if "." in number and unit != "second":
            raise ValueError(f"{text!r}: only seconds may have a fraction")
        found += float(sign + number) * _UNITS[unit]
        at = part.end()
        if not behind and at < len(rest):
            raise ValueError(f"{text!r} is not a span of time such as `10 minutes`")
    if at == 0:
        raise ValueError("a span of time is missing, such as `10 minutes`")
    if found < 0:
        raise ValueError(f"{text!r} is less than nothing")
    return found
