"""The end offsets of topics when a batch is finished, from which its lag is computed.

Spark reports the end offsets at the time when the batch was planned. A query that reads everything
in each batch reaches them, so it would never seem to lag, however long a batch takes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from penstock.core.errors import KafkaError
from penstock.spark.clients import LazyAdmin
from penstock.spark.progress import SourceOffsets
from penstock.spark.watch.report import BatchReport

_TIMEOUT_MS = 5_000


class LatestOffsets:
    """Reads end offsets from the brokers. Used by one thread; connects at the first call."""

    def __init__(self, client: Mapping[str, str]) -> None:
        """`client` has Kafka's settings by their dotted names.

        Like the sources, it counts committed records only, unless `isolation.level` says otherwise.
        """
        limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(_TIMEOUT_MS))
        self._admin = LazyAdmin(limits | dict(client))
        reads_uncommitted = client.get("isolation.level") == "read_uncommitted"
        self._isolation: Literal["read_uncommitted", "read_committed"] = (
            "read_uncommitted" if reads_uncommitted else "read_committed"
        )

    def update(self, report: BatchReport) -> BatchReport:
        """Returns the report with the current end offsets; unchanged if no broker responds."""
        from penstock.client.admin.model_topics import OffsetSpec

        partitions = {
            partition for source in report.latest.values() for partition in source.offsets
        }
        if not partitions:
            return report
        try:
            current = self._admin.get().list_offsets(
                dict.fromkeys(partitions, OffsetSpec.LATEST), isolation_level=self._isolation
            )
        except KafkaError:
            return report
        latest: dict[str, SourceOffsets] = {}
        for name, source in report.latest.items():
            # End offsets never decrease, whichever broker responds.
            ends = {
                partition: max(last, current[partition].offset)
                for partition, last in source.offsets.items()
            }
            latest[name] = replace(source, offsets=ends)
        return replace(report, latest=latest)

    def close(self) -> None:
        self._admin.close()
