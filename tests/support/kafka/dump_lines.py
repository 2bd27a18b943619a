"""The lines of Kafka's DumpLogSegments and of `penstock dump-log`, normalized for comparison."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.cli.dump.items import BATCH, ENTRY, RECORD
from penstock.cli.dump.paths import DumpOptions, dump
from penstock.cli.dump.render import to_text
from penstock.cli.dump.segment import SegmentOptions
from tests.support.storage.log_writer import WrittenBatch

Row = dict[str, str]


def kafka_lines(lines: Iterable[str]) -> list[str]:
    """Returns Kafka's lines of batches, records and entries, with optional numbers as ours."""
    data_lines = (
        line for line in lines if not line.startswith(("Dumping ", "Log starting offset: "))
    )
    return [
        re.sub(r"OptionalLong\[(-?\d+)\]", r"\1", line).replace("OptionalLong.empty", "none")
        for line in data_lines
    ]


def our_lines(path: Path, options: SegmentOptions) -> list[str]:
    """Returns the lines of batches, records and entries that `penstock dump-log` prints."""
    return [
        to_text(str(path), item)
        for _, item in dump([str(path)], DumpOptions(options))
        if item.kind in (BATCH, RECORD, ENTRY)
    ]


def row(line: str) -> Row:
    """Returns the fields of a line."""
    return dict(re.findall(r"(\w+): (\S+)", line))


def batch_row(batch: WrittenBatch, printed: Mapping[str, str], position: int) -> Row:
    """Returns the expected fields of a batch; CRC and recompressed size are as printed."""
    return {
        "baseOffset": str(batch.base_offset),
        "lastOffset": str(batch.next_offset - 1),
        "count": str(len(batch.records)),
        "baseSequence": str(batch.base_sequence),
        "lastSequence": str(batch.last_sequence),
        "producerId": str(batch.producer_id),
        "producerEpoch": str(batch.producer_epoch),
        "partitionLeaderEpoch": str(batch.leader_epoch),
        "isTransactional": _bool(batch.transactional),
        "isControl": _bool(batch.marker is not None),
        "deleteHorizonMs": "none",
        "position": str(position),
        batch.timestamp_type: str(batch.max_timestamp),
        "size": printed["size"] if batch.size < 0 else str(batch.size),
        "magic": "2",
        "compresscodec": batch.codec.codec_name,
        "crc": printed["crc"],
        "isvalid": "true",
    }


def record_rows(batch: WrittenBatch) -> list[Row]:
    """Returns the expected fields of the records of a batch."""
    rows = []
    for n, record in enumerate(batch.records):
        sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + n) % 2**31
        keys = ",".join(key for key, _ in record.headers)
        rows.append(
            {
                "offset": str(record.offset),
                batch.timestamp_type: str(record.timestamp),
                "keySize": str(-1 if record.key is None else len(record.key)),
                "valueSize": str(-1 if record.value is None else len(record.value)),
                "sequence": str(sequence),
                "headerKeys": f"[{keys}]",
            }
        )
    if batch.marker is not None:
        rows[0]["endTxnMarker"] = "COMMIT" if batch.marker.commit else "ABORT"
        rows[0]["coordinatorEpoch"] = str(batch.marker.coordinator_epoch)
    return rows


def _bool(value: bool) -> str:
    return "true" if value else "false"
