"""The topics of a cluster, and those that names and patterns on the command line select."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.names import choose_partitions
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin


class ClusterTopics(NamedTuple):
    """The replicas of every partition of a cluster, and the names of its internal topics."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    internal: list[str]

    @classmethod
    def read(cls, admin: "Admin") -> "ClusterTopics":
        topics = admin.describe_topics(admin.list_topics(include_internal=True)).values()
        replicas = {
            TopicPartition(topic.name, partition.partition): partition.replicas
            for topic in topics
            for partition in topic.partitions
        }
        return cls(replicas, [topic.name for topic in topics if topic.is_internal])

    def choose(self, words: list[str]) -> list[TopicPartition]:
        """Returns the partitions that `TOPIC[:PARTITIONS]` arguments select, sorted, each once."""
        return choose_partitions(words, partition_counts(self.replicas), self.internal)


def partition_counts(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """Returns one more than the largest partition of each topic."""
    counts: dict[str, int] = {}
    for topic, partition in partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts
