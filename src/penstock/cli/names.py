"""Parses topics, partitions and settings on the command line. No I/O.

An argument that consists of characters that topic names may have (`orders.eu`) is the name of a
topic. Any other argument is a regular expression that must match whole names (`orders.*`); a comma
means "or", as in Kafka's scripts.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.cli.output import UsageError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_RANGE = re.compile(r"([0-9]+)?(-)?([0-9]+)?")


def is_name(word: str) -> bool:
    """Returns whether the argument names one topic; otherwise it is a pattern."""
    return _NAME.fullmatch(word) is not None


def pattern(word: str) -> Callable[[str], bool]:
    """Returns a predicate: whether a whole name matches a regular expression."""
    try:
        compiled = re.compile(word)
    except re.error as error:
        raise UsageError(f"'{word}' is not a regular expression: {error}") from None
    return lambda name: compiled.fullmatch(name) is not None


def choose_topics(
    words: Iterable[str],
    visible: Collection[str],
    hidden: Collection[str] = (),
    *,
    must_match: bool = True,
) -> list[str]:
    """Returns the topics that the arguments select, each once.

    Patterns match `visible` topics only. A name is returned as it is: it may be that of a `hidden`
    (internal) topic, and the broker reports an unknown one. With `must_match`, a pattern without a
    match is an error.
    """
    chosen: dict[str, None] = {}
    for word in words:
        names = word.split(",")
        if all(is_name(name) for name in names):
            chosen |= dict.fromkeys(names)
            continue
        matches = pattern(word.replace(",", "|"))
        topics = sorted(name for name in visible if matches(name))
        if not topics and must_match:
            internal = any(matches(name) for name in hidden)
            remedy = "add --internal for internal ones" if internal else ""
            raise _unknown(f"no topic matches '{word}'", remedy)
        chosen |= dict.fromkeys(topics)
    return list(chosen)


class PartitionSet(NamedTuple):
    """A selection of partitions: `0,2-4,7-`. Without ranges it contains all."""

    ranges: tuple[tuple[int, int | None], ...] = ()

    def has(self, number: int) -> bool:
        return not self.ranges or any(
            low <= number and (high is None or number <= high) for low, high in self.ranges
        )

    @classmethod
    def parse(cls, text: str) -> "PartitionSet":
        ranges = []
        for part in text.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None or match[1] is None or (match[3] and not match[2]):
                raise UsageError(
                    f"'{text}' does not name partitions", remedy="write 3, 0,2 or 4-7 or 4-"
                )
            low = int(match[1])
            high = low if not match[2] else None if match[3] is None else int(match[3])
            if high is not None and high < low:
                raise UsageError(f"'{part}' is not a range: the smaller number comes first")
            ranges.append((low, high))
        return cls(tuple(ranges))

    def missing(self, count: int) -> list[int]:
        """Returns the partitions that a topic with `count` partitions does not have."""
        return sorted({low for low, _ in self.ranges if low >= count})


class TopicSelection(NamedTuple):
    """A topic or pattern with partitions: `orders:0,2-4`."""

    topic: str
    partitions: PartitionSet

    @classmethod
    def parse(cls, word: str) -> "TopicSelection":
        topic, colon, numbers = word.rpartition(":")
        if not colon:
            return cls(word, PartitionSet())
        if not topic:
            raise UsageError(
                f"'{word}' does not name a topic", remedy="write TOPIC or TOPIC:PARTITIONS"
            )
        return cls(topic, PartitionSet.parse(numbers))


def choose_partitions(
    words: Iterable[str], counts: Mapping[str, int], hidden: Collection[str] = ()
) -> list[TopicPartition]:
    """Returns the partitions that the arguments select, sorted, each once.

    `counts` has the number of partitions of every topic; patterns do not match `hidden` ones.
    """
    chosen: set[TopicPartition] = set()
    visible = [name for name in counts if name not in hidden]
    for word in words:
        selection = TopicSelection.parse(word)
        for topic in choose_topics([selection.topic], visible, hidden):
            if topic not in counts:
                raise _unknown(
                    f"there is no topic {topic}, or this user may not see it",
                    "check the name against penstock topic list",
                )
            if missing := selection.partitions.missing(counts[topic]):
                raise _unknown(
                    f"topic {topic} has no partition {missing[0]}: it has 0 to {counts[topic] - 1}"
                )
            chosen.update(
                TopicPartition(topic, number)
                for number in range(counts[topic])
                if selection.partitions.has(number)
            )
    return sorted(chosen)


def _unknown(cause: str, remedy: str = "") -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, cause, remedy=remedy)


def one_partition(word: str) -> TopicPartition:
    """Parses a partition: `orders:3`."""
    topic, _, number = word.rpartition(":")
    if not topic or not number.isascii() or not number.isdecimal():
        raise UsageError(
            f"'{word}' is not a partition", remedy="write TOPIC:PARTITION, such as orders:0"
        )
    return TopicPartition(topic, int(number))


def key_values(words: Iterable[str], option: str) -> dict[str, str]:
    """Parses `KEY=VALUE` arguments. A value may be empty and may contain `=`."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError("it must be KEY=VALUE", subject=f"{option} {word}")
        values[key.strip()] = value
    return values


def replica_lists(text: str) -> list[list[int]]:
    """Parses the replicas of each partition as in Kafka's `--replica-assignment`: `0:1,1:2`."""
    try:
        lists = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"'{text}' is not an assignment",
            remedy="write the brokers of each partition, such as 0:1,1:2 for partition "
            "0 on brokers 0 and 1, partition 1 on 1 and 2",
        ) from None
    return lists


def count_of(number: int, singular: str, plural: str | None = None) -> str:
    """Returns a number with its noun: `1 topic`, `2 topics`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def and_more(values: Sequence[object], at_most: int = 10) -> str:
    """Returns the items for a sentence; of many only the first ones."""
    text = ", ".join(map(str, values[:at_most]))
    return text if len(values) <= at_most else f"{text} and {len(values) - at_most} more"
