"""Who sees every record before it is sent, and what became of it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from penstock.client.producer.future import RecordMetadata
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

log = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class ProducerRecord:
    """A record as the user sent it: before serializers and partitioners."""

    topic: str
    value: object = None
    key: object = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class Interceptor(Protocol):
    """What an interceptor must have; see `ProducerInterceptor`."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Headers
    ) -> None: ...

    def close(self) -> None: ...


class ProducerInterceptor:
    """Subclass it, or have its methods. What they raise is logged and changes nothing."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Before anything else; on the caller's thread. May return another record."""
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Headers
    ) -> None:
        """A record was acknowledged or failed; on the sender's thread: be quick. A record that
        `send` itself refused is told on the caller's thread, with the partition as far as known."""

    def close(self) -> None:
        """The producer is closed."""


class ProducerInterceptors:
    """All of them, in their order."""

    def __init__(self, given: Sequence[object]) -> None:
        self._all = [
            cast("Interceptor", each() if isinstance(each, type) else each) for each in given
        ]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for each in self._all:
            try:
                record = each.on_send(record)
            except Exception:
                log.exception("on_send of interceptor %r for topic %s", each, record.topic)
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Headers
    ) -> None:
        for each in self._all:
            try:
                each.on_acknowledgement(metadata, error, headers)
            except Exception:
                log.exception("on_acknowledgement of interceptor %r", each)

    def refused(
        self, record: ProducerRecord, partition: TopicPartition | None, error: KafkaError
    ) -> None:
        """`send` raises this instead of sending the record."""
        number = -1 if partition is None else partition.partition
        metadata = RecordMetadata(record.topic, number, -1, -1, -1, -1)
        self.on_acknowledgement(metadata, error, record.headers)

    def close(self) -> None:
        for each in self._all:
            try:
                each.close()
            except Exception:
                log.exception("closing of interceptor %r", each)
