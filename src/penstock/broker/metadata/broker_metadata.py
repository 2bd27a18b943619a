"""The broker's own view of the cluster: its image, and the components that follow it.

Brokers, topics and partitions come from the controller, settings and ACLs from the metadata store
(see `controller_requests` and `controller_host`). Both pass changes to `publish`: slow preparations
run first, then the image applies the changes, then the listeners (coordinators, authorizer, quotas,
settings) are notified. Many changes are published in parts, so that requests are served in between.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from penstock.broker.pacer import Pacer
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    PartitionRecord,
    Put,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)

Listener = Callable[[Sequence[Change]], None]

_CHANGES_AT_ONCE: Final = 100


class BrokerMetadata:
    """The image that this broker serves clients from. It belongs to the event loop's thread."""

    def __init__(self, image: ClusterImage, pacer: Pacer) -> None:
        self.image = image
        self.listeners: list[Listener] = []
        """Called with the changes after the image has applied them.

        An error of one is logged; the others still receive the changes.
        """
        self._pacer = pacer
        self._lock = asyncio.Lock()

    async def publish(self, changes: Sequence[Change]) -> None:
        """Applies changes after all earlier ones, and notifies the listeners."""
        if changes:
            async with self._lock:
                async for part in self._pacer.each(_slices(changes)):
                    self.publish_at_once(part)

    def publish_at_once(self, changes: Sequence[Change]) -> None:
        """Applies changes and notifies the listeners before any other task runs."""
        self.image.apply(changes)
        for listener in self.listeners:
            try:
                listener(changes)
            except Exception:
                logger.exception("a listener failed to apply metadata changes")


def _slices(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Yields the changes in parts; those of a small topic are in the same part.

    The record of a large topic comes after those of its partitions: clients see it when it is
    complete.
    """
    for part in _topic_slices(changes):
        if len(part) > 2 * _CHANGES_AT_ONCE:
            part = list(_with_topics_last(part))
            for start in range(0, len(part), _CHANGES_AT_ONCE):
                yield part[start : start + _CHANGES_AT_ONCE]
        else:
            yield part


def _with_topics_last(changes: Sequence[Change]) -> Iterator[Change]:
    """Yields each topic that is put after the changes of its partitions that follow it."""
    topic: Put | None = None
    for change in changes:
        if topic is not None and _topic_of(change) != _topic_of(topic):
            yield topic
            topic = None
        if isinstance(change, Put) and isinstance(change.record, TopicRecord):
            topic = change
        else:
            yield change
    if topic is not None:
        yield topic


def _topic_slices(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Yields the changes in parts; those of one topic are in the same part."""
    start = 0
    topic: str | None = None
    for position, change in enumerate(changes):
        previous, topic = topic, _topic_of(change)
        if position - start >= _CHANGES_AT_ONCE and (topic is None or topic != previous):
            yield changes[start:position]
            start = position
    yield changes[start:]


def _topic_of(change: Change) -> str | None:
    match change:
        case Put(TopicRecord(topic) | PartitionRecord(topic)):
            return topic
        case Put(ConfigRecord(entity=(("topics", topic),))):
            return topic
        case Delete(TopicKey(topic) | TopicPartition(topic)):
            return topic
        case Delete(ConfigKey(entity=(("topics", topic),))):
            return topic
    return None
