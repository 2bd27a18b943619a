"""The settings of one log, under Kafka's topic-level names and with Kafka's defaults.

A `LogConfig` is a value. The broker derives the default one from its own settings; a topic's
overrides create another one from it (`with_overrides`), which takes effect at once (S4: global and
per topic).
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import NoReturn

from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.append_policy import AppendPolicy
from penstock.records.batch import TimestampType
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT, Compression

HOUR_MS = 60 * 60 * 1000
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}

_DIGITS = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings as fields: `segment_bytes` is the setting `segment.bytes`, and so on."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 168 * HOUR_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    preallocate: bool = False

    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int = 168 * HOUR_MS
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * HOUR_MS

    max_message_bytes: int = 1024 * 1024 + 12
    max_decompressed_bytes: int = DEFAULT_DECOMPRESSED_LIMIT
    """The broker's `message.max.decompressed.bytes`; there is no such setting of a topic."""
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = HOUR_MS

    max_segment_ms: int = field(init=False)
    """`segment.ms`, or less for a compacted log, which must roll within `max.compaction.lag.ms`."""

    def __post_init__(self) -> None:
        limit = self.segment_ms
        if self.compact and self.max_compaction_lag_ms > 0:
            limit = min(limit, self.max_compaction_lag_ms)
        object.__setattr__(self, "max_segment_ms", limit)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def append_policy(self) -> AppendPolicy:
        """The part of the settings that decides whether and how a batch is stored."""
        codec = None
        if self.compression_type != "producer":
            codec = Compression.from_name(self.compression_type)
        levels = {
            Compression.GZIP: self.compression_gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }
        return AppendPolicy(
            compression=codec,
            level=None if codec is None else levels.get(codec),
            timestamp_type=_TIMESTAMP_TYPES[self.message_timestamp_type],
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            compacted=self.compact,
            max_message_bytes=self.max_message_bytes,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )

    def with_overrides(self, properties: Mapping[str, str]) -> "LogConfig":
        """Returns a copy with settings under Kafka's names: `{"retention.ms": "1000"}`.

        Raises INVALID_CONFIG for an unknown name or a value that is not allowed.
        """
        changes = {_field_of(name): _parse(name, text.strip()) for name, text in properties.items()}
        config = replace(self, **changes)  # type: ignore[arg-type]
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            _refuse(
                "min.compaction.lag.ms",
                f"{config.min_compaction_lag_ms} is more than max.compaction.lag.ms "
                f"{config.max_compaction_lag_ms}",
            )
        return config


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _DIGITS.fullmatch(text):
            raise ValueError("must be a whole number")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _gzip_level(text: str) -> int:
    level = _integer(-1, 9)(text)
    if level == 0:
        raise ValueError("must be between 1 and 9, or -1 for the default")
    return level


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return text

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1")
    return value


def _policies(text: str) -> frozenset[str]:
    policies = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not policies <= {"delete", "compact"}:
        raise ValueError("must be delete, compact or both, separated by a comma")
    return policies


_PARSERS: dict[str, Callable[[str], object]] = {
    "segment.bytes": _integer(1024 * 1024, INT_MAX),
    "segment.ms": _integer(1, LONG_MAX),
    "segment.jitter.ms": _integer(0, LONG_MAX),
    # Kafka allows 4, which would make a segment full before its first batch: the time index
    # reserves a slot of 12 bytes for the roll and needs another one.
    "segment.index.bytes": _integer(24, INT_MAX),
    "index.interval.bytes": _integer(0, INT_MAX),
    "preallocate": _boolean,
    "flush.messages": _integer(1, LONG_MAX),
    "flush.ms": _integer(0, LONG_MAX),
    "cleanup.policy": _policies,
    "retention.ms": _integer(-1, LONG_MAX),
    "retention.bytes": _integer(-1, LONG_MAX),
    "file.delete.delay.ms": _integer(0, LONG_MAX),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _integer(0, LONG_MAX),
    "max.compaction.lag.ms": _integer(1, LONG_MAX),
    "delete.retention.ms": _integer(0, LONG_MAX),
    "max.message.bytes": _integer(0, INT_MAX),
    "compression.type": _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": _gzip_level,
    "compression.lz4.level": _integer(1, 17),
    "compression.zstd.level": _integer(-131072, 22),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": _integer(0, LONG_MAX),
    "message.timestamp.after.max.ms": _integer(0, LONG_MAX),
}

SETTINGS = tuple(_PARSERS)
"""The names of the settings, as in Kafka."""


def _field_of(name: str) -> str:
    if name not in _PARSERS:
        matches = difflib.get_close_matches(name, _PARSERS, n=1)
        _refuse(name, f"no such topic setting{f'; did you mean {matches[0]}?' if matches else ''}")
    return name.replace(".", "_")


def _parse(name: str, text: str) -> object:
    try:
        return _PARSERS[name](text)
    except ValueError as error:
        _refuse(name, f"{text!r} will not do: {error}")


def _refuse(name: str, reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}: {reason}")


_FIELDS = {setting.name for setting in fields(LogConfig) if setting.init}
if _FIELDS - {"max_decompressed_bytes"} != set(map(_field_of, SETTINGS)):
    raise AssertionError("the fields of LogConfig and the table of parsers have different settings")
