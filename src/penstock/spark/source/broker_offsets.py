"""What the broker says: which partitions there are, and their offsets."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeVar, cast

from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import OffsetSpec, TopicDescription
from penstock.client.errors import UnknownTopicError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import new_admin
from penstock.spark.errors import OptionError
from penstock.spark.exactly_once import recreated_topics
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.offsets_json import LATEST, listed
from penstock.spark.source.options import Assign, SourceOptions, Subscribe, SubscribePattern
from penstock.spark.source.positions import AtOffsets, AtTime, AtTimes, LogBoundary, Position
from penstock.spark.source.topic_ids import to_text

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ABSENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True)
class CurrentPartitions:
    """The partitions to read, as they are now."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    """Also of a topic none of whose partitions is read; none where the broker has no ids."""


class BrokerOffsets:
    """Asks the broker, again where that may help: `fetchOffset.numRetries` times in all.

    It connects when first asked. Not for several threads. Close it.
    """

    def __init__(
        self, options: SourceOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._topics = options.topics
        self._client = options.client
        self._isolation: Literal["read_committed", "read_uncommitted"] = (
            "read_committed" if options.read_committed else "read_uncommitted"
        )
        self._attempts = options.fetch_offset_num_retries
        self._interval_ms = options.fetch_offset_retry_interval_ms
        self._source = options.source_name
        self._sleep = sleep
        self._connections: Admin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
            self._connections = None

    # --- What there is ----------------------------------------------------------------------------

    def found(self) -> CurrentPartitions:
        """Topics that are named and do not exist are left out."""
        return self._retried(self._find)

    def _find_all(self) -> CurrentPartitions:
        """UnknownTopicError where something that is named is not there."""
        found = self._find()
        missing: set[str] = set()
        if isinstance(self._topics, Subscribe):
            missing = set(self._topics.topics) - {partition.topic for partition in found.partitions}
        elif isinstance(self._topics, Assign):
            missing = set(map(str, self._topics.partitions - found.partitions))
        if missing:
            kind = "partition" if isinstance(self._topics, Assign) else "topic"
            raise UnknownTopicError(
                f"{', '.join(sorted(missing))}: there is no such {kind}. Create it first, or "
                "correct the name; subscribePattern waits for topics to come"
            )
        return found

    def _find(self) -> CurrentPartitions:
        if isinstance(self._topics, SubscribePattern):
            pattern = self._topics.pattern
            names = [name for name in self._admin.list_topics() if pattern.search(name)]
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
            return list(self._admin.describe_topics(names).values())
        except AdminError as error:
            for other in error.errors.values():
                if other.code not in _ABSENT:
                    raise other from None
            return cast("list[TopicDescription]", list(error.results.values()))

    # --- Offsets ----------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each; partitions that are gone are left out."""
        return self._listed(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    def latest(self, known: SourceOffsets | None = None) -> SourceOffsets:
        """The ends of all partitions to read: of the last stable offset where only committed
        records are read.

        All offsets belong to the topics whose ids come with them, unless topics change whenever
        they are asked for: tasks notice that. An end below one that is known, and a partition that
        is gone, is asked for again, because a broker may lag behind what another one has said
        before; if it stays so, it is the truth.
        """
        attempt = 0
        while True:
            attempt += 1
            found = self.found()
            ends = self._listed(dict.fromkeys(found.partitions, OffsetSpec.LATEST))
            whole = SourceOffsets(ends, _of(found.topic_ids, ends), self._source)
            if known is not None and known.offsets == ends and known.topic_ids == whole.topic_ids:
                return whole
            if attempt >= self._attempts:
                return whole
            if self.found() != found or len(ends) < len(found.partitions):
                logger.info("topics change while their offsets are asked for")
            elif back := self._backwards(known, whole):
                logger.warning("offsets went back, asking again: %s", back)
                self._sleep(self._interval_ms / 1000)
            else:
                return whole

    def resolve(self, position: Position, *, is_start: bool) -> SourceOffsets:
        """Where reading starts, or ends. Everything that is named must exist.

        Where ids came with the offsets they are kept: they say which topic was meant.
        """
        found = self._retried(self._find_all)
        wanted = _wanted(position, found, is_start=is_start)
        by_name = {each: spec for each, spec in wanted.items() if spec < 0}
        offsets = {**wanted, **self._listed(by_name)}
        if isinstance(position, AtTime | AtTimes):
            offsets = self._at_times(wanted, latest_if_none=position.latest_if_none)
        if gone := wanted.keys() - offsets.keys():
            raise UnknownTopicError(f"{listed(gone)} went away while the offsets were asked for")
        ids = _of(found.topic_ids, offsets)
        if isinstance(position, AtOffsets):
            ids |= _of(position.offsets.topic_ids, offsets)
        return SourceOffsets(offsets, ids, self._source)

    def _at_times(
        self, times: Mapping[TopicPartition, int], *, latest_if_none: bool
    ) -> dict[TopicPartition, int]:
        offsets = self._listed(times)
        without = {each for each, offset in offsets.items() if offset < 0}
        if without and not latest_if_none:
            partition = min(without)
            raise OptionError(
                f"no record of {partition} is as late as {times[partition]} (ms since 1970): "
                "choose an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            )
        return {**offsets, **self._listed(dict.fromkeys(without, OffsetSpec.LATEST))}

    def _listed(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets by name or by time; partitions that are gone are left out."""
        if not specs:
            return {}

        def ask() -> dict[TopicPartition, int]:
            try:
                answer = self._admin.list_offsets(specs, isolation_level=self._isolation)
            except AdminError as error:
                for other in error.errors.values():
                    if other.code not in _ABSENT:
                        raise other from None
                answer = error.results
            return {partition: each.offset for partition, each in answer.items()}

        return self._retried(ask)

    def _backwards(self, known: SourceOffsets | None, now: SourceOffsets) -> str:
        """Partitions whose end was further, or that are gone; but not those of a new topic."""
        if known is None:
            return ""
        others = recreated_topics(known, now)
        return ", ".join(
            f"{each} from {offset} to {now.offsets.get(each, 'nothing')}"
            for each, offset in known.offsets.items()
            if each.topic not in others and now.offsets.get(each, -1) < offset
        )

    # --- How --------------------------------------------------------------------------------------

    @property
    def _admin(self) -> "Admin":
        if self._connections is None:
            self._connections = new_admin(self._client)
        return self._connections

    def _retried(self, ask: Callable[[], T]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return ask()
            except KafkaError as error:
                if attempt == self._attempts or not error.code.retriable:
                    raise
                logger.warning("attempt %d to get offsets failed: %s", attempt, error)
                self.close()
                self._sleep(self._interval_ms / 1000)
        raise AssertionError("there is at least one attempt")


def _wanted(
    position: Position, found: CurrentPartitions, *, is_start: bool
) -> dict[TopicPartition, int]:
    """An offset, a time, EARLIEST or LATEST for each partition."""
    if isinstance(position, LogBoundary):
        return dict.fromkeys(found.partitions, position.value)
    if isinstance(position, AtTime):
        return dict.fromkeys(found.partitions, position.time)
    named = position.offsets.offsets if isinstance(position, AtOffsets) else position.times
    if named.keys() != found.partitions:
        which = "starting" if is_start else "ending"
        option = f"{which}Offsets" + ("" if isinstance(position, AtOffsets) else "ByTimestamp")
        missing, more = found.partitions - named.keys(), named.keys() - found.partitions
        said = [f"{listed(missing)} is missing"] if missing else []
        said += [f"{listed(more)} is not read"] if more else []
        hint = f" ({LATEST} is latest, -2 earliest)" if isinstance(position, AtOffsets) else ""
        raise OptionError(f"{option} must name each partition{hint}: {' and '.join(said)}")
    return dict(named)


def _of(topic_ids: Mapping[str, str], partitions: Iterable[TopicPartition]) -> dict[str, str]:
    topics = {partition.topic for partition in partitions}
    return {name: each for name, each in topic_ids.items() if name in topics}
