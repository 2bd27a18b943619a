"""Dumps of the small files: producer snapshots, checkpoints, identities, the shutdown marker."""

from collections.abc import Callable, Iterator

from penstock.cli.dump.items import ENTRY, Item, note, problem
from penstock.cli.dump.names import FileType
from penstock.core.errors import KafkaStorageError
from penstock.core.java_properties import parse_properties
from penstock.storage.checkpoint.checkpoint_files import (
    decode_clean_shutdown,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    uuid_text,
)
from penstock.storage.producer.snapshot import CorruptSnapshotError, decode_snapshot


def dump_small_file(kind: FileType, data: bytes, path: str) -> Iterator[Item]:
    """Yields the content of a file that is read as a whole; a problem if it is not valid."""
    try:
        yield from _DUMPS[kind](data, path)
    except CorruptSnapshotError as error:
        yield problem(f"not a producer snapshot: {error}", size=len(data))
    except KafkaStorageError as error:
        yield problem(error.message, size=len(data))


def _snapshot(data: bytes, path: str) -> Iterator[Item]:
    for entry in decode_snapshot(data):
        fields = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.current_txn_first_offset,
            "lastTimestamp": entry.last_timestamp,
        }
        for batch in entry.batches:
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        yield Item(ENTRY, fields)


def _leader_epochs(data: bytes, path: str) -> Iterator[Item]:
    previous = None
    for entry in decode_leader_epochs(data, path):
        yield Item(ENTRY, {"epoch": entry.epoch, "startOffset": entry.start_offset})
        if previous is not None and (
            entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset
        ):
            yield problem(
                f"epoch {entry.epoch} at offset {entry.start_offset} follows epoch "
                f"{previous.epoch} at offset {previous.start_offset}: both must rise"
            )
        previous = entry


def _offsets(data: bytes, path: str) -> Iterator[Item]:
    for (topic, partition), offset in decode_offsets(data, path).items():
        yield Item(ENTRY, {"topic": topic, "partition": partition, "offset": offset})


def _partition_metadata(data: bytes, path: str) -> Iterator[Item]:
    metadata = decode_partition_metadata(data, path)
    yield Item(ENTRY, {"version": metadata.version, "topic_id": uuid_text(metadata.topic_id)})


def _meta_properties(data: bytes, path: str) -> Iterator[Item]:
    decode_meta_properties(data, path)
    properties = parse_properties(data.decode("latin-1"))
    yield Item(ENTRY, {name: result.value for name, result in sorted(properties.items())})


def _clean_shutdown(data: bytes, path: str) -> Iterator[Item]:
    epoch = decode_clean_shutdown(data)
    if epoch is None:
        yield note("the last shutdown was clean; no broker epoch was recorded")
    else:
        yield Item(ENTRY, {"brokerEpoch": epoch})


_DUMPS: dict[FileType, Callable[[bytes, str], Iterator[Item]]] = {
    FileType.SNAPSHOT: _snapshot,
    FileType.LEADER_EPOCHS: _leader_epochs,
    FileType.OFFSETS: _offsets,
    FileType.PARTITION_METADATA: _partition_metadata,
    FileType.META_PROPERTIES: _meta_properties,
    FileType.CLEAN_SHUTDOWN: _clean_shutdown,
}
