"""The changes that fill an empty store with the metadata of another one."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ControllerRecord,
    FeaturesRecord,
    IsrChangeRecord,
    LogDirEventRecord,
    PartitionRecord,
    PreferredElectionRecord,
    ProducerIdsRecord,
    Put,
    ReassignPartitionsRecord,
    Record,
)

PRODUCER_ID_MARGIN: Final = 1_000_000_000
"""How many producer ids are skipped: those that were allocated after a backup."""
LEADER_EPOCH_MARGIN: Final = 1000
"""How many leader epochs are skipped: those of elections after a backup."""

_TRANSIENT: Final = (
    BrokerRecord,
    ControllerRecord,
    IsrChangeRecord,
    LogDirEventRecord,
    ReassignPartitionsRecord,
    PreferredElectionRecord,
)


def lasting_records(records: Iterable[Record]) -> list[Record]:
    """Returns the records without sessions of brokers, notifications and requests of old tools."""
    return [record for record in records if not isinstance(record, _TRANSIENT)]


def restore_metadata(records: Iterable[Record], *, is_current: bool) -> list[Change]:
    """Returns the changes that put these records into an empty store, the cluster id last.

    Until it has an id, nobody takes a store that was filled in part for a cluster. Unless the
    records are current, producer ids and leader epochs continue behind a margin, because the logs
    may have newer ones than the records.
    """
    changes: list[Change] = []
    cluster_ids: list[Change] = []
    has_producer_ids = False
    for record in lasting_records(records):
        match record:
            case ClusterIdRecord():
                cluster_ids.append(Put(record))
            case PartitionRecord():
                epoch = record.leader_epoch + (0 if is_current else LEADER_EPOCH_MARGIN)
                changes.append(Put(replace(record, leader_epoch=epoch, partition_epoch=0)))
            case FeaturesRecord():
                changes.append(Put(replace(record, epoch=0)))
            case ProducerIdsRecord() if not is_current:
                has_producer_ids = True
                changes.append(Put(_behind_margin(record)))
            case _:
                changes.append(Put(record))
    if not is_current and not has_producer_ids:
        changes.append(Put(_behind_margin(ProducerIdsRecord(-1, -1, -1))))
    return changes + cluster_ids


def _behind_margin(block: ProducerIdsRecord) -> ProducerIdsRecord:
    end = block.block_end + PRODUCER_ID_MARGIN
    return ProducerIdsRecord(block.broker_id, block.block_end + 1, end)
