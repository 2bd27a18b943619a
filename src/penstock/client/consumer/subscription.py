"""How partitions come to a consumer: by topics, by a pattern, or chosen by hand."""

import re
from collections.abc import Iterable
from enum import Enum
from threading import RLock

from penstock.client.consumer.record import RebalanceListener, SubscriptionPattern
from penstock.client.errors import IllegalStateError


class SubscriptionKind(Enum):
    """How partitions come to a consumer."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    SERVER_PATTERN = "a pattern that the broker resolves"
    ASSIGNED = "partitions chosen by hand"


class Subscription:
    """What was asked for; the ways to ask exclude each other. Thread-safe."""

    def __init__(self) -> None:
        self._lock = RLock()
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
    def subscription(self) -> frozenset[str]:
        """Topics subscribed to, by list or as the pattern was resolved; empty after `assign`."""
        return self._topics if self.has_auto_assigned_partitions else frozenset()

    @property
    def subscription_pattern(self) -> SubscriptionPattern | None:
        """The pattern that the broker resolves."""
        return self._server_pattern

    @property
    def listener(self) -> RebalanceListener | None:
        return self._listener

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """Whether a group gives the partitions."""
        return self._kind not in (SubscriptionKind.NONE, SubscriptionKind.ASSIGNED)

    @property
    def has_pattern_subscription(self) -> bool:
        """Whether this client resolves a pattern."""
        return self._kind is SubscriptionKind.PATTERN

    @property
    def has_no_subscription_or_assignment(self) -> bool:
        return self._kind is SubscriptionKind.NONE

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None = None) -> bool:
        """Whether the topics are others than before."""
        with self._lock:
            self._set_kind(SubscriptionKind.TOPICS)
            self._listener = listener
            return self._change_topics(topics)

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
        """The topics that the pattern matches now; whether they are others than before."""
        with self._lock:
            if self._kind is not SubscriptionKind.PATTERN:
                raise IllegalStateError(f"the subscription is to {self._kind.value}: no pattern")
            return self._change_topics(topics)

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """A leader's duty: watch what all members subscribe to. Whether some are not its own."""
        with self._lock:
            if not self.has_auto_assigned_partitions:
                raise IllegalStateError("there is no subscription: subscribe() first")
            self._group_topics = frozenset(topics)
            return not self._group_topics <= self._topics

    def reset_group_subscription(self) -> None:
        """No leader any more: only its own topics matter to it."""
        with self._lock:
            self._group_topics = frozenset()

    def metadata_topics(self) -> frozenset[str]:
        """All topics that metadata is needed of."""
        with self._lock:
            return self._topics | self._group_topics

    def matches_subscribed_pattern(self, topic: str) -> bool:
        """Whether the whole name matches the pattern that this client resolves."""
        pattern = self._pattern
        return pattern is not None and pattern.fullmatch(topic) is not None

    def unsubscribe(self) -> None:
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
                f"this consumer is subscribed to {self._kind.value}, which excludes {kind.value}: "
                "call unsubscribe() first"
            )

    def _change_topics(self, topics: Iterable[str]) -> bool:
        new = frozenset(topics)
        changed = new != self._topics
        self._topics = new
        return changed
