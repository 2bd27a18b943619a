"""Durations as Spark reads them: `10 minutes`, `1 hour 30 minutes`."""

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
_CALENDAR_UNITS = ("month", "year")


def parse_duration(text: str) -> float:
    """Returns the duration in seconds. Raises `ValueError` with the reason and a remedy."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    duration = 0.0
    position = 0
    while position < len(rest.rstrip()):
        part = _PART.match(rest, position)
        if part is None:
            bare = rest.strip()
            if re.fullmatch(r"[+-]?\d+(\.\d+)?", bare):
                raise ValueError(f"{bare} has no unit: write `{bare} seconds`")
            raise ValueError(f"{text!r} is not a duration such as `10 minutes`")
        sign, number, space, name, trailing_space = part.groups()
        unit = name.lower().removesuffix("s")
        if unit in _CALENDAR_UNITS:
            raise ValueError(f"{text!r}: months and years differ in length: write it in days")
        if unit not in _UNITS:
            units = ", ".join(f"{known_unit}s" for known_unit in _UNITS)
            raise ValueError(f"{text!r}: {name} is not one of {units}")
        if not space:
            raise ValueError(f"{text!r} needs a space: write `{number} {name}`")
        if "." in number and unit != "second":
            raise ValueError(f"{text!r}: only seconds may have a fraction")
        duration += float(sign + number) * _UNITS[unit]
        position = part.end()
        if not trailing_space and position < len(rest):
            raise ValueError(f"{text!r} is not a duration such as `10 minutes`")
    if position == 0:
        raise ValueError("the duration is missing: write one such as `10 minutes`")
    if duration < 0:
        raise ValueError(f"{text!r} is negative: a duration is 0 or more")
    return duration
