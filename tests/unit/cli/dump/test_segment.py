"""Dumps of `.log` files: every codec, transactions, old formats, and files that are broken."""

import zlib
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from penstock.cli.dump.paths import DumpOptions
from penstock.cli.dump.segment import SegmentOptions
from penstock.records.batch import HEADER_SIZE, compute_crc, write_crc
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from tests.support.storage.written_log import EPOCH, NOW_MS, WrittenLog, dump_items, of_kind

DEEP = DumpOptions(SegmentOptions(records=True))
DATA = DumpOptions(SegmentOptions(records=True, data=True))

RECORDS = [
    Record(0, NOW_MS, b"k1", b"hello", (("trace", b"7"), ("empty", None))),
    Record(1, NOW_MS + 250, None, b"world"),
    Record(2, NOW_MS + 100, b"k2", None),
]


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_and_records_of_every_codec(
    new_log: Callable[..., WrittenLog], codec: Compression
) -> None:
    """P6: compressed batches are shown, and their records too."""
    written = new_log()
    written.append(RECORDS, compression=codec, producer_id=4000, base_sequence=10)
    written.close()
    path = written.path(".log")
    size = path.stat().st_size

    items = dump_items(path, DATA)

    assert of_kind(items, "problem") == []
    assert of_kind(items, "file") == [{"type": "log", "size": size, "startingOffset": 0}]
    (batch,) = of_kind(items, "batch")
    crc = batch.pop("crc")
    assert isinstance(crc, int)
    assert batch == {
        "baseOffset": 0,
        "lastOffset": 2,
        "count": 3,
        "baseSequence": 10,
        "lastSequence": 12,
        "producerId": 4000,
        "producerEpoch": 0,
        "partitionLeaderEpoch": EPOCH,
        "isTransactional": False,
        "isControl": False,
        "deleteHorizonMs": None,
        "position": 0,
        "timestampType": "CreateTime",
        "maxTimestamp": NOW_MS + 250,
        "size": size,
        "magic": 2,
        "compresscodec": codec.codec_name,
        "isvalid": True,
    }
    assert of_kind(items, "record") == [
        {
            "offset": 0,
            "timestampType": "CreateTime",
            "timestamp": NOW_MS,
            "keySize": 2,
            "valueSize": 5,
            "sequence": 10,
            "headerKeys": ["trace", "empty"],
            "headers": [{"key": "trace", "value": b"7"}, {"key": "empty", "value": None}],
            "key": b"k1",
            "payload": b"hello",
        },
        {
            "offset": 1,
            "timestampType": "CreateTime",
            "timestamp": NOW_MS + 250,
            "keySize": -1,
            "valueSize": 5,
            "sequence": 11,
            "headerKeys": [],
            "key": None,
            "payload": b"world",
        },
        {
            "offset": 2,
            "timestampType": "CreateTime",
            "timestamp": NOW_MS + 100,
            "keySize": 2,
            "valueSize": -1,
            "sequence": 12,
            "headerKeys": [],
            "key": b"k2",
            "payload": None,
        },
    ]
    assert of_kind(items, "summary") == [
        {
            "batches": 1,
            "records": 3,
            "validBytes": size,
            "lastOffset": 2,
            "gaps": 0,
            "problems": 0,
        }
    ]


def test_records_are_shown_only_on_request(new_log: Callable[..., WrittenLog]) -> None:
    written = new_log()
    written.append(RECORDS)
    written.close()
    path = written.path(".log")
    assert of_kind(dump_items(path), "record") == []
    assert all("payload" not in record for record in of_kind(dump_items(path, DEEP), "record"))
    bare = DumpOptions(SegmentOptions(records=True, data=True, metadata=False))
    assert of_kind(dump_items(path, bare), "record")[1] == {"key": None, "payload": b"world"}


def test_sequences_wrap(new_log: Callable[..., WrittenLog]) -> None:
    """P3: after 2**31 - 1 comes 0."""
    written = new_log()
    written.append(RECORDS, producer_id=1, base_sequence=2**31 - 2)
    written.close()
    items = dump_items(written.path(".log"), DEEP)
    assert [record["sequence"] for record in of_kind(items, "record")] == [2**31 - 2, 2**31 - 1, 0]
    assert of_kind(items, "batch")[0]["lastSequence"] == 0


def test_transactions(new_log: Callable[..., WrittenLog]) -> None:
    """P4: batches of transactions, and the markers that end them."""
    written = new_log()
    written.append(RECORDS, producer_id=1, base_sequence=0, is_transactional=True)
    written.append(RECORDS, producer_id=2, base_sequence=0, is_transactional=True)
    written.end_txn(1, commit=True)
    written.end_txn(2, commit=False)
    written.close()
    items = dump_items(written.path(".log"), DATA)
    batches = of_kind(items, "batch")
    assert [batch["isTransactional"] for batch in batches] == [True] * 4
    assert [batch["isControl"] for batch in batches] == [False, False, True, True]
    commit, abort = of_kind(items, "record")[-2:]
    assert commit["endTxnMarker"] == "COMMIT"
    assert abort["endTxnMarker"] == "ABORT"
    assert commit["coordinatorEpoch"] == abort["coordinatorEpoch"] == 7
    assert commit["sequence"] == -1
    assert "payload" not in commit
    assert of_kind(items, "problem") == []


