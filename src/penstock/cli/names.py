"""How topics, partitions and settings are named on the command line. All of it is pure.

A word made of letters that topics may have (`orders.eu`) is the name of a topic. Any other word is
a regular expression that must match whole names (`orders.*`); a comma stands for "or", as with
Kafka's scripts.
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
    """Whether the word names one topic; otherwise it is a pattern."""
    return _NAME.fullmatch(word) is not None


def pattern(word: str) -> Callable[[str], bool]:
    """Whether a whole name fits a regular expression."""
    try:
        compiled = re.compile(word)
    except re.error as error:
        raise UsageError(f"'{word}' is no regular expression: {error}") from None
    return lambda name: compiled.fullmatch(name) is not None


def choose_topics(
    words: Iterable[str],
    visible: Collection[str],
    hidden: Collection[str] = (),
    *,
    must_match: bool = True,
) -> list[str]:
    """The topics that the words mean, each once.

    Patterns only see the `visible` ones; a name may also be that of a `hidden` one (internal), or
    of none at all: the broker will say so. A pattern that fits nothing is an error if it
    `must_match`.
    """
    chosen: dict[str, None] = {}
    for word in words:
        names = word.split(",")
        if all(is_name(name) for name in names):
            chosen |= dict.fromkeys(names)
            continue
        fits = pattern(word.replace(",", "|"))
        found = sorted(name for name in visible if fits(name))
        if not found and must_match:
            internal = any(fits(name) for name in hidden)
            hint = ": add --internal for internal ones" if internal else ""
            raise _unknown(f"no topic matches '{word}'{hint}")
        chosen |= dict.fromkeys(found)
    return list(chosen)


class PartitionSet(NamedTuple):
    """Numbers of partitions as they were asked for: `0,2-4,7-`. Without ranges: all."""

    ranges: tuple[tuple[int, int | None], ...] = ()

    def has(self, number: int) -> bool:
        return not self.ranges or any(
            low <= number and (high is None or number <= high) for low, high in self.ranges
        )

    @classmethod
    def parse(cls, text: str) -> "PartitionSet":
        ranges = []
        for part in text.split(","):
            found = _RANGE.fullmatch(part.strip())
            if found is None or found[1] is None or (found[3] and not found[2]):
                raise UsageError(f"'{text}' names no partitions: write 3, 0,2 or 4-7 or 4-")
            low = int(found[1])
            high = low if not found[2] else None if found[3] is None else int(found[3])
            if high is not None and high < low:
                raise UsageError(f"'{part}' is no range: the smaller number comes first")
            ranges.append((low, high))
        return cls(tuple(ranges))

    def missing(self, count: int) -> list[int]:
        """Numbers that were named one by one, and that a topic with `count` partitions lacks."""
        return sorted({low for low, _ in self.ranges if low >= count})


class TopicWord(NamedTuple):
    """A topic, or a pattern, with partitions: `orders:0,2-4`."""

    topic: str
    partitions: PartitionSet

    @classmethod
    def parse(cls, word: str) -> "TopicWord":
        topic, colon, numbers = word.rpartition(":")
        if not colon:
            return cls(word, PartitionSet())
        if not topic:
            raise UsageError(f"'{word}' names no topic: write TOPIC or TOPIC:PARTITIONS")
        return cls(topic, PartitionSet.parse(numbers))


def choose_partitions(
    words: Iterable[str], counts: Mapping[str, int], hidden: Collection[str] = ()
) -> list[TopicPartition]:
    """The partitions that the words mean, each once, sorted.

    `counts` has the number of partitions of every topic; patterns do not see those in `hidden`.
    """
    chosen: set[TopicPartition] = set()
    visible = [name for name in counts if name not in hidden]
    for word in words:
        wanted = TopicWord.parse(word)
        for topic in choose_topics([wanted.topic], visible, hidden):
            if topic not in counts:
                raise _unknown(
                    f"there is no topic {topic}, or this user may not see it: "
                    "check the name against penstock topic list"
                )
            if missing := wanted.partitions.missing(counts[topic]):
                raise _unknown(
                    f"topic {topic} has no partition {missing[0]}: it has 0 to {counts[topic] - 1}"
                )
            chosen.update(
                TopicPartition(topic, number)
                for number in range(counts[topic])
                if wanted.partitions.has(number)
            )
    return sorted(chosen)


def _unknown(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def one_partition(word: str) -> TopicPartition:
    """`orders:3` as a partition."""
    topic, _, number = word.rpartition(":")
    if not topic or not number.isascii() or not number.isdecimal():
        raise UsageError(f"'{word}' is no partition: write TOPIC:PARTITION, such as orders:0")
    return TopicPartition(topic, int(number))


def key_values(words: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` words by their keys. The value may be empty, and may have more = in it."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {word}: it must be KEY=VALUE")
        found[key.strip()] = value
    return found


def replica_lists(text: str) -> list[list[int]]:
    """Brokers of partitions as Kafka's `--replica-assignment` has them: `0:1,1:2`."""
    try:
        lists = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"'{text}' is no assignment: write the brokers of each partition, such as 0:1,1:2 for "
            "partition 0 on brokers 0 and 1, partition 1 on 1 and 2"
        ) from None
    return lists


def count_of(number: int, one: str, many: str | None = None) -> str:
    """`1 topic`, `2 topics`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def and_more(items: Sequence[object], at_most: int = 10) -> str:
    """Items for a sentence; of many only the first ones."""
    shown = ", ".join(map(str, items[:at_most]))
    return shown if len(items) <= at_most else f"{shown} and {len(items) - at_most} more"
