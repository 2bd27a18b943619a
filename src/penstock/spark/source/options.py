"""The options of the source: those of Spark's own Kafka source, by the same names.

Names are case-insensitive, as everywhere in Spark. Unknown options are ignored, as by Spark, unless
they look like a misspelt option.
"""

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from penstock.client.errors import ConfigError
from penstock.client.settings import ConsumerOptions, resolve, settings_of
from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.source.offsets_json import (
    EARLIEST,
    LATEST,
    MAX_LONG,
    listed,
    offsets_of,
    partitions_of,
    times_of,
)
from penstock.spark.source.positions import (
    AtOffsets,
    AtTime,
    AtTimes,
    LogBoundary,
    Position,
    check_order,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CLIENT = "kafka."

NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "sourceName",
)
"""All options except those of the client, which begin with `kafka.`."""

_REFUSED = {
    "auto.offset.reset": "use startingOffsets: earliest or latest. It applies to a new query; "
    "one that is started again continues where it stopped",
    "key.deserializer": "keys are bytes. Cast or decode the column `key`",
    "value.deserializer": "values are bytes. Cast or decode the column `value`",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets, and nothing is committed",
    "interceptor.classes": "what an interceptor does to records, a query can do",
}
"""Settings of the client that cannot be set, and what to do instead."""

_UNUSED = {"group.id", "group.instance.id", "group.protocol", "auto.commit.interval.ms"}
"""Accepted because queries set them for Spark's own source; this source needs no group."""

_JAVA = {
    "client.dns.lookup",
    "enable.metrics.push",
    "metric.reporters",
    "metrics.recording.level",
    "security.providers",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
}
"""Accepted for the same reason: they configure details of Java's client."""

_MILLISECONDS = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True)
class Subscribe:
    """Topics by name."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All topics, except internal ones, whose name contains a match of the expression."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assign:
    """Single partitions."""

    partitions: frozenset[TopicPartition]


Topics: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True)
class SourceOptions:
    """All options, parsed and checked."""

    topics: Topics
    client: Mapping[str, str] = field(repr=False)
    """Settings of the client by Kafka's names, including passwords."""
    starting: Position
    ending: Position
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    fail_on_data_loss: bool
    poll_timeout_ms: int
    fetch_offset_num_retries: int
    fetch_offset_retry_interval_ms: int
    source_name: str

    @property
    def read_committed(self) -> bool:
        return self.client.get("isolation.level", "").lower() == "read_committed"


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Returns the options of `spark.read`; raises `OptionError` for the first that is wrong."""
    raw = _RawOptions(options)
    parsed = _parse(raw, LogBoundary.EARLIEST)
    _check_batch(raw, parsed)
    return parsed


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Like `batch_options`, for `spark.readStream`."""
    raw = _RawOptions(options)
    parsed = _parse(raw, LogBoundary.LATEST)
    _check_stream(raw)
    return parsed


def check_options(options: Mapping[str, str]) -> None:
    """Raises `OptionError` for options that are wrong in a batch and in a stream."""
    _parse(_RawOptions(options), LogBoundary.EARLIEST)


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the source has a column `headers`."""
    return _RawOptions(options).bool("includeHeaders", False)


class _RawOptions:
    """The options as text, looked up by name without regard to case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in options.items()}

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def parse(self, name: str, parser: Callable[[str, str], T], default: T) -> T:
        text = self.text(name)
        return default if text is None else parser(name, text)

    def bool(self, name: str, default: bool) -> bool:
        return self.parse(name, _bool, default)

    def client(self) -> dict[str, str]:
        return {
            name.removeprefix(_CLIENT): value
            for name, value in self._values.items()
            if name.startswith(_CLIENT)
        }


def _parse(raw: _RawOptions, starting: Position) -> SourceOptions:
    """`starting` is the default of the starting position."""
    _check_names(raw)
    options = SourceOptions(
        topics=_topics(raw),
        client=_client(raw),
        starting=_position(raw, "starting", starting),
        ending=_position(raw, "ending", LogBoundary.LATEST),
        max_offsets_per_trigger=raw.parse("maxOffsetsPerTrigger", _positive, None),
        min_offsets_per_trigger=raw.parse("minOffsetsPerTrigger", _positive, None),
        max_trigger_delay_ms=raw.parse("maxTriggerDelay", _milliseconds, 15 * 60_000),
        min_partitions=raw.parse("minPartitions", _positive, None),
        max_records_per_partition=raw.parse("maxRecordsPerPartition", _positive, None),
        include_headers=raw.bool("includeHeaders", False),
        fail_on_data_loss=raw.bool("failOnDataLoss", True),
        poll_timeout_ms=raw.parse("kafkaConsumer.pollTimeoutMs", _positive, 120_000),
        fetch_offset_num_retries=raw.parse("fetchOffset.numRetries", _positive, 3),
        fetch_offset_retry_interval_ms=raw.parse("fetchOffset.retryIntervalMs", _natural, 1_000),
        source_name=raw.text("sourceName") or "",
    )
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            f"minOffsetsPerTrigger {low} is greater than maxOffsetsPerTrigger {high}: "
            "no batch could satisfy both"
        )
    return options


