"""How far queries are whose results go to topics: one record for each, in a compacted topic.

A record is written in the same Kafka transaction as the results, so both are there or neither is.
Offsets of a consumer group would not do: a broker forgets them some days after the last commit.
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
from penstock.spark.clients import new_admin, new_consumer
from penstock.spark.errors import PipelineError, ProgressError
from penstock.spark.progress import Json, SourceOffsets, StoredProgress

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.consumer.record import ConsumerRecord
    from penstock.client.producer.producer import Producer

log = logging.getLogger(__name__)

TOPIC: Final = "_penstock_pipelines"
PARTITIONS: Final = 8
"""Fixed: partitions that somebody adds later must not move keys."""

_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.01",
}

_FIRST_WINDOW: Final = 64
"""A record is looked for among so many last offsets first, then among ever more of them."""

_POLL_S: Final = 0.02
_PATIENCE_S: Final = 5.0
"""After so long, whoever waits is told for what."""

_LONGEST_WAIT_S: Final = 20 * 60.0
"""Longer than brokers let any transaction be (`transaction.max.timeout.ms`, 15 minutes)."""


@dataclass(frozen=True)
class LedgerEntry:
    """What is known of one key."""

    stored: StoredProgress | None
    """None: it has never run, or was cleared."""
    owner: str = ""
    rows: int = 0
    """Of the last batch."""
    clearing: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records before these offsets are being deleted: finish that first."""
    fingerprint: str = ""
    """Of what the last batch read, where only that is known of it."""

    def to_bytes(self, now: datetime) -> bytes:
        found: dict[str, Json] = {"owner": self.owner, "at": now.isoformat(timespec="milliseconds")}
        if self.stored is not None:
            found |= {"rows": self.rows, **self.stored.to_json()}
        if self.fingerprint:
            found["fingerprint"] = self.fingerprint
        if self.clearing:
            found["clearing"] = SourceOffsets(self.clearing).to_json()
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, key: str, written: bytes) -> "LedgerEntry":
        try:
            found = json.loads(written)
            return cls(
                StoredProgress.from_json(found) if "progress" in found else None,
                found.get("owner", ""),
                int(found.get("rows", 0)),
                SourceOffsets.from_json(found.get("clearing", {})).offsets,
                found.get("fingerprint", ""),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProgressError(
                f"the record of {key} in topic {TOPIC} cannot be read ({error!r}): it was written "
                "by something else, or by a newer version of Penstock; use that version"
            ) from error


class Ledger:
    """The topic, for one thread. `client` has Kafka's dotted names."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = {**client, "isolation.level": "read_committed"}
        self._admin: Admin | None = None
        self._consumer: Consumer | None = None
        self._is_there = False

    def ensure(self) -> None:
        """Make the topic, where it is missing; others may do the same at the same time.

        A topic that somebody made with other settings is refused: retention would take progress
        away, and the pipeline would start anew.
        """
        try:
            found = self._connect().describe_topics([TOPIC])[TOPIC]
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._is_there = not self._create()
        else:
            _check_partitions(len(found.partitions))
            self._check_policy()
            self._is_there = True

    def _create(self) -> bool:
        """False if it is there already."""
        from penstock.client.admin.model_topics import NewTopic

        try:
            self._connect().create_topics([NewTopic(TOPIC, PARTITIONS, configs=_CONFIG)])
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
            configs = self._connect().describe_configs([topic], names=["cleanup.policy"])[topic]
        except KafkaError as error:
            log.warning("the settings of topic %s could not be looked at: %s", TOPIC, error)
            return
        policy = configs["cleanup.policy"].value
        if policy != "compact":
            raise PipelineError(
                f"topic {TOPIC} has cleanup.policy={policy}: progress would be deleted with time. "
                "Set it to compact (`penstock config alter`)"
            )

    def read(self, key: str) -> LedgerEntry | None:
        """The last committed record of this key, up to now; None if there is none.

        Transactions that are open now are waited for, because what comes after them cannot be seen
        before they end. Whoever means to go on from it fences other producers of this key first;
        who only wants to know need not.
        """
        partition = partition_of(key)
        try:
            end = self._list_offset(partition, -1)
        except KafkaError as error:
            # A broker that has just started may not know a topic yet.
            if self._is_there or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None
        start = self._list_offset(partition, -2)
        window = _FIRST_WINDOW
        upper = end
        while upper > start:
            lower = max(start, end - window)
            found = self._last(key.encode(), partition, lower, upper)
            if found is not None:
                return LedgerEntry.from_bytes(key, found) if found else None
            upper, window = lower, window * 16
        return None

    def put(self, producer: "Producer", key: str, entry: LedgerEntry | None) -> None:
        """Write a record as part of the producer's open transaction; None takes the key away."""
        value = None if entry is None else entry.to_bytes(datetime.now(UTC))
        partition = partition_of(key).partition
        producer.send(TOPIC, value, key=key.encode(), partition=partition)

    def close(self) -> None:
        for client in (self._admin, self._consumer):
            if client is not None:
                client.close()
        self._admin = self._consumer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _list_offset(self, partition: TopicPartition, spec: int) -> int:
        """The high watermark (-1) or the start of the log (-2)."""
        return self._connect().list_offsets({partition: spec})[partition].offset

    def _last(self, key: bytes, partition: TopicPartition, lower: int, upper: int) -> bytes | None:
        """The value of the last record with this key in a range; empty for a tombstone."""
        consumer = self._consumer
        if consumer is None:
            consumer = self._consumer = committed_consumer(self._client)
        found: bytes | None = None
        for record in committed_records(consumer, partition, lower, upper):
            if record.key == key:
                found = record.value or b""
        return found

    def _connect(self) -> "Admin":
        if self._admin is None:
            self._admin = new_admin(self._client)
        return self._admin


def committed_consumer(client: Mapping[str, str]) -> "Consumer":
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
    """What a read_committed consumer finds in a range. It waits for transactions that are open."""
    consumer.assign([partition])
    consumer.seek(partition, lower)
    since = time.monotonic()
    was_told = False
    while consumer.position(partition) < upper:
        for record in consumer.poll(_POLL_S):
            if record.offset >= upper:
                return
            since = time.monotonic()
            yield record
        waited = time.monotonic() - since
        if waited > _PATIENCE_S and not was_told:
            was_told = True
            log.warning(
                "waiting for open transactions on %s: a driver of another pipeline was killed in "
                "the middle of one; its transaction.timeout.ms ends it",
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
            "pipeline has written to it, delete it: it is made again as it must be"
        )
