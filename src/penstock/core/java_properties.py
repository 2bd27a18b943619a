"""Reads and writes Java's `.properties` files, such as `meta.properties`."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {value: "\\" + name for name, value in _NAMED.items()} | {
    char: "\\" + char for char in "\\=:#!"
}


class PropertiesSyntaxError(ValueError):
    """A `\\u` without four hexadecimal digits, the only syntax error of a properties file."""

    def __init__(self, line: int) -> None:
        super().__init__("\\u without four hexadecimal digits")
        self.line = line


class Property(NamedTuple):
    value: str
    line: int
    """The line number, starting at 1."""


def format_properties(values: Mapping[str, str]) -> str:
    """Returns a properties file in ASCII, which every version and encoding of Java can read."""
    lines = [f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items()]
    return "#\n" + "".join(lines)


def parse_properties(text: str) -> dict[str, Property]:
    """Returns the properties by key; the last value of a repeated key wins."""
    properties: dict[str, Property] = {}
    lines = _LINE_END.split(text)
    number = 0
    while number < len(lines):
        start = number + 1
        line = lines[number].lstrip(_BLANK)
        number += 1
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + (lines[number].lstrip(_BLANK) if number < len(lines) else "")
            number += 1
        key, value = _split(line)
        properties[_unescape(key, start)] = Property(_unescape(value, start), start)
    return properties


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:at], rest


def _unescape(text: str, line: int) -> str:
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                    raise PropertiesSyntaxError(line)
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _NAMED.get(char, char)
        parts.append(char)
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool = False) -> str:
    parts: list[str] = []
    for at, char in enumerate(text):
        if char == " ":
            parts.append("\\ " if key or at == 0 else " ")
        elif char in _ESCAPES:
            parts.append(_ESCAPES[char])
        elif " " < char <= "~":
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
    return "".join(parts)
