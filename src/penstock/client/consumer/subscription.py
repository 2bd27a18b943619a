"""The subscription of a consumer: topics, a pattern, or partitions that the user assigns."""

import re
from collections.abc import Iterable
from enum import Enum
from threading import RLock

from penstock.client.consumer.record import RebalanceListener, SubscriptionPattern
from penstock.client.errors import IllegalStateError


class SubscriptionKind(Enum):
    """How a consumer gets its partitions."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    SERVER_PATTERN = "a pattern that the broker resolves"
    ASSIGNED = "partitions that were assigned by the user"


class Subscription:
    """The current subscription; its kinds exclude each other. Thread-safe."""

    def __init__(self, lock: RLock) -> None:
        """`lock` is that of the owner, which changes the subscription with its assignment."""
        self._lock = lock
        self._kind = SubscriptionKind.NONE
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._server_pattern: SubscriptionPattern | None = None
        self._listener: RebalanceListener | None = None

    @property
    def kind(self) -> SubscriptionKind:
        return self._kind

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics, by name or as the pattern was resolved; empty after `assign`."""
        return self._topics if self.has_auto_assigned_partitions else frozenset()

    @property
    def server_pattern(self) -> SubscriptionPattern | None:
        """The pattern that the broker resolves."""
        return self._server_pattern

    @property
    def listener(self) -> RebalanceListener | None:
        return self._listener

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """Whether a group assigns the partitions."""
        return self._kind not in (SubscriptionKind.NONE, SubscriptionKind.ASSIGNED)

    @property
    def has_pattern(self) -> bool:
        """Whether this client resolves a pattern."""
        return self._kind is SubscriptionKind.PATTERN

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a subscription nor an assignment."""
        return self._kind is SubscriptionKind.NONE

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> bool:
        """Returns whether the topics have changed."""
        with self._lock:
            self._set_kind(SubscriptionKind.TOPICS)
            self._listener = listener
            return self._set_topics(topics)

    def subscribe_pattern(
        self,
        pattern: re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        with self._lock:
            if isinstance(pattern, SubscriptionPattern):
                self._set_kind(SubscriptionKind.SERVER_PATTERN)
                self._server_pattern = pattern
            else:
                self._set_kind(SubscriptionKind.PATTERN)
                self._pattern = pattern
            self._listener = listener

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """Sets the topics that match the pattern now; returns whether they have changed."""
        with self._lock:
            if self._kind is not SubscriptionKind.PATTERN:
                raise IllegalStateError(
                    f"the subscription is to {self._kind.value}, not to a pattern"
                )
            return self._set_topics(topics)

    def assign(self, topics: Iterable[str]) -> bool:
        """Notes the topics of partitions that the user assigns; returns whether they changed."""
        with self._lock:
            self.check_assign()
            return self._set_topics(topics)

    def check_assign(self) -> None:
        """Raises IllegalStateError if there is a subscription to topics or to a pattern."""
        self._set_kind(SubscriptionKind.ASSIGNED)

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """Notes the topics of all members, whose metadata the group's leader needs.

        Returns whether some of them are not its own.
        """
        with self._lock:
            if not self.has_auto_assigned_partitions:
                raise IllegalStateError("there is no subscription", remedy="call subscribe() first")
            self._group_topics = frozenset(topics)
            return not self._group_topics <= self._topics

    def metadata_topics(self) -> frozenset[str]:
        """Returns all topics whose metadata is needed."""
        with self._lock:
            return self._topics | self._group_topics

    def matches_pattern(self, topic: str) -> bool:
        """Returns whether the whole name matches the pattern that this client resolves."""
        pattern = self._pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def has_topic(self, topic: str) -> bool:
        """Returns false for a topic that was removed from a subscription by name."""
        return self._kind is not SubscriptionKind.TOPICS or topic in self._topics

    def clear(self) -> None:
        with self._lock:
            self._kind = SubscriptionKind.NONE
            self._topics = self._group_topics = frozenset()
            self._pattern = self._server_pattern = None
            self._listener = None

    def _set_kind(self, kind: SubscriptionKind) -> None:
        if self._kind is SubscriptionKind.NONE:
            self._kind = kind
        elif self._kind is not kind:
            raise IllegalStateError(
                f"this consumer is subscribed to {self._kind.value}, which excludes {kind.value}",
                remedy="call unsubscribe() first",
            )

    def _set_topics(self, topics: Iterable[str]) -> bool:
        new_topics = frozenset(topics)
        has_changed = new_topics != self._topics
        self._topics = new_topics
        return has_changed
