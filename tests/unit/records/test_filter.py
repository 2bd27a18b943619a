"""What compaction leaves of a batch is what Kafka's cleaner leaves."""

import pytest

from penstock.records.batch import read_header, verify
from penstock.records.compress import Compression
from penstock.records.filter import filter_batch
from penstock.records.read import read_records
from tests.support.batches import T, golden, golden_records

V2 = golden("v2")
GAPS = V2["gaps"]
HEADER = read_header(GAPS)


def filtered(
    batch: bytes,
    keep: list[bool],
    *,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
) -> bytes | None:
    kept = filter_batch(
        batch,
        0,
        read_header(batch),
        keep,
        delete_horizon_ms=delete_horizon_ms,
        keep_empty=keep_empty,
    )
    return None if kept is None else bytes(kept)


def test_some_records() -> None:
    """S5."""
    assert filtered(GAPS, [False, False, True, True, False]) == V2["filtered"]


def test_a_tombstone_gets_a_delete_horizon() -> None:
    """S5."""
    keep = [False, True, False, False, True]
    kept = filtered(GAPS, keep, delete_horizon_ms=T + 5000)
    assert kept == V2["filtered_tombstone"]
    again = filtered(kept, [True, True], delete_horizon_ms=T + 9_999_999)
    assert again == kept, "the horizon is set once"
    less = filtered(kept, [True, False])
    assert less is not None
    assert read_header(less).delete_horizon_ms == T + 5000


def test_no_record_left() -> None:
    """S5."""
    nothing = [False] * 5
    assert filtered(GAPS, nothing) is None
    assert filtered(GAPS, nothing, keep_empty=True) == V2["filtered_empty"]
    assert filtered(V2["empty"], [], keep_empty=True) == V2["empty"]
    assert filtered(V2["empty"], []) is None


def test_all_records_keep_their_bytes() -> None:
    buffer = b"xx" + V2["gzip"] + b"yy"
    kept = filter_batch(buffer, 2, read_header(V2["gzip"]), [True] * 5)
    assert kept is not None
    assert kept == V2["gzip"]


def test_all_records_and_a_new_horizon() -> None:
    kept = filtered(GAPS, [True] * 5, delete_horizon_ms=T + 1_000_000)
    assert kept == V2["delete_horizon"]


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_stay_compressed(name: str) -> None:
    """S5."""
    header = read_header(V2[name])
    kept = filter_batch(V2[name], 0, header, [True, False, True, False, False])
    assert kept is not None
    after = read_header(kept)
    verify(kept, 0, after)
    assert after.compression is Compression.from_name(name)
    assert after.last_offset == header.last_offset
    records = golden_records(range(5))
    assert read_records(kept) == [records[0], records[2]]


def test_log_append_time_and_producer_stay() -> None:
    header = read_header(V2["log_append_time"])
    kept = filter_batch(V2["log_append_time"], 0, header, [False, False, False, False, True])
    assert kept is not None
    assert read_header(kept).max_timestamp == T + 111_111
    assert [record.timestamp for record in read_records(kept)] == [T + 111_111]
    sequence = read_header(V2["last_offset"])
    kept = filter_batch(V2["last_offset"], 0, sequence, [True, False, False, False, False])
    assert kept is not None
    assert read_header(kept).last_sequence == sequence.last_sequence == 209


def test_one_choice_for_each_record() -> None:
    with pytest.raises(ValueError, match="2 choices for 5 records"):
        filter_batch(GAPS, 0, HEADER, [True, False])
