"""What new metadata says about the topics that a consumer reads."""

import logging
from collections.abc import Callable
from typing import Final

from penstock.client.consumer.subscriptions import SubscriptionKind, SubscriptionState
from penstock.client.errors import UnknownTopicError, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster

logger = logging.getLogger(__name__)

_UNKNOWN_FOR_MS: Final = 1_000
"""So long must answers say that an assigned partition does not exist: it may be about to."""


class TopicWatch:
    """Resolves patterns, and says what is wrong with topics (E3, E5)."""

    def __init__(
        self,
        subscriptions: SubscriptionState,
        *,
        hides_internal: bool,
        report: Callable[[KafkaError], None],
    ) -> None:
        self._subscriptions = subscriptions
        self._hides_internal = hides_internal
        self._report = report
        self._unknown_since: dict[TopicPartition, int] = {}
        self._warned: set[str] = set()

    def resolve(self, cluster: Cluster) -> bool:
        """Subscribe to the topics that the pattern matches; whether they are others now."""
        subscriptions = self._subscriptions
        return subscriptions.has_pattern_subscription and subscriptions.subscribe_from_pattern(
            name
            for name, topic in cluster.topics.items()
            if subscriptions.matches_subscribed_pattern(name)
            and not (topic.is_internal and self._hides_internal)
        )

    def check(self, cluster: Cluster, now_ms: int) -> None:
        """Topics that may not be seen, and those that are not there."""
        for name in self._subscriptions.metadata_topics():
            topic = cluster.topics.get(name)
            if topic is not None:
                self._check_topic(name, topic.error)
        if self._subscriptions.kind is SubscriptionKind.ASSIGNED:
            self._check_partitions(cluster, now_ms)

    def _check_topic(self, name: str, error: ErrorCode) -> None:
        if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            said = (
                f"this client may not see topic {name}: its user needs the ACL DESCRIBE (and READ "
                "to consume) on it"
            )
            self._report(error_of(error, said))
        elif error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name not in self._warned:
            self._warned.add(name)
            logger.warning("there is no topic %s yet: create it, or check its name", name)

    def _check_partitions(self, cluster: Cluster, now_ms: int) -> None:
        """A subscription waits for its topics; who chose partitions by hand means these."""
        since = {
            each: self._unknown_since.get(each, now_ms)
            for each in self._subscriptions.assigned_partitions()
            if _is_missing(cluster, each)
        }
        final = sorted(each for each, at_ms in since.items() if now_ms - at_ms >= _UNKNOWN_FOR_MS)
        # Said again only after as long.
        self._unknown_since = {**since, **dict.fromkeys(final, now_ms)}
        if final:
            self._report(
                UnknownTopicError(
                    f"assigned, but not there: {', '.join(map(str, final))}. Create the topic, or "
                    "check its name and number of partitions"
                )
            )


def _is_missing(cluster: Cluster, partition: TopicPartition) -> bool:
    topic = cluster.topics.get(partition.topic)
    if topic is None:
        return False
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return True
    return bool(topic.partitions) and partition.partition >= len(topic.partitions)
