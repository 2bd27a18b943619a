"""Commits progress to the consumer group of the pipeline, so that every Kafka tool shows its lag.

The group is for monitoring only; the progress that counts is stored with the results. A commit that
fails only delays the figures, and resetting the group does not move the pipeline.
"""

import logging
from collections.abc import Mapping
from typing import Self

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import LazyAdmin
from penstock.spark.progress import Progress
from penstock.spark.watch.report import BatchReport
from penstock.spark.watch.run_listener import RunListener

logger = logging.getLogger(__name__)


class SlowestOffsets:
    """The offsets of the slowest query of a pipeline in each partition."""

    def __init__(self) -> None:
        self._queries: dict[str, dict[TopicPartition, int]] = {}

    def update(self, query: str, end: Progress) -> dict[TopicPartition, int]:
        """Records the progress of a query, and returns the offsets to commit for its partitions."""
        # Two sources of one query may read the same topic: the slower one counts.
        reached: dict[TopicPartition, int] = {}
        for source in end.values():
            for partition, offset in source.offsets.items():
                reached[partition] = min(offset, reached.get(partition, offset))
        self._queries[query] = reached
        queries = list(self._queries.values())  # another thread may add a query
        return {
            partition: min(offsets[partition] for offsets in queries if partition in offsets)
            for partition in reached
        }


class GroupLag(RunListener):
    """Commits finished batches to the group. Errors of brokers are logged, not raised."""

    def __init__(self, pipeline: str, client: Mapping[str, str]) -> None:
        """`client` has Kafka's settings by their dotted names, including `bootstrap.servers`."""
        self._group = pipeline
        self._slowest = SlowestOffsets()
        self._admin = LazyAdmin(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def begins(self, query: str, at: Progress) -> None:
        # The query counts even before it has finished its first batch.
        self._slowest.update(query, at)

    def finished(self, report: BatchReport) -> None:
        offsets = self._slowest.update(report.query, report.end)
        if not offsets:
            return
        try:
            self._admin.get().alter_group_offsets(self._group, offsets)
        except KafkaError as error:
            logger.warning(
                "the lag of group %s is not up to date: %s. The pipeline itself continues",
                self._group,
                error.message,
            )

    def close(self) -> None:
        self._admin.close()
