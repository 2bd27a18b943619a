"""Dumps of indexes, and their check against the log (S2)."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from penstock.cli.dump.indexes import IndexMode
from penstock.cli.dump.paths import DumpOptions
from penstock.cli.dump.segment import SegmentOptions
from penstock.records.record import Record
from tests.support.storage.written_log import NOW_MS, WrittenLog, dump_items, of_kind

VERIFY = DumpOptions(SegmentOptions(), IndexMode.VERIFY)
SANITY = DumpOptions(SegmentOptions(), IndexMode.SANITY)
MODES = [DumpOptions(SegmentOptions()), VERIFY]


@pytest.fixture
def indexed(new_log: Callable[..., WrittenLog]) -> WrittenLog:
    """A closed log of ten batches, each but the first with an index entry."""
    written = new_log(index_interval_bytes=0)
    for n in range(10):
        written.append_values(b"value %d" % n, b"and another")
    written.close()
    return written


@pytest.fixture
def aborted(new_log: Callable[..., WrittenLog]) -> WrittenLog:
    """A closed log with a committed and two aborted transactions."""
    written = new_log()
    for producer_id, commit in ((1, True), (2, False), (3, False)):
        written.append(
            [Record(0, NOW_MS, b"k", b"v")],
            producer_id=producer_id,
            base_sequence=0,
            is_transactional=True,
        )
        written.end_txn(producer_id, commit=commit)
    written.close()
    return written


def reasons(path: Path, options: DumpOptions) -> list[str]:
    return [str(result["problem"]) for result in of_kind(dump_items(path, options), "problem")]


def test_offset_index(indexed: WrittenLog) -> None:
    items = dump_items(indexed.path(".index"))
    size = indexed.path(".log").stat().st_size // 10
    expected = [{"offset": 2 * n + 1, "position": n * size} for n in range(1, 10)]
    assert of_kind(items, "entry") == expected
    assert of_kind(items, "problem") == []
    assert of_kind(items, "summary") == [{"entries": 9, "emptySlots": 0, "problems": 0}]


def test_time_index(indexed: WrittenLog) -> None:
    items = dump_items(indexed.path(".timeindex"))
    expected = [{"timestamp": NOW_MS + n + 1, "offset": 2 * n + 1} for n in range(1, 10)]
    assert of_kind(items, "entry") == expected
    assert of_kind(items, "problem") == []


def test_txn_index(aborted: WrittenLog) -> None:
    """P4: the transactions that `read_committed` leaves out."""
    items = dump_items(aborted.path(".txnindex"))
    assert of_kind(items, "entry") == [
        {
            "version": 0,
            "producerId": 2,
            "firstOffset": 2,
            "lastOffset": 3,
            "lastStableOffset": 4,
        },
        {
            "version": 0,
            "producerId": 3,
            "firstOffset": 4,
            "lastOffset": 5,
            "lastStableOffset": 6,
        },
    ]
    assert of_kind(items, "problem") == []


def test_offsets_count_from_the_base_offset(new_log: Callable[..., WrittenLog]) -> None:
    written = new_log(start_offset=5000, index_interval_bytes=0)
    written.append_values(b"a")
    written.append_values(b"b")
    written.close()
    (entry,) = of_kind(dump_items(written.path(".index", 5000)), "entry")
    assert entry["offset"] == 5001
    items = dump_items(written.path(".timeindex", 5000), VERIFY)
    assert of_kind(items, "problem") == []
    assert of_kind(items, "summary")[0]["entries"] == 1


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_verify_shows_no_entries(indexed: WrittenLog, kind: str) -> None:
    items = dump_items(indexed.path(kind), VERIFY)
    assert [item.kind for item in items] == ["file", "summary"]
    assert of_kind(items, "summary")[0]["entries"] == 9


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_empty_slots_of_an_index_in_use_are_counted(
    new_log: Callable[..., WrittenLog], kind: str
) -> None:
    """S2: while a segment is active, its indexes have their full size."""
    written = new_log(index_interval_bytes=0, segment_index_bytes=300_000)
    for _ in range(3):
        written.append_values(b"value")
    entry_size = {".index": 8, ".timeindex": 12}[kind]
    for options in MODES:
        items = dump_items(written.path(kind), options)
        assert of_kind(items, "problem") == []
        (summary,) = of_kind(items, "summary")
        assert summary["entries"] == 2
        assert summary["emptySlots"] == 300_000 // entry_size - 2
    written.close()


def test_an_index_of_nothing_but_empty_slots(tmp_path: Path) -> None:
    for kind in (".index", ".timeindex"):
        path = tmp_path / f"{0:020d}{kind}"
        path.write_bytes(bytes(240))
        items = dump_items(path)
        assert of_kind(items, "entry") == []
        assert of_kind(items, "summary")[0]["emptySlots"] == 240 // (8 if kind == ".index" else 12)


def test_the_time_index_of_one_record_at_time_zero(new_log: Callable[..., WrittenLog]) -> None:
    """Its only entry is all zeros and still is one."""
    written = new_log()
    written.append([Record(0, 0, None, b"v")])
    written.close()
    items = dump_items(written.path(".timeindex"))
    assert of_kind(items, "entry") == [{"timestamp": 0, "offset": 0}]
    assert of_kind(items, "problem") == []


def overwrite(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("options", MODES)
def test_an_offset_that_is_not_the_batchs(indexed: WrittenLog, options: DumpOptions) -> None:
    path = indexed.path(".index")
    overwrite(path, 8, pack(">i", 4))
    items = dump_items(path, options)
    (result,) = of_kind(items, "problem")
    assert "names another offset than the batch there, which ends at 5" in str(result["problem"])
    assert result["offset"] == 4
    assert of_kind(items, "summary")[0]["problems"] == 1


@pytest.mark.parametrize("options", MODES)
def test_a_position_that_is_no_batchs(indexed: WrittenLog, options: DumpOptions) -> None:
    path = indexed.path(".index")
    size = indexed.path(".log").stat().st_size
    overwrite(path, 8 * 8 + 4, pack(">i", size))
    assert reasons(path, options) == [f"index entry points behind the log, which has {size} bytes"]
    overwrite(path, 8 * 8 + 4, pack(">i", size - 5))
    (reason,) = reasons(path, options)
    assert "points to no batch" in reason


def test_entries_that_do_not_rise(indexed: WrittenLog) -> None:
    for kind, size in ((".index", 8), (".timeindex", 12)):
        path = indexed.path(kind)
        first = path.read_bytes()[:size]
        overwrite(path, size, first)
        (reason,) = reasons(path, VERIFY)
        assert "does not come after the entry before it" in reason


def test_zeros_between_entries_are_wrong_entries(indexed: WrittenLog) -> None:
    path = indexed.path(".index")
    overwrite(path, 16, bytes(16))
    result = reasons(path, VERIFY)
    assert len(result) == 2
    assert of_kind(dump_items(path), "summary")[0]["entries"] == 9


@pytest.mark.parametrize("options", MODES)
def test_a_timestamp_that_is_not_the_batchs(indexed: WrittenLog, options: DumpOptions) -> None:
    path = indexed.path(".timeindex")
    overwrite(path, 8 * 12, pack(">q", NOW_MS + 10_000))
    (reason,) = reasons(path, options)
    assert f"names another timestamp than the batch there, which has {NOW_MS + 10}" in reason


def test_a_time_index_entry_whose_offset_is_no_batchs_end(indexed: WrittenLog) -> None:
    path = indexed.path(".timeindex")
    overwrite(path, 8 * 12 + 8, pack(">i", 18))
    assert reasons(path, VERIFY) == [
        "time index entry names an offset within a batch, which ends at 19"
    ]
    overwrite(path, 8 * 12 + 8, pack(">i", 100))
    assert reasons(path, VERIFY) == ["time index entry names an offset that the log does not have"]


def test_a_time_index_over_a_broken_log(indexed: WrittenLog) -> None:
    overwrite(indexed.path(".log"), 16, b"\x09")
    result = reasons(indexed.path(".timeindex"), VERIFY)
    assert len(result) == 9
    assert all("the log is broken before it" in reason for reason in result)


@pytest.mark.parametrize(
    ("at", "data", "expected"),
    [
        (0, pack(">h", 3), "has version 3"),
        (34 + 18, pack(">q", 3), "ends at or below offset 3"),
        (34 + 10, pack(">q", 5), "ends before it starts"),
        (34 + 2, pack(">q", 9), "no marker of that producer"),
        (34 + 18, pack(">q", 4) + pack(">q", 5), "ends before it starts"),
    ],
)
def test_wrong_entries_of_a_txn_index(
    aborted: WrittenLog, at: int, data: bytes, expected: str
) -> None:
    path = aborted.path(".txnindex")
    overwrite(path, at, data)
    (reason,) = reasons(path, VERIFY)
    assert expected in reason


def test_a_txn_index_entry_that_ends_with_a_commit(aborted: WrittenLog) -> None:
    path = aborted.path(".txnindex")
    path.write_bytes(pack(">hqqqq", 0, 1, 0, 1, 2))
    assert reasons(path, VERIFY) == [
        "transaction index entry ends with a marker that does not abort"
    ]


def test_a_txn_index_entry_whose_marker_was_compacted_is_fine(aborted: WrittenLog) -> None:
    path = aborted.path(".txnindex")
    path.write_bytes(path.read_bytes() + pack(">hqqqq", 0, 9, 6, 70, 71))
    assert reasons(path, VERIFY) == []


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_a_truncated_index(indexed: WrittenLog, aborted: WrittenLog, kind: str) -> None:
    """The last entry is cut off: the whole ones are shown, the rest is counted."""
    path = (aborted if kind == ".txnindex" else indexed).path(kind)
    path.write_bytes(path.read_bytes()[:-3])
    items = dump_items(path)
    (result,) = of_kind(items, "problem")
    assert "not a multiple of" in str(result["problem"])
    assert result["remainingBytes"] == {".index": 5, ".timeindex": 9, ".txnindex": 31}[kind]
    assert of_kind(items, "entry")
    (sanity,) = reasons(path, SANITY)
    assert "failed the sanity check" in sanity


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_sanity_check_of_good_indexes(indexed: WrittenLog, aborted: WrittenLog, kind: str) -> None:
    path = (aborted if kind == ".txnindex" else indexed).path(kind)
    items = dump_items(path, SANITY)
    assert [item.kind for item in items] == ["file", "note"]
    assert of_kind(items, "note") == [{"note": "passed the sanity check"}]


def test_an_index_without_its_log_is_shown_unchecked(indexed: WrittenLog) -> None:
    indexed.path(".log").unlink()
    items = dump_items(indexed.path(".index"))
    assert len(of_kind(items, "entry")) == 9
    assert of_kind(items, "problem") == []
    (result,) = of_kind(items, "note")
    assert "no log file beside it" in str(result["note"])


def test_verification_without_the_log_is_a_problem(indexed: WrittenLog) -> None:
    indexed.path(".log").unlink()
    (reason,) = reasons(indexed.path(".index"), VERIFY)
    assert "no log file beside it" in reason


def test_an_index_belongs_to_the_log_in_the_same_state(indexed: WrittenLog) -> None:
    """S5: `.index.swap` is checked against `.log.swap`."""
    index = indexed.path(".index").rename(indexed.path(".index.swap"))
    assert reasons(index, VERIFY) == []
    log = indexed.path(".log")
    log.with_name(log.name + ".swap").write_bytes(log.read_bytes()[:10])
    assert len(reasons(index, VERIFY)) == 9
