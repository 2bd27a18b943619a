"""Whether the metadata log of a Kafka node has been taken over, and has changed since.

A marker beside the log has the names and sizes of its files. The log stays as it was, so that Kafka
can be started on it again; but the metadata store and the log must not be taken for each other:

- If the store is lost, the log is older than what the store had. Its settings may be wrong.
- If Kafka has been started again, the store does not know what Kafka has changed.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.core.errors import KafkaStorageError
from penstock.storage.disk import OsDisk, replace_file

MARKER: Final = ".penstock_kafka_metadata"
"""In the log directory that has the metadata log."""


def check_takeover(metadata_log: Path, *, is_new_store: bool) -> None:
    """Raises KafkaStorageError if the store and the log do not belong together."""
    marker = metadata_log.parent / MARKER
    if not marker.exists():
        return
    is_unchanged = marker.read_text() == _fingerprint(metadata_log)
    if is_new_store and is_unchanged:
        raise KafkaStorageError(
            f"the metadata store is new, but the metadata of Kafka in {metadata_log} was taken "
            "over before, so that it is outdated",
            remedy="restore the store with penstock cluster restore, or rename "
            f"{metadata_log.name} to recover the topics without their settings, or remove {marker} "
            "to take over the outdated metadata",
        )
    if not is_new_store and not is_unchanged:
        raise KafkaStorageError(
            f"Kafka has changed its metadata in {metadata_log} since it was taken over, and the "
            "metadata store does not know these changes",
            remedy="use a new metadata store to take it over again, or remove "
            f"{marker} to continue with the store",
        )


def mark_takeover(metadata_log: Path) -> None:
    """Notes that the store has everything that the log has; a full disk does not matter."""
    marker = metadata_log.parent / MARKER
    with suppress(OSError):
        fingerprint = _fingerprint(metadata_log)
        if not marker.exists() or marker.read_text() != fingerprint:
            replace_file(OsDisk(), str(marker), fingerprint.encode())


def _fingerprint(metadata_log: Path) -> str:
    """Returns the names and sizes of the log's segments and snapshots."""
    files = sorted(
        path for path in metadata_log.iterdir() if path.suffix in (".log", ".checkpoint")
    )
    return "".join(f"{path.name} {path.stat().st_size}\n" for path in files)
