"""The options of the source: those of Spark's own Kafka source, by the same names.

Names are case-insensitive, as everywhere in Spark. What Spark ignores because it does not know it
is ignored here too, unless it looks like the misspelling of an option.
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
from penstock.spark.source.time_text import milliseconds

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
"""All options but the client's, which begin with `kafka.`."""

_REFUSED = {
    "auto.offset.reset": "use startingOffsets: earliest or latest. It counts for a new query; "
    "one that is started again goes on where it stopped",
    "key.deserializer": "keys are bytes. Cast or decode the column `key`",
    "value.deserializer": "values are bytes. Cast or decode the column `value`",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets, and nothing is committed",
    "interceptor.classes": "what an interceptor does to records, a query can do",
}
"""Settings of the client that make no sense here, and what to do instead."""

_UNUSED = {"group.id", "group.instance.id", "group.protocol", "auto.commit.interval.ms"}
"""Accepted because queries set them for Spark's own source: this one needs no group."""

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
"""Accepted for the same reason: they say how Java does what Python does in its own way."""


@dataclass(frozen=True)
class Subscribe:
    """These topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All topics, but internal ones, in whose name the expression is found."""

    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Assign:
    """These partitions."""

    partitions: frozenset[TopicPartition]


Topics: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True)
class SourceOptions:
    """All options, checked."""

    topics: Topics
    client: Mapping[str, str] = field(repr=False)
    """Settings of the client, by Kafka's names; passwords are among them."""
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
    """Of `spark.read`. OptionError says what is wrong."""
    given = _RawOptions(options)
    found = _parsed(given, LogBoundary.EARLIEST)
    _check_batch(given, found)
    return found


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Of `spark.readStream`. OptionError says what is wrong."""
    given = _RawOptions(options)
    found = _parsed(given, LogBoundary.LATEST)
    _check_stream(given)
    return found


def check_options(options: Mapping[str, str]) -> None:
    """OptionError for what is wrong in a batch and in a stream."""
    _parsed(_RawOptions(options), LogBoundary.EARLIEST)


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether there is a column `headers`."""
    return _RawOptions(options).bool("includeHeaders", False)


class _RawOptions:
    """Options as they were given, by name whatever its case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value.strip() for name, value in options.items()}

    def names(self) -> list[str]:
        return list(self._values)

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def read(self, name: str, reading: Callable[[str, str], T], default: T) -> T:
        text = self.text(name)
        return default if text is None else reading(name, text)

    def bool(self, name: str, default: bool) -> bool:
        return self.read(name, _bool, default)

    def client(self) -> dict[str, str]:
        return {
            name.removeprefix(_CLIENT): value
            for name, value in self._values.items()
            if name.startswith(_CLIENT)
        }


def _parsed(given: _RawOptions, starting: Position) -> SourceOptions:
    """`starting`: where nothing else is said."""
    _check_names(given)
    found = SourceOptions(
        topics=_topics(given),
        client=_client(given),
        starting=_position(given, "starting", starting),
        ending=_position(given, "ending", LogBoundary.LATEST),
        max_offsets_per_trigger=given.read("maxOffsetsPerTrigger", _positive, None),
        min_offsets_per_trigger=given.read("minOffsetsPerTrigger", _positive, None),
        max_trigger_delay_ms=given.read("maxTriggerDelay", milliseconds, 15 * 60_000),
        min_partitions=given.read("minPartitions", _positive, None),
        max_records_per_partition=given.read("maxRecordsPerPartition", _positive, None),
        include_headers=given.bool("includeHeaders", False),
        fail_on_data_loss=given.bool("failOnDataLoss", True),
        poll_timeout_ms=given.read("kafkaConsumer.pollTimeoutMs", _positive, 120_000),
        fetch_offset_num_retries=given.read("fetchOffset.numRetries", _positive, 3),
        fetch_offset_retry_interval_ms=given.read("fetchOffset.retryIntervalMs", _natural, 1_000),
        source_name=given.text("sourceName") or "",
    )
    low, high = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            f"minOffsetsPerTrigger {low} is greater than maxOffsetsPerTrigger {high}: "
            "no batch could satisfy both"
        )
    return found


def _topics(given: _RawOptions) -> Topics:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if given.has(name)]
    if len(ways) != 1:
        raise OptionError(
            f"one of subscribe, subscribePattern and assign says what to read; "
            f"{' and '.join(ways) or 'none of them'} is set"
        )
    text = given.text(ways[0]) or ""
    if ways == ["assign"]:
        return Assign(partitions_of("assign", text))
    if ways == ["subscribePattern"]:
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


def _position(given: _RawOptions, which: str, default: Position) -> Position:
    """A time for all wins over times, and those over offsets, as in Spark's own source."""
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy {strategy!r}: it is error or latest, and says "
            "where to start when no record is as late as the time"
        )
    latest_if_none = which == "ending" or strategy == "latest"
    if given.has(f"{which}Timestamp"):
        return AtTime(given.read(f"{which}Timestamp", _natural, 0), latest_if_none)
    by_time = f"{which}OffsetsByTimestamp"
    if given.has(by_time):
        return AtTimes(times_of(by_time, given.text(by_time) or ""), latest_if_none)
    text = given.text(f"{which}Offsets")
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


