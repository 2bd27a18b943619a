"""What a consumer does with new metadata: patterns are resolved, missing topics reported."""

import logging
from collections.abc import Callable
from typing import Final

from penstock.client.consumer.subscription import SubscriptionKind
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.errors import UnknownTopicError, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster

logger = logging.getLogger(__name__)

_UNKNOWN_FOR_MS: Final = 1_000
"""How long metadata must lack an assigned partition, which may be about to be created."""


class TopicMetadataListener:
    """Resolves patterns, and reports topics that are missing or not authorized (E3, E5)."""

    def __init__(
        self,
        subscriptions: SubscriptionState,
        *,
        excludes_internal: bool,
        report: Callable[[KafkaError], None],
    ) -> None:
        self._subscriptions = subscriptions
        self._excludes_internal = excludes_internal
        self._report = report
        self._unknown_since: dict[TopicPartition, int] = {}
        self._warned: set[str] = set()

    def resolve_pattern(self, cluster: Cluster) -> bool:
        """Subscribes to the topics that match the pattern; returns whether they have changed."""
        subscription = self._subscriptions.subscription
        return subscription.has_pattern and subscription.subscribe_from_pattern(
            name
            for name, topic in cluster.topics.items()
            if subscription.matches_pattern(name)
            and not (topic.is_internal and self._excludes_internal)
        )

    def report_errors(self, cluster: Cluster, now_ms: int) -> None:
        """Reports topics that the client may not describe, and partitions that do not exist."""
        for name in self._subscriptions.subscription.metadata_topics():
            topic = cluster.topics.get(name)
            if topic is not None:
                self._check_topic(name, topic.error)
        if self._subscriptions.subscription.kind is SubscriptionKind.ASSIGNED:
            self._check_partitions(cluster, now_ms)

    def _check_topic(self, name: str, error: ErrorCode) -> None:
        if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            message = (
                f"this client may not describe topic {name}; its user needs the ACL DESCRIBE (and "
                "READ to consume) on it"
            )
            self._report(error_of(error, message))
        elif error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name not in self._warned:
            self._warned.add(name)
            logger.warning("topic %s does not exist yet; create it, or check its name", name)

    def _check_partitions(self, cluster: Cluster, now_ms: int) -> None:
        """Reports assigned partitions that do not exist. A subscription waits for its topics."""
        unknown_since = {
            partition: self._unknown_since.get(partition, now_ms)
            for partition in self._subscriptions.assigned_partitions()
            if _is_missing(cluster, partition)
        }
        missing = sorted(
            partition
            for partition, since_ms in unknown_since.items()
            if now_ms - since_ms >= _UNKNOWN_FOR_MS
        )
        # They are reported again after the same time.
        self._unknown_since = {**unknown_since, **dict.fromkeys(missing, now_ms)}
        if missing:
            self._report(
                UnknownTopicError(
                    f"assigned partitions do not exist: {', '.join(map(str, missing))}",
                    remedy="create the topic, or check its name and number of partitions",
                )
            )


def _is_missing(cluster: Cluster, partition: TopicPartition) -> bool:
    topic = cluster.topics.get(partition.topic)
    if topic is None:
        return False
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return True
    return bool(topic.partitions) and partition.partition >= len(topic.partitions)
