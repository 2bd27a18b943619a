"""The transaction index (S1, P4): Kafka's bytes, and the aborted transactions of a range."""

import errno
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.index.transaction_index import AbortedTxn, TransactionIndex
from tests.support.storage.crash_disk import CrashDisk, CrashMode, SimulatedCrash

PATH = "/00000000000000000100.txnindex"
BASE = 100

KAFKA = bytes.fromhex(
    "0000"
    "0000000000000fa1"
    "0000000000000065"
    "0000000000000078"
    "0000000000000063"
    "0000"
    "7fffffffffffffff"
    "0000000000000069"
    "0000000000000085"
    "0000000000000079"
)
"""Written by TransactionIndex of Kafka 4.3.1: the two transactions below."""

KAFKA_TXNS = [AbortedTxn(4001, 101, 120, 99), AbortedTxn(2**63 - 1, 105, 133, 121)]

TXNS = [
    AbortedTxn(0, 100, 110, 111),
    AbortedTxn(1, 105, 115, 113),
    AbortedTxn(2, 118, 135, 125),
    AbortedTxn(3, 132, 150, 140),
]


def make(txns: list[AbortedTxn], disk: CrashDisk | None = None) -> TransactionIndex:
    index = TransactionIndex(disk or CrashDisk(), PATH, BASE)
    for txn in txns:
        index.append(txn)
    return index


def test_writes_the_bytes_that_kafka_writes() -> None:
    disk = CrashDisk()
    make(KAFKA_TXNS, disk).close()
    assert disk.read_file(PATH) == KAFKA


def test_reads_the_bytes_that_kafka_wrote() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write_at(KAFKA, 0)
    index = TransactionIndex(disk, PATH, BASE)
    assert index.all() == KAFKA_TXNS
    index.sanity_check()


def test_the_file_does_not_exist_before_the_first_abort() -> None:
    disk = CrashDisk()
    index = make([], disk)
    index.flush()
    index.reset()
    index.truncate_to(0)
    index.sanity_check()
    assert index.all() == []
    assert index.collect_aborted(0, 1000) == ([], False)
    index.rename_to(PATH + ".deleted")
    index.delete()
    index.close()
    assert disk.operations == 0


@pytest.mark.parametrize(
    ("fetch", "upper", "result", "complete"),
    [
        (100, 150, [0, 1, 2, 3], False),
        (100, 132, [0, 1, 2], True),
        (100, 119, [0, 1, 2], True),
        (100, 118, [0, 1], True),
        (110, 112, [0, 1], True),
        (111, 112, [1], True),
        (116, 118, [], True),
        (136, 140, [3], True),
        (151, 160, [], False),
    ],
)
def test_aborted_transactions_of_a_range(
    fetch: int, upper: int, result: list[int], complete: bool
) -> None:
    """`complete` once the last stable offset shows that no later abort reaches into the range."""
    assert make(TXNS).collect_aborted(fetch, upper) == ([TXNS[n] for n in result], complete)


def test_last_offsets_increase() -> None:
    index = make(TXNS[:2])
    for last in (114, 115):
        with pytest.raises(ValueError, match=f"offset {last}, which is not after 115"):
            index.append(AbortedTxn(9, 100, last, 116))
    assert index.all() == TXNS[:2]


@pytest.mark.parametrize(
    ("offset", "remaining"), [(0, 0), (110, 0), (111, 1), (135, 2), (136, 3), (150, 3), (151, 4)]
)
def test_truncate_drops_markers_at_the_offset_and_above(offset: int, remaining: int) -> None:
    disk = CrashDisk()
    index = make(TXNS, disk)
    index.truncate_to(offset)
    assert index.all() == TXNS[:remaining]
    assert disk.size(PATH) == remaining * 34
    for txn in TXNS[remaining:]:
        index.append(txn)
    assert index.all() == TXNS


def test_reset_drops_all_entries() -> None:
    disk = CrashDisk()
    index = make(TXNS, disk)
    index.reset()
    assert index.all() == []
    index.append(TXNS[0])
    assert disk.read_file(PATH) == make_bytes(TXNS[:1])


def make_bytes(txns: list[AbortedTxn]) -> bytes:
    disk = CrashDisk()
    make(txns, disk)
    return disk.read_file(PATH)


def test_it_is_mapped_again_after_a_close() -> None:
    disk = CrashDisk()
    index = make(TXNS[:2], disk)
    index.close()
    index.close()
    index.append(TXNS[2])
    index.close()
    again = TransactionIndex(disk, PATH, BASE)
    again.append(TXNS[3])
    assert again.all() == TXNS


def test_a_torn_entry_is_corrupt_and_overwritten_by_the_next() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write_at(make_bytes(TXNS[:2])[:50], 0)
    index = TransactionIndex(disk, PATH, BASE)
    with pytest.raises(CorruptIndexError, match="50 bytes, not a multiple of 34"):
        index.sanity_check()
    assert index.all() == TXNS[:1]
    index.append(TXNS[1])
    assert index.all() == TXNS[:2]
    index.sanity_check()


