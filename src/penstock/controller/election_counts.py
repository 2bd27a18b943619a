"""Counts the elections among committed changes, for metrics."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, PartitionRecord, Put


@dataclass(slots=True)
class ElectionCounts:
    """Partitions whose leader has changed. The first leader of a new partition is not counted."""

    elections: int = 0
    unclean: int = 0
    """Those of a replica that was not in sync, so that records may be lost."""

    def add(self, image: ClusterImage, changes: Iterable[Change]) -> None:
        """Counts the elections in changes that the image does not contain yet."""
        for change in changes:
            if not isinstance(change, Put) or not isinstance(change.record, PartitionRecord):
                continue
            record = change.record
            previous = image.partitions.get(record.key)
            if previous is None or record.leader in (previous.leader, -1):
                continue
            self.elections += 1
            if record.leader not in (*previous.isr, *previous.eligible_leader_replicas):
                self.unclean += 1
