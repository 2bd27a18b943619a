"""The JSON of options: partitions, and an offset or a time for each partition."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TypeGuard

from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError, ProgressError
from penstock.spark.progress import Json, SourceOffsets

LATEST = -1
"""Stands for the end of the partition."""
EARLIEST = -2
"""Stands for the start of the partition."""
MAX_LONG = 2**63 - 1
"""The maximum of offsets and times, which are Java's long."""


def partitions_of(option: str, text: str) -> frozenset[TopicPartition]:
    """Parses `{"a": [0, 1], "b": [0]}`."""
    example = '{"a": [0, 1], "b": [0]}'
    partitions: set[TopicPartition] = set()
    for topic, numbers in _object(option, text, example).items():
        if not isinstance(numbers, list):
            raise _unlike(option, text, example)
        for number in numbers:
            if not _is_whole(number) or number < 0:
                raise _unlike(option, text, example)
            partitions.add(TopicPartition(topic, number))
    if not partitions:
        raise OptionError(f"{option} names no partition: it is e.g. {example}")
    return frozenset(partitions)


def offsets_of(option: str, text: str) -> SourceOffsets:
    """Parses `{"a": {"0": 23, "1": -1}}`; topic ids as in a checkpoint are allowed."""
    example = '{"a": {"0": 23, "1": -1}, "b": {"0": -2}}'
    try:
        source = SourceOffsets.from_json(_object(option, text, example))
    except ProgressError:
        raise _unlike(option, text, example) from None
    for partition, offset in source.offsets.items():
        if not _is_whole(offset) or not EARLIEST <= offset <= MAX_LONG:
            raise OptionError(
                f"{option}: {offset} is no offset of {partition}: it is 0 or more, "
                f"{LATEST} (latest) or {EARLIEST} (earliest)"
            )
    return source


def times_of(option: str, text: str) -> Mapping[TopicPartition, int]:
    """Parses `{"a": {"0": 1700000000000}}`: milliseconds since 1970."""
    example = '{"a": {"0": 1700000000000, "1": 1700000000000}}'
    try:
        times = SourceOffsets.from_json(_object(option, text, example)).offsets
    except ProgressError:
        raise _unlike(option, text, example) from None
    for partition, time in times.items():
        if not _is_whole(time) or not 0 <= time <= MAX_LONG:
            raise OptionError(f"{option}: {time} is no time for {partition}: ms since 1970")
    return times


def listed(partitions: AbstractSet[TopicPartition]) -> str:
    """Returns up to ten partitions as text, for a message."""
    names = sorted(map(str, partitions))
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _object(option: str, text: str, example: str) -> dict[str, Json]:
    try:
        document = json.loads(text)
    except ValueError:
        raise _unlike(option, text, example) from None
    if not isinstance(document, dict):
        raise _unlike(option, text, example)
    return document


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _unlike(option: str, text: str, example: str) -> OptionError:
    return OptionError(f"{option} is e.g. {example}, not {text}")
