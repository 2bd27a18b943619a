"""The lock, the owner and the last boot of a log directory: `.lock`, `meta.properties`, boot id."""

from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

from penstock.core.errors import KafkaStorageError
from penstock.storage.checkpoint.checkpoint_files import (
    UNREPORTED_LOSS,
    MetaProperties,
    load_boot_id,
    load_meta_properties,
    store_boot_id,
    store_meta_properties,
)
from penstock.storage.disk import Disk, Lock
from penstock.storage.disk_errors import is_lack_of_room


def create_log_dir(disk: Disk, path: str) -> None:
    """Creates the directory and its parents, durably."""
    directory = Path(path)
    missing = [parent for parent in (directory, *directory.parents) if not disk.exists(str(parent))]
    disk.make_directory(path)
    for created in missing:
        # The content of a directory is lost with its name, even if it was synced.
        disk.sync_directory(str(created.parent))


def lock_log_dir(disk: Disk, path: str) -> Lock:
    """Locks the directory for this process; raises KafkaStorageError if another one uses it."""
    lock = disk.lock(f"{path}/.lock")
    if lock is None:
        raise KafkaStorageError(
            f"{path} is in use by another process, or named twice in log.dirs",
            remedy="stop that process, or name another directory",
        )
    return lock


def check_owner(disk: Disk, path: str, cluster_id: str | None, node_id: int) -> UUID | None:
    """Returns the directory's id; creates `meta.properties` if necessary.

    Raises KafkaStorageError if the directory belongs to another node or cluster.
    """
    owner = load_meta_properties(disk, path)
    if owner is None:
        # Version 1 is not valid without a cluster id.
        version = 0 if cluster_id is None else 1
        owner = MetaProperties(version, cluster_id, node_id, uuid4())
        store_meta_properties(disk, path, owner)
    if owner.node_id is not None and owner.node_id != node_id:
        raise KafkaStorageError(
            f"{path} belongs to node {owner.node_id}, this is node {node_id}",
            remedy=f"set node.id={owner.node_id}, or name another directory in log.dirs",
        )
    if None not in (cluster_id, owner.cluster_id) and owner.cluster_id != cluster_id:
        raise KafkaStorageError(
            (f"{path} belongs to cluster {owner.cluster_id}, this is cluster {cluster_id}"),
            remedy="name another directory in log.dirs",
        )
    return owner.directory_id


def may_have_lost_records(disk: Disk, path: str, is_clean: bool) -> bool:
    """Returns whether the directory may lack records that were not flushed.

    It lacks none after a clean shutdown, or if only the process ended and the machine still runs.
    A directory that is empty may be that of a new disk, which has lost everything. Once there may
    be a loss, every start returns True until `confirm_loss`.
    """
    boot_id = disk.boot_id()
    last_boot_id = load_boot_id(disk, path)
    has_rebooted = not boot_id or boot_id != last_boot_id
    is_lossy = last_boot_id == UNREPORTED_LOSS or (has_rebooted and not is_clean)
    stored_id = UNREPORTED_LOSS if is_lossy else boot_id
    if stored_id != last_boot_id:
        try:
            store_boot_id(disk, path, stored_id)
        except OSError as error:
            if not is_lack_of_room(error):
                raise
            # The next start finds the boot id from before, and considers records lost.
    return is_lossy


def store_loss(disk: Disk, path: str) -> None:
    """Makes every start consider records lost until `confirm_loss`."""
    store_boot_id(disk, path, UNREPORTED_LOSS)


def has_stored_loss(disk: Disk, path: str) -> bool:
    """Returns whether the next start finds that the controller does not know of a loss."""
    return load_boot_id(disk, path) == UNREPORTED_LOSS


def confirm_loss(disk: Disk, path: str) -> None:
    """Notes that the controller knows of a loss; if that fails, the next start reports it again."""
    with suppress(OSError):
        store_boot_id(disk, path, disk.boot_id())
