"""Partitions that are in two log directories although no move has left them there.

A creation that failed on one disk and succeeded on another leaves an empty log on the first. A
replica that is assigned to the broker again, after it was removed while its directory was offline,
gets a new log in another directory; when the first one is repaired, there are two. Apache Kafka
does not start then. Here the log that is more up to date remains, by its last leader epoch and its
end, and the other one is renamed. Neither shows what the other has acknowledged, so the broker
reports that records may be lost: the controller removes it from the ISRs, and the log is compared
with the leader's like any other.

Two logs without a topic id were put there by hand: only the operator knows which one is current.
"""

import logging
from collections.abc import Sequence
from uuid import uuid4

from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.disk import Disk
from penstock.storage.file_names import stray_directory_name
from penstock.storage.log.log import Log
from penstock.storage.manager.log_dir import LogDir

logger = logging.getLogger(__name__)


def resolve_other_duplicates(disk: Disk, log_dirs: Sequence[LogDir]) -> None:
    """Leaves one log of each such partition, or takes the partition offline."""
    dirs_by_partition: dict[TopicPartition, list[LogDir]] = {}
    for log_dir in log_dirs:
        for partition in [*log_dir.logs, *log_dir.load_errors]:
            dirs_by_partition.setdefault(partition, []).append(log_dir)
    for partition, owners in dirs_by_partition.items():
        if len(owners) > 1:
            _resolve(disk, partition, owners)


def _resolve(disk: Disk, partition: TopicPartition, owners: list[LogDir]) -> None:
    paths = " and in ".join(log_dir.path for log_dir in owners)
    if any(partition in log_dir.load_errors for log_dir in owners):
        # It may be the current one. A log that is loaded later, when there is room, counts too.
        _take_offline(partition, owners, paths, "repair it, or make room, and restart the broker")
        return
    owners = sorted(owners, key=lambda log_dir: _rank(log_dir.logs[partition]), reverse=True)
    if owners[1].logs[partition].log_end_offset == 0:
        _delete_empty_logs(partition, owners, paths)
    elif not all(log_dir.is_online for log_dir in owners):
        remedy = "repair the disk that failed and restart the broker"
        _take_offline(partition, owners, paths, remedy)
    elif len({log_dir.logs[partition].topic_id or log_dir for log_dir in owners}) > 1:
        _take_offline(partition, owners, paths, "move one of the two directories away")
    else:
        _rename_outdated_logs(disk, partition, owners, paths)


def _rank(log: Log) -> tuple[bool, int, int]:
    """Returns how up to date a log is; any log with records precedes an empty one."""
    latest_epoch = log.epochs.latest_epoch
    end = log.log_end_offset
    return end > 0, -1 if latest_epoch is None else latest_epoch, end


def _take_offline(
    partition: TopicPartition, owners: Sequence[LogDir], paths: str, remedy: str
) -> None:
    error = KafkaStorageError(f"it is in {paths}", remedy=remedy)
    for log_dir in owners:
        log_dir.set_load_error(partition, error)


def _delete_empty_logs(partition: TopicPartition, owners: Sequence[LogDir], paths: str) -> None:
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


def _rename_outdated_logs(
    disk: Disk, partition: TopicPartition, owners: Sequence[LogDir], paths: str
) -> None:
    current_dir = owners[0]
    try:
        # Before the rename: after a crash between them, the next start must report it, too.
        current_dir.report_loss()
    except OSError as error:
        current_dir.fail(error)
        _take_offline(partition, owners, paths, "see the broker's log, and restart the broker")
        return
    for log_dir in owners[1:]:
        log_dir.logs.pop(partition).local.close_handlers()
        stray_path = f"{log_dir.path}/{stray_directory_name(partition, uuid4().hex)}"
        try:
            disk.rename(log_dir.directory_of(partition), stray_path)
            disk.sync_directory(log_dir.path)
        except OSError as error:
            # The next start tries again.
            log_dir.fail_for_any(error)
            continue
        log_dir.checkpoint()
        logger.warning(
            "%s is in %s, one of which was offline while the replica was removed and assigned "
            "again; the log in %s is more up to date, the other one was renamed to %s",
            partition,
            paths,
            current_dir.path,
            stray_path,
        )
