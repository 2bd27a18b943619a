"""Interceptors: objects that see every record before it is sent, and its outcome."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from penstock.client.producer.future import RecordMetadata
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class ProducerRecord:
    """A record as it was passed to `send`, before serialization and partitioning."""

    topic: str
    value: object = None
    key: object = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class ProducerInterceptor:
    """The base class of interceptors; any object with these methods will do.

    Exceptions of the methods are logged and have no other effect.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called first, on the caller's thread. Returns the record to send, perhaps another one."""
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Headers
    ) -> None:
        """Called when a record is acknowledged or has failed, on the sender's thread: be quick.

        For a record that `send` itself rejects it is called on the caller's thread, with the
        partition if it is known.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


class ProducerInterceptors:
    """Calls all interceptors in order."""

    def __init__(self, interceptors: Sequence[object]) -> None:
        self._all = [
            cast("ProducerInterceptor", entry() if isinstance(entry, type) else entry)
            for entry in interceptors
        ]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._all:
            try:
                record = interceptor.on_send(record)
            except Exception:
                logger.exception(
                    "on_send of interceptor %r failed for topic %s", interceptor, record.topic
                )
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Headers
    ) -> None:
        for interceptor in self._all:
            try:
                interceptor.on_acknowledgement(metadata, error, headers)
            except Exception:
                logger.exception("on_acknowledgement of interceptor %r failed", interceptor)

    def on_send_error(
        self, record: ProducerRecord, partition: TopicPartition | None, error: KafkaError
    ) -> None:
        """Reports a record that `send` rejects with this error."""
        number = -1 if partition is None else partition.partition
        metadata = RecordMetadata(record.topic, number, -1, -1, -1, -1)
        self.on_acknowledgement(metadata, error, record.headers)

    def close(self) -> None:
        for interceptor in self._all:
            try:
                interceptor.close()
            except Exception:
                logger.exception("close of interceptor %r failed", interceptor)
