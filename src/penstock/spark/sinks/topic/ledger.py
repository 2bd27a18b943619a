"""The progress of queries with topic sinks: one record for each query, in a compacted topic.

The record is written in the same Kafka transaction as the results, so both are committed or
neither. Offsets of a consumer group would not do: they expire some days after the last commit.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import LazyAdmin, describe_topic, new_consumer
from penstock.spark.errors import PipelineError, ProgressError
from penstock.spark.progress import Json, SourceOffsets, StoredProgress

if TYPE_CHECKING:
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.consumer.record import ConsumerRecord
    from penstock.client.producer.producer import Producer

logger = logging.getLogger(__name__)

TOPIC: Final = "_penstock_pipelines"
PARTITIONS: Final = 8
"""Fixed, so that partitions which are added later do not move keys."""


def check_destination(topic: str) -> None:
    """Raises `PipelineError` for the ledger's own topic: a record there could replace progress."""
    if topic == TOPIC:
        raise PipelineError(
            f"the topic {TOPIC} contains the progress of pipelines, and rows must not be written "
            "to it",
            remedy="name another topic",
        )


_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.01",
}

_FIRST_WINDOW: Final = 64
"""The number of last offsets that are searched for a record first; then ever more."""

_POLL_S: Final = 0.02
_WARN_AFTER_S: Final = 5.0
"""After this time a log message says what is being waited for."""

_LONGEST_WAIT_S: Final = 20 * 60.0
"""Longer than brokers allow transactions to last (`transaction.max.timeout.ms`, 15 minutes)."""