def test_control_records_of_other_kinds_are_named(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    leader_change = Record(0, NOW_MS, pack(">hh", 0, 2), b"\0\0\0")
    path.write_bytes(build_batch([leader_change], is_control=True))
    (record,) = of_kind(dump_items(path, DEEP), "record")
    assert record["controlType"] == "LEADER_CHANGE(2)"


def test_a_control_record_without_a_type_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch([Record(0, NOW_MS, b"\0", None)], is_control=True))
    (result,) = of_kind(dump_items(path, DEEP), "problem")
    assert "no control record" in str(result["problem"])
    assert result["offset"] == 0


def test_delete_horizon_and_gaps_of_compaction(tmp_path: Path) -> None:
    """S5: what compaction leaves is shown as it is, and gaps are counted, not complained about."""
    path = tmp_path / f"{0:020d}.log"
    first = build_batch([Record(1, NOW_MS, b"a", b"1"), Record(4, NOW_MS, b"b", b"2")])
    second = build_batch(
        [Record(9, NOW_MS, b"c", None)],
        base_offset=8,
        last_offset=12,
        delete_horizon_ms=NOW_MS + 1000,
    )
    empty = build_batch(
        [], base_offset=20, last_offset=21, producer_id=5, producer_epoch=0, base_sequence=3
    )
    path.write_bytes(first + second + empty)
    items = dump_items(path, DEEP)
    assert of_kind(items, "problem") == []
    horizons = [batch["deleteHorizonMs"] for batch in of_kind(items, "batch")]
    assert horizons == [None, NOW_MS + 1000, None]
    assert [batch["count"] for batch in of_kind(items, "batch")] == [2, 1, 0]
    (summary,) = of_kind(items, "summary")
    assert summary["gaps"] == 2
    assert summary["lastOffset"] == 21
    assert of_kind(dump_items(path), "summary")[0]["gaps"] == 2


def old_message(
    offset: int, magic: int, value: bytes, *, codec: int = 0, timestamp: int = NOW_MS
) -> bytes:
    body = pack(">bb", magic, codec) + (pack(">q", timestamp) if magic else b"")
    body += pack(">i", -1) + pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(("magic", "timestamp_type"), [(0, "NoTimestampType"), (1, "CreateTime")])
def test_old_formats(tmp_path: Path, magic: int, timestamp_type: str) -> None:
    path = tmp_path / f"{0:020d}.log"
    wrapped = b"".join(old_message(n if magic else 1 + n, magic, b"in") for n in range(3))
    packer = zlib.compressobj(wbits=31)
    value = packer.compress(wrapped) + packer.flush()
    path.write_bytes(
        old_message(0, magic, b"one")
        + old_message(3, magic, value, codec=1)
        + build_batch([Record(4, NOW_MS, None, b"new")], base_offset=4)
    )
    items = dump_items(path, DATA)
    assert of_kind(items, "problem") == []
    first, second, third = of_kind(items, "batch")
    assert first["offset"] == 0
    assert first["magic"] == second["magic"] == magic
    assert first["timestampType"] == timestamp_type
    assert "producerId" not in first
    assert second["offset"] == 3
    assert second["compresscodec"] == "gzip"
    assert third["baseOffset"] == 4
    records = of_kind(items, "record")
    assert [record["offset"] for record in records] == [0, 1, 2, 3, 4]
    assert [record["payload"] for record in records] == [b"one", b"in", b"in", b"in", b"new"]
    assert first["crc"] == int.from_bytes(path.read_bytes()[12:16], "big")
    (summary,) = of_kind(items, "summary")
    assert (summary["records"], summary["gaps"]) == (5, 0)
    (shallow,) = of_kind(dump_items(path), "summary")
    assert (shallow["records"], shallow["gaps"]) == (None, 0)


