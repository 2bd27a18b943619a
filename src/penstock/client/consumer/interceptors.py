"""Interceptors of a consumer: they see polled records and committed offsets."""

import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.client.consumer.record import ConsumerRecord, OffsetAndMetadata
from penstock.client.errors import ConfigError
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerInterceptor:
    """A base class: override the methods that you need. Errors are logged and ignored."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Returns the records that poll returns instead of `records`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Is called after offsets have been committed."""

    def close(self) -> None:
        """Is called when the consumer is closed."""


class Interceptors:
    """The interceptors of a consumer, in their order."""

    def __init__(self, interceptors: Sequence[object]) -> None:
        """Takes interceptors and classes of interceptors."""
        self._interceptors: list[ConsumerInterceptor] = []
        for value in interceptors:
            interceptor = value() if isinstance(value, type) else value
            if not isinstance(interceptor, ConsumerInterceptor):
                raise ConfigError(
                    f"interceptors: {interceptor!r} is no ConsumerInterceptor; derive its class "
                    "from it"
                )
            self._interceptors.append(interceptor)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                logger.exception("interceptor %r failed in on_consume", interceptor)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._call_all(lambda interceptor: interceptor.on_commit(offsets), "on_commit")

    def close(self) -> None:
        self._call_all(lambda interceptor: interceptor.close(), "close")

    def _call_all(self, call: Callable[[ConsumerInterceptor], None], name: str) -> None:
        for interceptor in self._interceptors:
            try:
                call(interceptor)
            except Exception:
                logger.exception("interceptor %r failed in %s", interceptor, name)
