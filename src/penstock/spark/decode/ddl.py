"""Schemas written as in CREATE TABLE, such as `id bigint, at timestamp NOT NULL`, as fields."""

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
from penstock.spark.pipeline.model import SourceSpec
from penstock.spark.pipeline.nearest import nearest_name

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
# Names in other databases.
_SYNONYMS = {
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
MAX_DEPTH = 100


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def schema_fields(spec: SourceSpec) -> tuple[Field, ...]:
    """Returns the fields of a source's `schema`. Raises `OptionError` if it is missing or wrong."""
    if not spec.schema:
        raise OptionError(
            f"source {spec.name}: the format {spec.format} needs a schema, for example "
            "`id bigint, at timestamp`"
        )
    try:
        return parse_ddl(spec.schema)
    except OptionError as error:
        raise OptionError(f"source {spec.name}: {error}") from None


def parse_ddl(text: str) -> tuple[Field, ...]:
    """Returns the fields. Raises `OptionError` with the line and column of a mistake."""
    return _Parser(text).fields_to_end()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0

    def fields_to_end(self) -> tuple[Field, ...]:
        fields = self._fields(is_struct=False)
        if self._peek().kind != "end":
            self._fail(f"expected ',' or the end, not {self._shown()}")
        return fields

    def _fields(self, *, is_struct: bool) -> tuple[Field, ...]:
        fields: list[Field] = []
        names: set[str] = set()
        while True:
            start = self._peek()
            field = self._field(is_struct=is_struct)
            if field.name.lower() in names:
                self._fail(f"field {field.name} appears twice (Spark ignores case)", start)
            names.add(field.name.lower())
            fields.append(field)
            if not self._accept(","):
                return tuple(fields)

    def _field(self, *, is_struct: bool) -> Field:
        token = self._peek()
        if token.kind not in ("word", "quoted"):
            self._fail(f"expected the name of a field, not {self._shown()}")
        self._next += 1
        if is_struct:
            self._accept(":")
        data_type = self._type()
        is_required = False
        if self._accept_word("not"):
            if not self._accept_word("null"):
                self._fail(f"expected NULL after NOT, not {self._shown()}")
            is_required = True
        if self._accept_word("comment"):
            if self._peek().kind != "text":
                self._fail(f"expected a text in quotes after COMMENT, not {self._shown()}")
            self._next += 1
        return Field(token.text, data_type, is_required)

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"types are nested more than {MAX_DEPTH} deep")
        parsed_type = self._type_at_depth()
        self._depth -= 1
        return parsed_type

    def _type_at_depth(self) -> DataType:
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
                "and the scale is not larger",
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
        tokens: list[_Token] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._fail(f"{text[position]!r} is not expected here", _Token("", "", position))
            kind = str(match.lastgroup)
            if kind != "space":
                tokens.append(_Token(kind, match[kind].replace("``", "`"), position))
            position = match.end()
        return [*tokens, _Token("end", "", position)]

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

    def _fail(self, message: str, token: _Token | None = None) -> NoReturn:
        position = (token or self._peek()).position
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        raise OptionError(f"schema, line {line}, column {column}: {message}")


def _hint(name: str) -> str:
    if name in _SYNONYMS:
        return f": write {_SYNONYMS[name]}"
    similar = nearest_name(name, [*_SCALARS, "decimal", "array", "map", "struct"])
    if similar is not None:
        return f": did you mean {similar}?"
    names = ", ".join(dict.fromkeys(_SCALARS.values()))
    return f"; the types are {names}, decimal, array, map, struct"
