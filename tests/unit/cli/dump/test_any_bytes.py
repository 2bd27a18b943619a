"""Whatever is in a file, a dump ends with lines, never with an exception."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.dump.decoders import decode_consumer_offsets
from penstock.cli.dump.indexes import IndexMode
from penstock.cli.dump.paths import DumpOptions, dump
from penstock.cli.dump.render import to_json, to_text
from penstock.cli.dump.segment import SegmentOptions
from penstock.records.compress import Compression
from penstock.records.record import Record
from tests.support.storage.written_log import NOW_MS, WrittenLog

FILES = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000007.snapshot",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
]

SEGMENT = SegmentOptions(records=True, data=True)
OPTIONS = [
    DumpOptions(SEGMENT),
    DumpOptions(SEGMENT._replace(decoder=decode_consumer_offsets, max_bytes=300)),
    DumpOptions(SEGMENT, IndexMode.VERIFY),
    DumpOptions(SEGMENT, IndexMode.SANITY),
]


class Change(NamedTuple):
    """Bytes put in the place of others."""

    at: float
    removed: int
    put: bytes

    def apply(self, data: bytes) -> bytes:
        at = int(self.at * len(data))
        return data[:at] + self.put + data[at + self.removed :]


changes = st.lists(
    st.builds(Change, st.floats(0, 1, allow_nan=False), st.integers(0, 12), st.binary(max_size=12)),
    min_size=1,
    max_size=4,
)


@pytest.fixture
def directory(new_log: Callable[..., WrittenLog]) -> Path:
    """A directory with one file of each kind, all of them right."""
    log = new_log(index_interval_bytes=0)
    records = [Record(n, NOW_MS + n, b"key", b"value", (("h", b"1"),)) for n in range(2)]
    log.append(records)
    log.append(records, compression=Compression.GZIP)
    log.append(records, producer_id=1, base_sequence=0, is_transactional=True)
    log.end_txn(1, commit=False, timestamp=NOW_MS + 3)
    log.close()
    texts = {
        "recovery-point-offset-checkpoint": "0\n1\norders 0 7\n",
        "partition.metadata": "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        "meta.properties": "#\nversion=0\nbroker.id=1\n",
        ".kafka_cleanshutdown": '{"version":0,"brokerEpoch":-1}',
    }
    for name, text in texts.items():
        (log.directory / name).write_text(text)
    return log.directory


def dump_all(path: Path, options: DumpOptions) -> list[str]:
    """The kinds of all items, after each was made a line in both forms."""
    kinds: list[str] = []
    for name, item in dump([str(path)], options):
        assert "\n" not in to_text(name, item)
        assert "\n" not in to_json(name, item)
        kinds.append(item.kind)
    return kinds


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(directory: Path, name: str) -> None:
    path = directory / name
    whole = path.read_bytes()
    assert "problem" not in dump_all(path, OPTIONS[0])

    @settings(max_examples=60)
    @given(changes, st.sampled_from(OPTIONS))
    def check(damage: list[Change], options: DumpOptions) -> None:
        data = whole
        for change in damage:
            data = change.apply(data)
        path.write_bytes(data)
        assert "error" not in dump_all(path, OPTIONS[0])
        dump_all(path, options)

    check()


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
def test_good_indexes_of_a_damaged_log(directory: Path, name: str) -> None:
    log = directory / "00000000000000000000.log"
    whole = log.read_bytes()

    @settings(max_examples=60)
    @given(changes)
    def check(damage: list[Change]) -> None:
        data = whole
        for change in damage:
            data = change.apply(data)
        log.write_bytes(data)
        assert dump_all(directory / name, OPTIONS[2])[-1] == "summary"

    check()
