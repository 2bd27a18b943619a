"""Reads the fields of a schema written as in CREATE TABLE: `id bigint, at timestamp NOT NULL`."""

import difflib
import re
from typing import NamedTuple, NoReturn

from penstock.spark.decode.datatypes import (
    ArrayOf,
    DataType,
    Decimal,
    Field,
    MapOf,
    Scalar,
    StructOf,
)
from penstock.spark.errors import OptionError

_SCALARS = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
# What other databases call them.
_MEANT = {
    "text": "string",
    "varchar": "string",
    "char": "string",
    "int8": "bigint",
    "int4": "int",
    "int2": "smallint",
    "bool": "boolean",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "blob": "binary",
    "bytea": "binary",
    "bytes": "binary",
    "json": "string",
    "uuid": "string",
    "number": "decimal(38,0)",
}
_TOKEN = re.compile(
    r"(?P<space>(?:\s+|--[^\n]*|/\*.*?\*/)+)"
    r"|(?P<word>[A-Za-z0-9_]+)"
    r"|`(?P<quoted>(?:[^`]|``)+)`"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<sign>[<>(),:])",
    re.DOTALL,
)
MAX_PRECISION = 38


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_ddl(text: str) -> tuple[Field, ...]:
    """The fields; `OptionError` names the line and column of what is wrong."""
    return _Parser(text).fields_to_end()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0

    def fields_to_end(self) -> tuple[Field, ...]:
        found = self._fields(is_struct=False)
        if self._peek().kind != "end":
            self._fail(f"expected ',' or the end, not {self._shown()}")
        return found

    def _fields(self, *, is_struct: bool) -> tuple[Field, ...]:
        found: list[Field] = []
        seen: set[str] = set()
        while True:
            start = self._peek()
            field = self._field(is_struct=is_struct)
            if field.name.lower() in seen:
                self._fail(f"field {field.name} is there twice (Spark ignores case)", start)
            seen.add(field.name.lower())
            found.append(field)
            if not self._accept(","):
                return tuple(found)

    def _field(self, *, is_struct: bool) -> Field:
        token = self._peek()
        if token.kind not in ("word", "quoted"):
            self._fail(f"expected the name of a field, not {self._shown()}")
        self._next += 1
        if is_struct:
            self._accept(":")
        kind = self._type()
        is_required = False
        if self._accept_word("not"):
            if not self._accept_word("null"):
                self._fail(f"expected NULL after NOT, not {self._shown()}")
            is_required = True
        if self._accept_word("comment"):
            if self._peek().kind != "text":
                self._fail(f"expected a text in quotes after COMMENT, not {self._shown()}")
            self._next += 1
        return Field(token.text, kind, is_required)

    def _type(self) -> DataType:
        token = self._peek()
        if token.kind != "word":
            self._fail(f"expected a type, not {self._shown()}")
        self._next += 1
        name = token.text.lower()
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return ArrayOf(element)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return MapOf(key, value)
        if name == "struct":
            self._expect("<")
            fields = self._fields(is_struct=True)
            self._expect(">")
            return StructOf(fields)
        if name not in _SCALARS:
            self._fail(f"unknown type {token.text}{_hint(name)}", token)
        return Scalar(_SCALARS[name])

    def _decimal(self) -> Decimal:
        if not self._accept("("):
            return Decimal(10, 0)
        start = self._peek()
        precision = self._number()
        scale = self._number() if self._accept(",") else 0
        self._expect(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            self._fail(
                f"decimal({precision},{scale}): the precision is 1 to {MAX_PRECISION} digits, "
                "and the scale not larger",
                start,
            )
        return Decimal(precision, scale)

    def _number(self) -> int:
        token = self._peek()
        if not token.text.isdecimal():
            self._fail(f"expected a number, not {self._shown()}")
        self._next += 1
        return int(token.text)

    def _split(self, text: str) -> list[_Token]:
        found: list[_Token] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._fail(f"{text[at]!r} is not expected here", _Token("", "", at))
            kind = str(match.lastgroup)
            if kind != "space":
                found.append(_Token(kind, match[kind].replace("``", "`"), at))
            at = match.end()
        return [*found, _Token("end", "", at)]

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, sign: str) -> bool:
        token = self._peek()
        if token.kind == "sign" and token.text == sign:
            self._next += 1
            return True
        return False

    def _accept_word(self, word: str) -> bool:
        token = self._peek()
        if token.kind == "word" and token.text.lower() == word:
            self._next += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._fail(f"expected {sign!r}, not {self._shown()}")

    def _shown(self) -> str:
        token = self._peek()
        return "the end" if token.kind == "end" else repr(token.text)

    def _fail(self, message: str, at: _Token | None = None) -> NoReturn:
        position = (at or self._peek()).at
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        raise OptionError(f"schema, line {line}, column {column}: {message}")


def _hint(name: str) -> str:
    if name in _MEANT:
        return f": write {_MEANT[name]}"
    close = difflib.get_close_matches(name, [*_SCALARS, "decimal", "array", "map", "struct"], 1)
    if close:
        return f": did you mean {close[0]}?"
    return f"; there are {', '.join(dict.fromkeys(_SCALARS.values()))}, decimal, array, map, struct"