def _client(given: _RawOptions) -> dict[str, str]:
    client = given.client()
    for name, advice in _REFUSED.items():
        if name in client:
            raise OptionError(f"kafka.{name} cannot be set for this source: {advice}")
    if not client.get("bootstrap.servers"):
        raise OptionError(
            "kafka.bootstrap.servers is missing: the brokers to ask first, host:port with commas"
        )
    for name in sorted(client.keys() & _JAVA):
        logger.warning("kafka.%s has no effect: it is a setting of Java's client", name)
    kept = {name: value for name, value in client.items() if name not in _UNUSED | _JAVA}
    by_name = {name.replace(".", "_"): value for name, value in kept.items()}
    try:
        resolve(ConsumerOptions, by_name)
    except ConfigError as error:
        known = settings_of(ConsumerOptions).keys() | by_name.keys()
        raise ConfigError(_with_dots(error.message, known)) from None
    return kept


def _with_dots(message: str, names: AbstractSet[str]) -> str:
    """What the client says of its settings, by the names that they have here."""
    return re.sub(
        r"\w+",
        lambda word: _CLIENT + word[0].replace("_", ".") if word[0] in names else word[0],
        message,
    )


def _check_names(given: _RawOptions) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in given.names():
        if name in known or name.startswith(_CLIENT):
            continue
        if name.replace(".", "_") in settings_of(ConsumerOptions):
            raise OptionError(f"there is no option {name}: did you mean kafka.{name}?")
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if near:
            raise OptionError(f"there is no option {name}: did you mean {known[near[0]]}?")


def _check_stream(given: _RawOptions) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if given.has(name):
            raise OptionError(
                f"{name} is for spark.read only: a streaming query has no end. To read what is "
                "there and stop, use trigger(availableNow=True)"
            )


def _check_batch(given: _RawOptions, found: SourceOptions) -> None:
    if found.starting is LogBoundary.LATEST:
        raise OptionError("startingOffsets=latest leaves nothing to read for spark.read")
    if found.ending is LogBoundary.EARLIEST:
        raise OptionError("endingOffsets=earliest leaves nothing to read")
    for position, name, wrong, word in (
        (found.starting, "startingOffsets", LATEST, "latest"),
        (found.ending, "endingOffsets", EARLIEST, "earliest"),
    ):
        if isinstance(position, AtOffsets):
            offsets = position.offsets.offsets
            if bad := {each for each, offset in offsets.items() if offset == wrong}:
                raise OptionError(
                    f"{name} of {listed(bad)} is {wrong} ({word}): that leaves nothing to read"
                )
    check_order(found.starting, found.ending)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if given.has(name):
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
