"""The definition of a setting: its type, default and valid values, and how its text is parsed."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Unpack

from penstock.broker.config.validators import Value, check
from penstock.core.errors import ErrorCode, ErrorDetails, KafkaError
from penstock.protocol.enums import ConfigType


class ConfigError(KafkaError):
    """An invalid setting. `name` is the setting, if the error is about a single one.

    Its name is the subject, unless another one is given.
    """

    def __init__(
        self, cause: str, name: str | None = None, **details: Unpack[ErrorDetails]
    ) -> None:
        details.setdefault("subject", name or "")
        super().__init__(ErrorCode.INVALID_CONFIG, cause, **details)
        self.name = name


class Dynamic(Enum):
    """Whether a setting can change while the broker runs, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "H"
    MEDIUM = "M"
    LOW = "L"


class Setting(NamedTuple):
    """One row of a settings table."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    validator: str
    """The valid values in the notation of `penstock.broker.config.tables`."""
    importance: Importance
    dynamic: Dynamic
    effect: bool
    """False if the setting is accepted because Kafka's files contain it, but has no effect."""
    internal: bool
    """Whether Kafka describes it only if it is set."""
    old: bool
    """Whether Kafka 4 no longer has it; it is described only if it is set."""

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Returns the value of a text; ConfigError if it is invalid."""
        try:
            value = _PARSERS[self.type](text.strip())
            check(self.validator, value)
        except ValueError as error:
            value_text = "the value" if self.sensitive else repr(text.strip())
            raise ConfigError(f"{value_text} is invalid: {error}", self.name) from None
        return value

    def default_value(self) -> Value:
        return None if self.default is None else _PARSERS[self.type](self.default)

    def normalize(self, text: str) -> str:
        """Returns the text as Kafka describes it: `TRUE ` becomes `true`, `a, b` becomes `a,b`."""
        return format_value(self.parse(text)) or ""


def format_value(value: Value) -> str | None:
    """Returns the text of a value as Kafka writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """Formats a double as Java does: with an exponent below 0.001 and from 10 million on."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    for digits in range(1, 18):
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return f"{mantissa}E{int(exponent)}"


# --- parsing

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII
)
_COMMA = re.compile(r"\s*,\s*")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError("must be a whole number")
        value = int(text)
        if not -limit <= value < limit:
            raise ValueError(f"must be between {-limit} and {limit - 1}")
        return value

    return parse


def _double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError("must be a number")
    return float(text.rstrip("fFdD"))


def _list(text: str) -> list[str]:
    if not text:
        return []
    parts = list(dict.fromkeys(_COMMA.split(text)))
    if "" in parts:
        raise ValueError("must not have an empty item between commas")
    return parts


_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer(32),
    ConfigType.SHORT: _integer(16),
    ConfigType.LONG: _integer(64),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


# --- tables

_DYNAMIC = {"-": Dynamic.READ_ONLY, "b": Dynamic.PER_BROKER, "c": Dynamic.CLUSTER_WIDE}


class Table(Mapping[str, Setting]):
    """Settings by name. A row is parsed when it is first used."""

    def __init__(self, *texts: str) -> None:
        self._rows: dict[str, tuple[str, str]] = {}
        self._settings: dict[str, Setting] = {}
        for text in texts:
            lines = iter(text.strip("\n").split("\n"))
            for header, doc in zip(lines, lines, strict=True):
                self._rows[header[: header.index(" ")]] = (header, doc)

    def __getitem__(self, name: str) -> Setting:
        if name not in self._settings:
            self._settings[name] = _parse_row(*self._rows[name])
        return self._settings[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _parse_row(header: str, doc: str) -> Setting:
    name, kind, flags, validator, *rest = header.split(" ", 4)
    default = rest[0] if rest else ""
    return Setting(
        name,
        ConfigType[kind],
        None if default == "null" else default,
        doc.strip(),
        validator,
        Importance(flags[0]),
        _DYNAMIC[flags[1]],
        effect=flags[2] == "*",
        internal="i" in flags,
        old="o" in flags,
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns `; did you mean x?`, or an empty string if no name is similar."""
    import difflib  # needed for errors only

    matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
