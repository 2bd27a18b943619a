"""What sees records on their way to the program, and commits on their way to the group."""

import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.client.consumer.record import ConsumerRecord, OffsetAndMetadata
from penstock.client.errors import ConfigError
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerInterceptor:
    """Override what you need. Errors are logged and change nothing."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """What poll is about to give out; what is returned is given out instead."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed."""

    def close(self) -> None:
        """The consumer is closed."""


class Interceptors:
    """All of a consumer's, in their order."""

    def __init__(self, given: Sequence[object]) -> None:
        made = [each() if isinstance(each, type) else each for each in given]
        for each in made:
            if not isinstance(each, ConsumerInterceptor):
                raise ConfigError(f"interceptors: {each!r} is no ConsumerInterceptor: derive it")
        self._all = [each for each in made if isinstance(each, ConsumerInterceptor)]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for each in self._all:
            try:
                records = each.on_consume(records)
            except Exception:
                logger.exception("interceptor %r failed in on_consume", each)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._tell(lambda each: each.on_commit(offsets), "on_commit")

    def close(self) -> None:
        self._tell(lambda each: each.close(), "close")

    def _tell(self, call: Callable[[ConsumerInterceptor], None], name: str) -> None:
        for each in self._all:
            try:
                call(each)
            except Exception:
                logger.exception("interceptor %r failed in %s", each, name)
