"""The JSON in options: partitions, and an offset or a time for each partition."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TypeGuard

from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError, ProgressError
from penstock.spark.progress import Json, SourceOffsets

LATEST = -1
"""In place of an offset: the end of the partition."""
EARLIEST = -2
"""In place of an offset: the first record that is still there."""
MAX_LONG = 2**63 - 1
"""Offsets and times are Java's long."""


def partitions_of(option: str, text: str) -> frozenset[TopicPartition]:
    """Of `{"a": [0, 1], "b": [0]}`."""
    example = '{"a": [0, 1], "b": [0]}'
    found: set[TopicPartition] = set()
    for topic, numbers in _object(option, text, example).items():
        if not isinstance(numbers, list):
            raise _unlike(option, text, example)
        for number in numbers:
            if not _is_whole(number) or number < 0:
                raise _unlike(option, text, example)
            found.add(TopicPartition(topic, number))
    if not found:
        raise OptionError(f"{option} names no partition: it is e.g. {example}")
    return frozenset(found)


def offsets_of(option: str, text: str) -> SourceOffsets:
    """Of `{"a": {"0": 23, "1": -1}, "b": {"0": -2}}`; also with the topic ids of a checkpoint."""
    example = '{"a": {"0": 23, "1": -1}, "b": {"0": -2}}'
    try:
        found = SourceOffsets.from_json(_object(option, text, example))
    except ProgressError:
        raise _unlike(option, text, example) from None
    for partition, offset in found.offsets.items():
        if not _is_whole(offset) or not EARLIEST <= offset <= MAX_LONG:
            raise OptionError(
                f"{option}: {offset} is no offset of {partition}: it is 0 or more, "
                f"{LATEST} (latest) or {EARLIEST} (earliest)"
            )
    return found


def times_of(option: str, text: str) -> Mapping[TopicPartition, int]:
    """Of `{"a": {"0": 1700000000000}}`: milliseconds since 1970."""
    example = '{"a": {"0": 1700000000000, "1": 1700000000000}}'
    try:
        found = SourceOffsets.from_json(_object(option, text, example)).offsets
    except ProgressError:
        raise _unlike(option, text, example) from None
    for partition, time in found.items():
        if not _is_whole(time) or not 0 <= time <= MAX_LONG:
            raise OptionError(f"{option}: {time} is no time for {partition}: ms since 1970")
    return found


def listed(partitions: AbstractSet[TopicPartition]) -> str:
    """Partitions in a message."""
    names = sorted(map(str, partitions))
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _object(option: str, text: str, example: str) -> dict[str, Json]:
    try:
        read = json.loads(text)
    except ValueError:
        raise _unlike(option, text, example) from None
    if not isinstance(read, dict):
        raise _unlike(option, text, example)
    return read


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _unlike(option: str, text: str, example: str) -> OptionError:
    return OptionError(f"{option} is e.g. {example}, not {text}")