def test_entries_that_cannot_be_right_are_corrupt() -> None:
    disk = CrashDisk()
    with pytest.raises(CorruptIndexError, match="below its base offset 100"):
        make([AbortedTxn(1, 10, 99, 9)], disk).sanity_check()
    disk.open(PATH).write_at(b"\0\1", 0)
    index = TransactionIndex(disk, PATH, BASE)
    with pytest.raises(CorruptIndexError, match="version 1"):
        index.sanity_check()
    with pytest.raises(CorruptIndexError, match="version 1"):
        index.collect_aborted(0, 100)
    disk.open(PATH).truncate(0)
    with pytest.raises(CorruptIndexError, match="0 bytes where 34 were written"):
        index.all()


def test_delete_and_rename() -> None:
    disk = CrashDisk()
    index = make(TXNS, disk)
    index.rename_to(PATH + ".swap")
    assert index.path == PATH + ".swap"
    assert disk.names("/") == [PATH[1:] + ".swap"]
    disk.rename(PATH + ".swap", PATH)
    index.rename_to(PATH)
    index.close()
    assert index.all() == TXNS
    index.delete()
    assert index.all() == []
    assert disk.names("/") == []


def test_flushed_records_survive() -> None:
    """S7."""
    disk = CrashDisk()
    index = make(TXNS[:2], disk)
    disk.sync_directory("/")
    index.flush()
    index.append(TXNS[2])
    assert TransactionIndex(disk.image(CrashMode.DURABLE), PATH, BASE).all() == TXNS[:2]


def test_an_io_error_is_raised() -> None:
    disk = CrashDisk()
    index = make(TXNS[:2], disk)
    disk.fail("write", PATH, errno.EIO, partial=20)
    with pytest.raises(OSError, match="Input/output"):
        index.append(TXNS[2])


@pytest.mark.parametrize("operation", ["write", "open", "create"])
def test_an_entry_without_room_is_kept_in_memory(operation: str) -> None:
    """Its marker is in the log, so that readers must see it."""
    disk = CrashDisk()
    known_entries = 0 if operation == "create" else 2
    index = make(TXNS[:known_entries], disk)
    if index._file is not None:
        index._file.sync()
        index._file.release()
    disk.fail(operation, PATH, errno.ENOSPC, partial=20)
    index.append(TXNS[known_entries])
    if operation == "write":
        assert index.all() == TXNS[: known_entries + 1]
    with pytest.raises(OSError, match="No space"):
        index.flush()
    disk.heal()
    index.append(TXNS[known_entries + 1])
    assert index.all() == TXNS[: known_entries + 2]
    index.flush()
    index.close()
    assert TransactionIndex(disk, PATH, index.base_offset).all() == TXNS[: known_entries + 2]


def test_a_truncation_drops_entries_that_are_only_in_memory() -> None:
    disk = CrashDisk()
    index = make(TXNS[:2], disk)
    disk.fail("write", PATH, errno.ENOSPC)
    index.append(TXNS[2])
    index.truncate_to(TXNS[2].last_offset)
    assert index.all() == TXNS[:2]
    index.append(TXNS[2])
    index.truncate_to(TXNS[1].last_offset)
    assert index.all() == TXNS[:1]
    disk.heal()
    index.append(TXNS[2])
    assert index.all() == [TXNS[0], TXNS[2]]
    disk.fail("write", PATH, errno.ENOSPC)
    index.append(TXNS[3])
    index.reset()
    assert index.all() == []


def test_whatever_a_crash_leaves_can_be_reset() -> None:
    """S7."""

    def work(disk: CrashDisk) -> None:
        index = make(TXNS, disk)
        index.flush()
        index.truncate_to(120)
        index.append(TXNS[2])
        index.close()

    whole = CrashDisk()
    work(whole)
    for crash_at in range(whole.operations + 1):
        disk = CrashDisk(crash_at=crash_at)
        with suppress(SimulatedCrash):
            work(disk)
        for seed in range(20):
            index = TransactionIndex(disk.image(CrashMode.TORN, Random(seed)), PATH, BASE)
            index.reset()
            for txn in TXNS:
                index.append(txn)
            assert index.all() == TXNS


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_nothing_that_overlaps_a_range_is_missed(
    producers: list[int], fetch: int, size: int
) -> None:
    """Producers start and abort transactions alternately, with the resulting stable offsets."""
    txns: list[AbortedTxn] = []
    open_from: dict[int, int] = {}
    for offset, producer in enumerate(producers, BASE):
        first = open_from.pop(producer, None)
        if first is None:
            open_from[producer] = offset
        else:
            stable = min(open_from.values(), default=offset + 1)
            txns.append(AbortedTxn(producer, first, offset, stable))
    start, end = BASE + fetch, BASE + fetch + size
    result, complete = make(txns).collect_aborted(start, end)
    assert result == [txn for txn in txns if txn.last_offset >= start and txn.first_offset < end]
    assert complete == any(txn.last_stable_offset >= end for txn in txns)
