"""The types of fields, as Spark names them, known without Spark."""

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
    """NOT NULL in the schema: a record without it is a dead letter."""


@dataclass(frozen=True)
class StructOf:
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{quoted(each.name)}:{each.type}' for each in self.fields)}>"


DataType: TypeAlias = Scalar | Decimal | ArrayOf | MapOf | StructOf

BINARY = Scalar("binary")
STRING = Scalar("string")


def quoted(name: str) -> str:
    """As Spark's SQL reads it, in backticks only where it must be."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def to_ddl(fields: tuple[Field, ...]) -> str:
    """As Spark reads it; names always in backticks, because some are words of its SQL."""
    return ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in fields)
