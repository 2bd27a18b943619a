"""Where topics end when a batch is finished: how far behind it leaves the pipeline.

Spark says where they ended when the batch was planned. Of a query that reads all there is in each
batch, that is where it has read to: it would never seem to be behind, however long it takes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import KafkaError
from penstock.spark.clients import new_admin
from penstock.spark.progress import SourceOffsets
from penstock.spark.watch.report import BatchReport

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

_TIMEOUT_MS = 5_000


class LatestOffsets:
    """Asks the broker. Used by one thread; connects when first asked."""

    def __init__(self, client: Mapping[str, str]) -> None:
        """`client` has Kafka's settings by their dotted names; as sources do, it goes by what is
        committed unless they say otherwise."""
        limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(_TIMEOUT_MS))
        self._client = limits | dict(client)
        everything = client.get("isolation.level") == "read_uncommitted"
        self._isolation: Literal["read_uncommitted", "read_committed"] = (
            "read_uncommitted" if everything else "read_committed"
        )
        self._admin: Admin | None = None

    def now(self, report: BatchReport) -> BatchReport:
        """The same with `latest` as it is now; as it was, where the broker cannot be asked."""
        from penstock.client.admin.model_topics import OffsetSpec

        partitions = {
            partition for source in report.latest.values() for partition in source.offsets
        }
        if not partitions:
            return report
        try:
            if self._admin is None:
                self._admin = new_admin(self._client)
            found = self._admin.list_offsets(
                dict.fromkeys(partitions, OffsetSpec.LATEST), isolation_level=self._isolation
            )
        except KafkaError:
            return report
        latest: dict[str, SourceOffsets] = {}
        for name, source in report.latest.items():
            # It never goes back, whichever broker has answered.
            ends = {each: max(last, found[each].offset) for each, last in source.offsets.items()}
            latest[name] = replace(source, offsets=ends)
        return replace(report, latest=latest)

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