def test_an_old_message_with_a_wrong_crc(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(old_message(0, 1, b"one"))
    data[-1] ^= 1
    path.write_bytes(data)
    items = dump_items(path, DEEP)
    assert of_kind(items, "batch")[0]["isvalid"] is False
    assert len(of_kind(items, "problem")) == 1


@pytest.fixture
def three_batches(new_log: Callable[..., WrittenLog]) -> Path:
    """A log file of three batches with as many bytes each."""
    written = new_log()
    for _ in range(3):
        written.append_values(b"value of forty bytes" * 2, b"another one")
    written.close()
    return written.path(".log")


def test_a_wrong_crc_is_shown_and_the_next_batch_found(three_batches: Path) -> None:
    """S7: what recovery would cut off can still be looked at."""
    data = bytearray(three_batches.read_bytes())
    size = len(data) // 3
    data[size + HEADER_SIZE + 5] ^= 0x40
    three_batches.write_bytes(data)
    items = dump_items(three_batches, DEEP)
    assert [batch["isvalid"] for batch in of_kind(items, "batch")] == [True, False, True]
    assert [record["offset"] for record in of_kind(items, "record")] == [0, 1, 4, 5]
    (result,) = of_kind(items, "problem")
    assert result["position"] == size
    assert result["size"] == size
    assert "CRC" in str(result["problem"])
    assert of_kind(items, "summary")[0]["problems"] == 1


def test_where_no_batch_is_recognised_the_rest_is_counted(three_batches: Path) -> None:
    data = bytearray(three_batches.read_bytes())
    size = len(data) // 3
    data[size + 16] = 9
    three_batches.write_bytes(data)
    items = dump_items(three_batches)
    assert len(of_kind(items, "batch")) == 1
    (result,) = of_kind(items, "problem")
    assert result["position"] == size
    assert result["remainingBytes"] == 2 * size
    assert "magic is 9" in str(result["problem"])


def test_a_torn_last_batch(three_batches: Path) -> None:
    """S7: a write that a crash cut off."""
    data = three_batches.read_bytes()
    size = len(data) // 3
    for remaining in (1, HEADER_SIZE - 1, HEADER_SIZE, size - 1):
        three_batches.write_bytes(data[: 2 * size + remaining])
        items = dump_items(three_batches, DEEP)
        assert len(of_kind(items, "batch")) == 2
        (result,) = of_kind(items, "problem")
        assert result["position"] == 2 * size
        assert result["remainingBytes"] == remaining
        assert of_kind(items, "summary")[0]["validBytes"] == 2 * size


def test_zeros_at_the_end_are_told_as_such(three_batches: Path) -> None:
    data = three_batches.read_bytes()
    three_batches.write_bytes(data + bytes(3_000_000))
    (result,) = of_kind(dump_items(three_batches), "problem")
    assert "only zeros" in str(result["problem"])
    assert result["position"] == len(data)
    assert result["remainingBytes"] == 3_000_000


def test_records_that_disagree_with_a_right_crc(tmp_path: Path) -> None:
    """A batch can be well packed and still be nonsense."""
    path = tmp_path / f"{0:020d}.log"
    batch = build_batch(RECORDS)
    batch[60] = 4
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    path.write_bytes(batch)
    assert of_kind(dump_items(path), "problem") == []
    items = dump_items(path, DEEP)
    assert of_kind(items, "record") == []
    (result,) = of_kind(items, "problem")
    assert "its records cannot be read" in str(result["problem"])


def test_an_unknown_codec(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    batch = build_batch(RECORDS)
    batch[22] = 6
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    path.write_bytes(batch)
    items = dump_items(path, DEEP)
    assert of_kind(items, "batch")[0]["compresscodec"] == "unknown(6)"
    assert len(of_kind(items, "problem")) == 1


def test_offsets_that_go_back_are_a_problem(tmp_path: Path) -> None:
    path = tmp_path / f"{5:020d}.log"
    below = build_batch([Record(3, NOW_MS, None, b"a")], base_offset=3)
    after = build_batch([Record(9, NOW_MS, None, b"b")], base_offset=9)
    path.write_bytes(below + after + after)
    first, second = of_kind(dump_items(path), "problem")
    assert "ends at offset 3, where offsets from 5 on are due" in str(first["problem"])
    assert "ends at offset 9, where offsets from 10 on are due" in str(second["problem"])


def test_max_bytes_ends_quietly_before_a_batch_that_does_not_fit(three_batches: Path) -> None:
    size = three_batches.stat().st_size // 3
    for limit, count in ((0, 0), (size - 1, 0), (size, 1), (2 * size + 70, 2), (3 * size, 3)):
        options = DumpOptions(SegmentOptions(max_bytes=limit))
        items = dump_items(three_batches, options)
        assert len(of_kind(items, "batch")) == count
        assert of_kind(items, "problem") == []
        assert len(of_kind(items, "note")) == (count < 3)


def test_max_bytes_does_not_hide_what_is_broken_before_it(three_batches: Path) -> None:
    data = bytearray(three_batches.read_bytes())
    data[16] = 9
    three_batches.write_bytes(data)
    options = DumpOptions(SegmentOptions(max_bytes=len(data) // 2))
    assert len(of_kind(dump_items(three_batches, options), "problem")) == 1


@pytest.mark.parametrize("suffix", [".cleaned", ".swap", ".deleted"])
def test_files_on_their_way_in_or_out(three_batches: Path, suffix: str) -> None:
    """S5: files of compaction and deletion can be looked at too."""
    renamed = three_batches.rename(three_batches.with_name(three_batches.name + suffix))
    assert len(of_kind(dump_items(renamed), "batch")) == 3


def test_an_empty_file_is_an_empty_segment(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.touch()
    items = dump_items(path, DATA)
    assert [item.kind for item in items] == ["file", "summary"]
    assert of_kind(items, "summary")[0]["lastOffset"] is None
