"""A strict parser of JSON objects, based on Python's json, to compare decoded values with.

Also makes such texts: most of them good, the others wrong in all the ways that people get JSON
wrong.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from random import Random
from typing import NoReturn

SCHEMA = (
    "id bigint, small tinyint, d double, s string, b boolean, money decimal(6,2), "
    "list array<int>, sub struct<x:int,y:string>, map map<string,double>"
)
REQUIRED = ("id",)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


class BadError(Exception):
    """The text is bad."""


@dataclass(frozen=True)
class Number:
    """The text of a number."""

    text: str

    @property
    def is_integer(self) -> bool:
        return not set(self.text) & set(".eE")


@dataclass(frozen=True)
class Pairs:
    """An object, whose keys may be repeated."""

    items: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class AnyText:
    """A string that is not compared, because it is the text of another value."""


def read(text: str) -> dict[str, object]:
    """Returns the fields. Raises `BadError` if anything is wrong."""
    try:
        value = json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse,
            object_pairs_hook=lambda pairs: Pairs(tuple(pairs)),
        )
    except (ValueError, RecursionError):
        raise BadError from None
    if not isinstance(value, Pairs):
        raise BadError
    _check_characters(value)
    row = _struct(value, _FIELDS)
    if any(row[name] is None for name in REQUIRED):
        raise BadError
    return row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _check_characters(value: object) -> None:
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise BadError
    elif isinstance(value, list):
        for element in value:
            _check_characters(element)
    elif isinstance(value, Pairs):
        for name, element in value.items:
            _check_characters(name)
            _check_characters(element)


_Fit = Callable[[object], object]


def _or_null(fit: _Fit) -> _Fit:
    return lambda value: None if value is None else fit(value)


def _integer(bits: int) -> _Fit:
    def fit(value: object) -> object:
        if not isinstance(value, Number) or not value.is_integer:
            raise BadError
        if not -(2 ** (bits - 1)) <= int(value.text) < 2 ** (bits - 1):
            raise BadError
        return int(value.text)

    return _or_null(fit)


def _double(value: object) -> object:
    if not isinstance(value, Number) or not math.isfinite(float(value.text)):
        raise BadError
    return float(value.text)


def _string(value: object) -> object:
    return value if isinstance(value, str) else AnyText()


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise BadError
    return value


def _money(value: object) -> object:
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise BadError
    if isinstance(value, Number) and not value.is_integer and "e" in text.lower():
        # Documented: a number with an exponent counts as a double.
        text = repr(float(text))
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise BadError from None
    if not number.is_finite() or abs(number) >= 10_000 or number != round(number, 2):
        raise BadError
    return round(number, 2)


def _list(value: object) -> object:
    if not isinstance(value, list):
        raise BadError
    return [_integer(32)(element) for element in value]


def _sub(value: object) -> object:
    if not isinstance(value, Pairs):
        raise BadError
    return _struct(value, {"x": _integer(32), "y": _or_null(_string)})


def _map(value: object) -> object:
    if not isinstance(value, Pairs):
        raise BadError
    numbers = {name: _or_null(_double)(element) for name, element in value.items}
    if len(numbers) != len(value.items):
        raise BadError
    return numbers


def _struct(value: Pairs, fields: dict[str, _Fit]) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(fields)
    for name, element in value.items:
        if name in fields:
            row[name] = fields[name](element)
    return row


_FIELDS: dict[str, _Fit] = {
    "id": _integer(64),
    "small": _integer(8),
    "d": _or_null(_double),
    "s": _or_null(_string),
    "b": _or_null(_boolean),
    "money": _or_null(_money),
    "list": _or_null(_list),
    "sub": _or_null(_sub),
    "map": _or_null(_map),
}

# Texts

_NUMBERS = (
    *("1e400", "-1e39", "1.230", "9999.995", "1E2", "0e0", "-0.0", "12.5", "0.125", "1.005"),
    *("01", "+1", "1.", ".5", "NaN", "-", "127", "128", "-129", "9223372036854775808"),
)
_WORDS = (
    "1",
    "1.5",
    "1,5",
    "",
    "true",
    'a"b',
    "}",
    "},",
    "]",
    "a\nb",
    "é",
    "😀",
    "\u2028",
    "\0",
    "C:\\udev",
    "\\ud83d",
)
_WRITTEN = ('"\\ud83d"', '"\\ude00"', '"\\x"', "'a'", '"a\tb"', '"\\/"', '"\\ud83d\\ude00"')
_CONSTANTS = ("null", "true", "false", "nul", "True")
_GAPS = ("", "", "", " ", "\n", "\t ")
_TRAILING = (
    *("", " ", "\n", "x", "}", "]", ",", '{"id":1}', ',"x":1', ',"r":{"id":2}', '],"x":[1'),
    *("} {", '}],"x":[{"y":1', ',"e":true}', "\0"),
)


def texts(count: int, seed: int = 1) -> list[str]:
    """Returns as many texts, the same in every run."""
    rng = Random(seed)
    return [_text(rng) for _ in range(count)]


def _text(rng: Random) -> str:
    document = _document(rng)
    at = rng.randint(0, len(document))
    match rng.randint(0, 11):
        case 0:
            return rng.choice(_GAPS) + document + rng.choice(_TRAILING)
        case 1:
            return document[:at]
        case 2:
            return document[:at] + rng.choice('{}[],:"0 \\') + document[at:]
        case 3:
            return _any(rng, 2)
    return document


def _document(rng: Random) -> str:
    items = [("id", "1")] if rng.random() < 0.9 else []
    names = [name for name in (*_FIELDS, "other", "r", "e", "ID") if items == [] or name != "id"]
    for name in rng.sample(names, rng.randint(0, 5)):
        is_good = name in _FIELDS and rng.random() < 0.9
        items.append((name, _good(rng, name) if is_good else _any(rng, 2)))
    return _object(rng, items)


def _good(rng: Random, name: str) -> str:
    match name:
        case "id":
            return str(rng.choice([rng.randint(-(2**63), 2**63 - 1), 0]))
        case "small":
            return str(rng.randint(-128, 127))
        case "d":
            return json.dumps(rng.choice([rng.random() * 10 ** rng.randint(-300, 300), 1]))
        case "s":
            return json.dumps(rng.choice(_WORDS), ensure_ascii=rng.random() < 0.5)
        case "b":
            return rng.choice(["true", "false", "null"])
        case "money":
            amount = str(Decimal(rng.randint(-999_999, 999_999)) / 100)
            return rng.choice([amount, f'"{amount}"'])
        case "list":
            return json.dumps([rng.randint(-9, 9) for _ in range(rng.randint(0, 3))])
        case "sub":
            return f'{{"x":{rng.randint(-9, 9)},"y":{json.dumps(rng.choice(_WORDS))}}}'
    return json.dumps({key: rng.randint(-9, 9) for key in "abc"[: rng.randint(0, 3)]})


def _any(rng: Random, depth: int) -> str:
    match rng.randint(0, 5 if depth else 3):
        case 0:
            return rng.choice(_NUMBERS)
        case 1:
            return json.dumps(rng.choice(_WORDS))
        case 2:
            return rng.choice(_WRITTEN)
        case 3:
            return rng.choice(_CONSTANTS)
        case 4:
            return f"[{','.join(_any(rng, depth - 1) for _ in range(rng.randint(0, 3)))}]"
    names = [rng.choice("xyare") for _ in range(rng.randint(0, 3))]
    return _object(rng, [(name, _any(rng, depth - 1)) for name in names])


def _object(rng: Random, items: list[tuple[str, str]]) -> str:
    gap = rng.choice(_GAPS)
    return "{" + ",".join(f"{gap}{json.dumps(name)}{gap}:{value}" for name, value in items) + "}"