@dataclass(frozen=True)
class LedgerEntry:
    """The ledger's record of one query."""

    stored: StoredProgress | None
    """None: the query has never run, or was cleared."""
    owner: str = ""
    rows: int = 0
    """The number of rows of the last batch."""
    clearing: Mapping[TopicPartition, int] = field(default_factory=dict)
    """A rebuild deletes the records before these offsets; the next owner must finish it."""
    fingerprint: str = ""
    """A hash of the offsets of the last batch, for streams outside of pipelines."""

    def to_bytes(self, now: datetime) -> bytes:
        document: dict[str, Json] = {
            "owner": self.owner,
            "at": now.isoformat(timespec="milliseconds"),
        }
        if self.stored is not None:
            document |= {"rows": self.rows, **self.stored.to_json()}
        if self.fingerprint:
            document["fingerprint"] = self.fingerprint
        if self.clearing:
            document["clearing"] = SourceOffsets(self.clearing).to_json()
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, key: str, written: bytes) -> "LedgerEntry":
        try:
            document = json.loads(written)
            return cls(
                StoredProgress.from_json(document) if "progress" in document else None,
                document.get("owner", ""),
                int(document.get("rows", 0)),
                SourceOffsets.from_json(document.get("clearing", {})).offsets,
                document.get("fingerprint", ""),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProgressError(
                f"the record of {key} in topic {TOPIC} cannot be read ({error!r}): it was written "
                "by something else, or by a newer version of Penstock",
                remedy="use that version",
            ) from error


class Ledger:
    """The compacted topic with the progress of queries. Used by one thread."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = {**client, "isolation.level": "read_committed"}
        self._admin = LazyAdmin(self._client)
        self._consumer: Consumer | None = None
        self._exists = False

    def ensure(self) -> None:
        """Creates the topic if it is missing; other processes may do the same concurrently.

        Raises `PipelineError` if the topic has other settings: retention would delete progress, and
        pipelines would start from scratch.
        """
        topic = describe_topic(self._admin.get(), TOPIC)
        if topic is None:
            self._exists = not self._create()
        else:
            _check_partitions(len(topic.partitions))
            self._check_policy()
            self._exists = True

    def _create(self) -> bool:
        """Returns False if the topic exists already."""
        from penstock.client.admin.model_topics import NewTopic

        try:
            self._admin.get().create_topics([NewTopic(TOPIC, PARTITIONS, configs=_CONFIG)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _check_policy(self) -> None:
        from penstock.client.admin.model_configs import ConfigResource
        from penstock.protocol.enums import ConfigResourceType

        topic = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        try:
            configs = self._admin.get().describe_configs([topic], names=["cleanup.policy"])[topic]
        except KafkaError as error:
            logger.warning("the settings of topic %s could not be read: %s", TOPIC, error)
            return
        policy = configs["cleanup.policy"].value
        if policy != "compact":
            raise PipelineError(
                f"topic {TOPIC} has cleanup.policy={policy}: progress would be deleted over time",
                remedy="set it to compact (`penstock config alter`)",
            )

    def read(self, key: str) -> LedgerEntry | None:
        """Returns the last committed record of a key; None if there is none.

        Waits for open transactions, because records after them cannot be read before they end. A
        caller that resumes from the record must fence other producers of the key first.
        """
        partition = partition_of(key)
        try:
            end = self._list_offset(partition, -1)
        except KafkaError as error:
            # A broker that has just started may not know an existing topic yet.
            if self._exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None
        start = self._list_offset(partition, -2)
        window = _FIRST_WINDOW
        upper = end
        while upper > start:
            lower = max(start, end - window)
            value = self._last_value(key.encode(), partition, lower, upper)
            if value is not None:
                return LedgerEntry.from_bytes(key, value) if value else None
            upper, window = lower, window * 16
        return None

    def put(self, producer: "Producer", key: str, entry: LedgerEntry | None) -> None:
        """Writes a record in the producer's open transaction; None writes a tombstone."""
        value = None if entry is None else entry.to_bytes(datetime.now(UTC))
        partition = partition_of(key).partition
        producer.send(TOPIC, value, key=key.encode(), partition=partition)

    def close(self) -> None:
        self._admin.close()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _list_offset(self, partition: TopicPartition, spec: int) -> int:
        """Returns the high watermark (-1) or the log start offset (-2)."""
        return self._admin.get().list_offsets({partition: spec})[partition].offset

    def _last_value(
        self, key: bytes, partition: TopicPartition, lower: int, upper: int
    ) -> bytes | None:
        """Returns the value of the last record with this key in a range; empty for a tombstone."""
        consumer = self._consumer
        if consumer is None:
            consumer = self._consumer = committed_consumer(self._client)
        value: bytes | None = None
        for record in committed_records(consumer, partition, lower, upper):
            if record.key == key:
                value = record.value or b""
        return value


def committed_consumer(client: Mapping[str, str]) -> "Consumer":
    """Returns a consumer without a group that reads committed records only."""
    return new_consumer(
        client,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        isolation_level="read_committed",
    )


def committed_records(
    consumer: "Consumer", partition: TopicPartition, lower: int, upper: int
) -> "Iterator[ConsumerRecord]":
    """Yields the committed records of a range; waits for open transactions."""
    if lower >= upper:
        # The consumer would wait for records there, and delay the next partition.
        return
    consumer.assign([partition])
    consumer.seek(partition, lower)
    since = time.monotonic()
    has_warned = False
    while consumer.position(partition) < upper:
        for record in consumer.poll(_POLL_S):
            if record.offset >= upper:
                return
            since = time.monotonic()
            yield record
        waited = time.monotonic() - since
        if waited > _WARN_AFTER_S and not has_warned:
            has_warned = True
            logger.warning(
                "waiting for open transactions on %s: a driver of another pipeline was killed "
                "during a transaction, which ends after its transaction.timeout.ms",
                partition,
            )
        if waited > _LONGEST_WAIT_S:
            raise PipelineError(
                f"{partition} could not be read up to offset {upper}: a transaction on it hangs. "
                "`penstock txn find-hanging` shows it"
            )


def partition_of(key: str) -> TopicPartition:
    from penstock.client.producer.partitioners import partition_for_key

    return TopicPartition(TOPIC, partition_for_key(key.encode(), PARTITIONS))


def _check_partitions(count: int) -> None:
    if count < PARTITIONS:
        raise PipelineError(
            f"topic {TOPIC} has {count} partitions, and {PARTITIONS} are needed. While no "
            "pipeline has written to it, delete it: it is created again as needed"
        )
