"""Partitions that are in two log directories although no move has left them there.

A creation that failed on one disk and succeeded on another leaves an empty log on the first. Two
logs with records were put there by hand, or a move left them and a disk has failed since: only the
operator knows which one is current.
"""

import logging
from collections.abc import Sequence

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.manager.log_dir import LogDir

logger = logging.getLogger(__name__)


def resolve_other_duplicates(log_dirs: Sequence[LogDir]) -> None:
    """Deletes the empty logs of such partitions; takes a partition offline that has two others."""
    dirs_by_partition: dict[TopicPartition, list[LogDir]] = {}
    for log_dir in log_dirs:
        for partition in log_dir.logs:
            dirs_by_partition.setdefault(partition, []).append(log_dir)
    for partition, owners in dirs_by_partition.items():
        if len(owners) > 1:
            _resolve(partition, owners)


def _resolve(partition: TopicPartition, owners: list[LogDir]) -> None:
    owners.sort(key=lambda log_dir: log_dir.logs[partition].log_end_offset, reverse=True)
    paths = " and in ".join(log_dir.path for log_dir in owners)
    if owners[1].logs[partition].log_end_offset > 0:
        if all(log_dir.is_online for log_dir in owners):
            remedy = "move one of the two directories away"
        else:
            remedy = "repair the disk that failed and restart the broker"
        error = KafkaStorageError(f"it is in {paths}", remedy=remedy)
        for log_dir in owners:
            log_dir.set_load_error(partition, error)
        return
    for log_dir in owners[1:]:
        logger.warning(
            "%s is in %s; deleting the one in %s, which never had a record",
            partition,
            paths,
            log_dir.path,
        )
        try:
            log_dir.delete(partition, "has no records, and is in another log directory")
        except KafkaStorageError as error:
            logger.error("%s", error.message)
