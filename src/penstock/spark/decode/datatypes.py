"""The types of fields, under Spark's names. Works without Spark."""

import re
from dataclasses import dataclass
from typing import TypeAlias

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Scalar:
    name: str
    """Spark's short name: `bigint`, `decimal(10,2)`."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class ArrayOf:
    element: "DataType"

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class MapOf:
    key: "DataType"
    value: "DataType"

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class Field:
    name: str
    type: "DataType"
    is_required: bool = False
    """Whether a record without it is a dead letter: NOT NULL in the schema."""


@dataclass(frozen=True)
class StructOf:
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        fields = ",".join(f"{quote_name(field.name)}:{field.type}" for field in self.fields)
        return f"struct<{fields}>"


DataType: TypeAlias = Scalar | Decimal | ArrayOf | MapOf | StructOf

BINARY = Scalar("binary")
STRING = Scalar("string")


def quote_name(name: str) -> str:
    """Returns the name as Spark's SQL reads it, in backticks only if it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def to_ddl(fields: tuple[Field, ...]) -> str:
    """Returns a schema that Spark can read. All names are in backticks: some are SQL keywords."""
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.type}" for field in fields)
