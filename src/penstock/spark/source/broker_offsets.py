"""The partitions of a source and their offsets, as the brokers report them."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeVar, cast

from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import OffsetSpec, TopicDescription
from penstock.client.errors import UnknownTopicError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import LazyAdmin
from penstock.spark.errors import OptionError
from penstock.spark.exactly_once import recreated_topics
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.offsets_json import LATEST, listed
from penstock.spark.source.options import Assign, SourceOptions, Subscribe, SubscribePattern
from penstock.spark.source.positions import AtOffsets, AtTime, AtTimes, LogBoundary, Position
from penstock.spark.source.topic_ids import to_text

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ABSENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True)
class CurrentPartitions:
    """The partitions to read that exist now."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    """Also of topics of which no partition is read; empty if the broker has no ids."""


class BrokerOffsets:
    """Reads partitions and offsets from the brokers, in up to `fetchOffset.numRetries` attempts.

    Connects at the first call. Used by one thread, which must close it.
    """

    def __init__(
        self, options: SourceOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._topics = options.topics
        self._isolation: Literal["read_committed", "read_uncommitted"] = (
            "read_committed" if options.read_committed else "read_uncommitted"
        )
        self._attempts = options.fetch_offset_num_retries
        self._interval_ms = options.fetch_offset_retry_interval_ms
        self._source = options.source_name
        self._sleep = sleep
        self._admin = LazyAdmin(options.client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._admin.close()

    # --- partitions

    def current_partitions(self) -> CurrentPartitions:
        """Returns the partitions to read, without those of topics that do not exist."""
        return self._retry(self._find)

    def _find_all(self) -> CurrentPartitions:
        """Raises `UnknownTopicError` if a topic or partition of the options does not exist."""
        current = self._find()
        missing: set[str] = set()
        if isinstance(self._topics, Subscribe):
            missing = set(self._topics.topics) - {
                partition.topic for partition in current.partitions
            }
        elif isinstance(self._topics, Assign):
            missing = set(map(str, self._topics.partitions - current.partitions))
        if missing:
            kind = "partition" if isinstance(self._topics, Assign) else "topic"
            raise UnknownTopicError(
                f"{', '.join(sorted(missing))}: there is no such {kind}",
                remedy="create it first, or correct the name; subscribePattern waits for topics "
                "to come",
            )
        return current

    def _find(self) -> CurrentPartitions:
        if isinstance(self._topics, SubscribePattern):
            pattern = self._topics.pattern
            names = [name for name in self._admin.get().list_topics() if pattern.search(name)]
        elif isinstance(self._topics, Assign):
            names = sorted({partition.topic for partition in self._topics.partitions})
        else:
            names = list(self._topics.topics)
        described = self._described(names)
        partitions = frozenset(
            TopicPartition(topic.name, partition.partition)
            for topic in described
            for partition in topic.partitions
        )
        if isinstance(self._topics, Assign):
            partitions &= self._topics.partitions
        ids = {topic.name: to_text(topic.topic_id) for topic in described if topic.topic_id}
        return CurrentPartitions(partitions, ids)

    def _described(self, names: list[str]) -> list[TopicDescription]:
        if not names:
            return []
        try:
            return list(self._admin.get().describe_topics(names).values())
        except AdminError as error:
            for cause in error.errors.values():
                if cause.code not in _ABSENT:
                    raise cause from None
            return cast("list[TopicDescription]", list(error.results.values()))

    # --- offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offsets, without partitions that no longer exist."""
        return self._list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def latest(self, known: SourceOffsets | None = None) -> SourceOffsets:
        """Returns the end offsets of all partitions to read; the last stable offsets if only
        committed records are read.

        The offsets belong to the topics whose ids are returned with them, unless topics are
        recreated during every attempt; tasks detect that. If an end is lower than a known one, or a
        partition is missing, it queries again, because the broker may lag behind another one. A
        result that stays the same is returned.
        """
        attempt = 0
        while True:
            attempt += 1
            current = self.current_partitions()
            ends = self._list_offsets(dict.fromkeys(current.partitions, OffsetSpec.LATEST))
            all_ends = SourceOffsets(ends, _ids_of(current.topic_ids, ends), self._source)
            if (
                known is not None
                and known.offsets == ends
                and known.topic_ids == all_ends.topic_ids
            ):
                return all_ends
            if attempt >= self._attempts:
                return all_ends
            if self.current_partitions() != current or len(ends) < len(current.partitions):
                logger.info("topics change while their offsets are read")
            elif decreased := self._decreased(known, all_ends):
                logger.warning("offsets have decreased, reading them again: %s", decreased)
                self._sleep(self._interval_ms / 1000)
            else:
                return all_ends

    def resolve(self, position: Position, *, is_start: bool) -> SourceOffsets:
        """Returns the offsets of a starting or ending position.

        Raises `UnknownTopicError` if a topic or partition of the options does not exist. Topic ids
        that the position contains are kept: they say which topic was meant.
        """
        current = self._retry(self._find_all)
        specs = _offset_specs(position, current, is_start=is_start)
        boundaries = {partition: spec for partition, spec in specs.items() if spec < 0}
        offsets = {**specs, **self._list_offsets(boundaries)}
        if isinstance(position, AtTime | AtTimes):
            offsets = self._offsets_at_times(specs, latest_if_none=position.latest_if_none)
        if missing := specs.keys() - offsets.keys():
            raise UnknownTopicError(f"{listed(missing)} was deleted while its offsets were read")
        ids = _ids_of(current.topic_ids, offsets)
        if isinstance(position, AtOffsets):
            ids |= _ids_of(position.offsets.topic_ids, offsets)
        return SourceOffsets(offsets, ids, self._source)

    def _offsets_at_times(
        self, times: Mapping[TopicPartition, int], *, latest_if_none: bool
    ) -> dict[TopicPartition, int]:
        offsets = self._list_offsets(times)
        without_record = {partition for partition, offset in offsets.items() if offset < 0}
        if without_record and not latest_if_none:
            partition = min(without_record)
            raise OptionError(
                f"no record of {partition} is as late as {times[partition]} (ms since 1970)",
                remedy="choose an earlier time, or set startingOffsetsByTimestampStrategy to "
                "latest",
            )
        latest = self._list_offsets(dict.fromkeys(without_record, OffsetSpec.LATEST))
        return {**offsets, **latest}

    def _list_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns offsets by boundary or by time, without partitions that no longer exist."""
        if not specs:
            return {}

        def request() -> dict[TopicPartition, int]:
            try:
                results = self._admin.get().list_offsets(specs, isolation_level=self._isolation)
            except AdminError as error:
                for cause in error.errors.values():
                    if cause.code not in _ABSENT:
                        raise cause from None
                results = error.results
            return {partition: result.offset for partition, result in results.items()}

        return self._retry(request)

    def _decreased(self, known: SourceOffsets | None, now: SourceOffsets) -> str:
        """Returns the partitions with a lower end than before, except those of recreated topics."""
        if known is None:
            return ""
        recreated = recreated_topics(known, now)
        return ", ".join(
            f"{partition} from {offset} to {now.offsets.get(partition, 'nothing')}"
            for partition, offset in known.offsets.items()
            if partition.topic not in recreated and now.offsets.get(partition, -1) < offset
        )

    # --- requests

    def _retry(self, request: Callable[[], T]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return request()
            except KafkaError as error:
                if attempt == self._attempts or not error.code.retriable:
                    raise
                logger.warning("attempt %d to get offsets failed: %s", attempt, error)
                self.close()
                self._sleep(self._interval_ms / 1000)
        raise AssertionError("there is at least one attempt")


def _offset_specs(
    position: Position, current: CurrentPartitions, *, is_start: bool
) -> dict[TopicPartition, int]:
    """Returns an offset, a time, EARLIEST or LATEST for each partition."""
    if isinstance(position, LogBoundary):
        return dict.fromkeys(current.partitions, position.value)
    if isinstance(position, AtTime):
        return dict.fromkeys(current.partitions, position.time)
    named = position.offsets.offsets if isinstance(position, AtOffsets) else position.times
    if named.keys() != current.partitions:
        which = "starting" if is_start else "ending"
        option = f"{which}Offsets" + ("" if isinstance(position, AtOffsets) else "ByTimestamp")
        missing, more = current.partitions - named.keys(), named.keys() - current.partitions
        problems = [f"{listed(missing)} is missing"] if missing else []
        problems += [f"{listed(more)} is not read"] if more else []
        hint = f" ({LATEST} is latest, -2 earliest)" if isinstance(position, AtOffsets) else ""
        raise OptionError(f"{option} must name each partition{hint}: {' and '.join(problems)}")
    return dict(named)


def _ids_of(topic_ids: Mapping[str, str], partitions: Iterable[TopicPartition]) -> dict[str, str]:
    topics = {partition.topic for partition in partitions}
    return {name: topic_id for name, topic_id in topic_ids.items() if name in topics}
