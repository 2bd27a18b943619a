"""Progress in the consumer group named after the pipeline, so that every Kafka tool shows its lag.

The group is a courtesy to whoever watches. What counts is stored with the results: a commit that
fails costs nothing but a late figure, and a group that somebody resets moves nothing.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.spark.clients import new_admin
from penstock.spark.progress import Progress
from penstock.spark.watch.report import BatchReport
from penstock.spark.watch.run_listener import RunListener

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

_log = logging.getLogger(__name__)


class SlowestOffsets:
    """How far the slowest of a pipeline's queries is in each partition."""

    def __init__(self) -> None:
        self._queries: dict[str, dict[TopicPartition, int]] = {}

    def update(self, query: str, end: Progress) -> dict[TopicPartition, int]:
        """A query has come this far; what the group should say now of these partitions."""
        # A topic may be read by two sources of one query: the slower one counts.
        reached: dict[TopicPartition, int] = {}
        for source in end.values():
            for partition, offset in source.offsets.items():
                reached[partition] = min(offset, reached.get(partition, offset))
        self._queries[query] = reached
        every = list(self._queries.values())  # another query may begin meanwhile
        return {
            partition: min(each[partition] for each in every if partition in each)
            for partition in reached
        }


class GroupLag(RunListener):
    """Commits finished batches to the group. Its methods never raise what a broker does."""

    def __init__(self, pipeline: str, client: Mapping[str, str]) -> None:
        """`client` has Kafka's settings by their dotted names, `bootstrap.servers` among them."""
        self._group = pipeline
        self._client = client
        self._slowest = SlowestOffsets()
        self._admin: Admin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def begins(self, query: str, at: Progress) -> None:
        # It may be long before it has finished a batch.
        self._slowest.update(query, at)

    def finished(self, report: BatchReport) -> None:
        offsets = self._slowest.update(report.query, report.end)
        if not offsets:
            return
        try:
            self._connected().alter_group_offsets(self._group, offsets)
        except KafkaError as error:
            _log.warning(
                "the lag of group %s is not up to date: %s. The pipeline itself goes on",
                self._group,
                error.message,
            )

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _connected(self) -> "Admin":
        if self._admin is None:
            self._admin = new_admin(self._client)
        return self._admin