def _topics(raw: _RawOptions) -> Topics:
    selectors = [name for name in ("subscribe", "subscribePattern", "assign") if raw.has(name)]
    if len(selectors) != 1:
        raise OptionError(
            f"one of subscribe, subscribePattern and assign says what to read; "
            f"{' and '.join(selectors) or 'none of them'} is set"
        )
    text = raw.text(selectors[0]) or ""
    if selectors == ["assign"]:
        return Assign(partitions_of("assign", text))
    if selectors == ["subscribePattern"]:
        if not text:
            raise OptionError("subscribePattern is empty: it is a regular expression for topics")
        try:
            return SubscribePattern(re.compile(text))
        except re.error as error:
            raise OptionError(f"subscribePattern {text!r} is no expression: {error}") from None
    topics = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not topics:
        raise OptionError("subscribe names no topic: it is one name, or several with commas")
    return Subscribe(tuple(topics))


def _position(raw: _RawOptions, which: str, default: Position) -> Position:
    """One time takes precedence over times by partition, and those over offsets, as in Spark."""
    strategy = (raw.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy {strategy!r}: it is error or latest, and says "
            "where to start when no record is as late as the time"
        )
    latest_if_none = which == "ending" or strategy == "latest"
    if raw.has(f"{which}Timestamp"):
        return AtTime(raw.parse(f"{which}Timestamp", _natural, 0), latest_if_none)
    by_time = f"{which}OffsetsByTimestamp"
    if raw.has(by_time):
        return AtTimes(times_of(by_time, raw.text(by_time) or ""), latest_if_none)
    text = raw.text(f"{which}Offsets")
    if text is None:
        return default
    if text.upper() in LogBoundary.__members__:
        return LogBoundary[text.upper()]
    if not text.startswith("{"):
        raise OptionError(
            f"{which}Offsets is earliest, latest, or an offset for each partition, "
            f'e.g. {{"topic": {{"0": 23, "1": -1}}}}; not {text!r}'
        )
    return AtOffsets(offsets_of(f"{which}Offsets", text))


def _client(raw: _RawOptions) -> dict[str, str]:
    client = raw.client()
    for name, advice in _REFUSED.items():
        if name in client:
            raise OptionError(f"kafka.{name} cannot be set for this source: {advice}")
    if not client.get("bootstrap.servers"):
        raise OptionError(
            "kafka.bootstrap.servers is missing",
            remedy="name some brokers, host:port separated by commas",
        )
    for name in sorted(client.keys() & _JAVA):
        logger.warning("kafka.%s has no effect: it is a setting of Java's client", name)
    settings = {name: value for name, value in client.items() if name not in _UNUSED | _JAVA}
    by_name = {name.replace(".", "_"): value for name, value in settings.items()}
    try:
        resolve(ConsumerOptions, by_name)
    except ConfigError as error:
        known_names = settings_of(ConsumerOptions).keys() | by_name.keys()
        raise ConfigError(_with_dots(error.message, known_names)) from None
    return settings


def _with_dots(message: str, names: AbstractSet[str]) -> str:
    """Returns a message of the client, with its settings by their dotted names."""
    return re.sub(
        r"\w+",
        lambda word: _CLIENT + word[0].replace("_", ".") if word[0] in names else word[0],
        message,
    )


def _check_names(raw: _RawOptions) -> None:
    names_by_lower = {name.lower(): name for name in NAMES}
    for name in raw.names():
        if name in names_by_lower or name.startswith(_CLIENT):
            continue
        if name.replace(".", "_") in settings_of(ConsumerOptions):
            raise OptionError(f"there is no option {name}: did you mean kafka.{name}?")
        similar = difflib.get_close_matches(name, names_by_lower, n=1, cutoff=0.8)
        if similar:
            raise OptionError(
                f"there is no option {name}: did you mean {names_by_lower[similar[0]]}?"
            )


def _check_stream(raw: _RawOptions) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if raw.has(name):
            raise OptionError(
                f"{name} is for spark.read only: a streaming query has no end. To read what is "
                "there and stop, use trigger(availableNow=True)"
            )


def _check_batch(raw: _RawOptions, options: SourceOptions) -> None:
    if options.starting is LogBoundary.LATEST:
        raise OptionError("startingOffsets=latest leaves nothing to read for spark.read")
    if options.ending is LogBoundary.EARLIEST:
        raise OptionError("endingOffsets=earliest leaves nothing to read")
    for position, name, wrong, word in (
        (options.starting, "startingOffsets", LATEST, "latest"),
        (options.ending, "endingOffsets", EARLIEST, "earliest"),
    ):
        if isinstance(position, AtOffsets):
            offsets = position.offsets.offsets
            if bad := {partition for partition, offset in offsets.items() if offset == wrong}:
                raise OptionError(
                    f"{name} of {listed(bad)} is {wrong} ({word}): that leaves nothing to read"
                )
    check_order(options.starting, options.ending)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if raw.has(name):
            logger.warning("%s has no effect on spark.read, which has no triggers", name)


def _bool(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def _natural(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= MAX_LONG:
        raise OptionError(f"{name} is a whole number from 0 on, not {text!r}")
    return number


def _positive(name: str, text: str) -> int:
    number = _natural(name, text)
    if number == 0:
        raise OptionError(f"{name} must be greater than 0")
    return number


def _milliseconds(name: str, text: str) -> int:
    """Parses a duration as Spark writes it: `15m`, `500ms`; without a unit it is in ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _MILLISECONDS:
        raise OptionError(f"{name} is a time such as 500ms, 30s, 15m, 2h or 1d, not {text!r}")
    return int(int(match[1]) * _MILLISECONDS[match[2]])
