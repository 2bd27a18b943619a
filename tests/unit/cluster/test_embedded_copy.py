"""The embedded store is read while a broker has it open and commits."""

from pathlib import Path

import pytest

from penstock.cluster import embedded_copy
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.embedded_copy import load_copy
from penstock.controller.metadata import ConfigRecord, ControllerRecord, Put
from penstock.core.errors import KafkaStorageError

VALUES = 20


def configs(number: int) -> list[Put]:
    """One commit: all entities have the same value."""
    return [
        Put(ConfigRecord((("topics", f"t{entity}"),), {"segment.ms": str(number), "x": "y" * 500}))
        for entity in range(VALUES)
    ]


def test_a_store_in_use_is_read_without_a_lock(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "m.db")
    store.commit([*configs(1), Put(ControllerRecord(1, 0))])
    before = (tmp_path / "m.db").read_bytes()
    records = load_copy(tmp_path / "m.db")
    assert [put.record for put in configs(1)] == sorted(
        (record for record in records if isinstance(record, ConfigRecord)),
        key=lambda record: int(record.entity[0][1][1:]),
    )
    assert (tmp_path / "m.db").read_bytes() == before
    store.commit(configs(2))
    store.close()


def test_a_copy_never_has_half_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite begins a new write-ahead log after the file was copied, and before the log is."""
    store = EmbeddedStore(tmp_path / "m.db")
    store.commit(configs(0))
    store.close()
    store = EmbeddedStore(tmp_path / "m.db")
    read = embedded_copy._read
    reads = 0

    def commit_and_read(path: Path) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 1:
            store.commit(configs(1))
            for number in range(50):  # 25 pages each: more than SQLite lets the log grow to
                values = {"x": str(number % 10) * 100_000}
                store.commit([Put(ConfigRecord((("topics", "other"),), values))])
        return read(path)

    monkeypatch.setattr(embedded_copy, "_read", commit_and_read)
    copied_values = {
        record.values["segment.ms"]
        for record in load_copy(tmp_path / "m.db")
        if isinstance(record, ConfigRecord) and "segment.ms" in record.values
    }
    assert copied_values == {"1"}
    store.close()


def test_a_store_that_changes_all_the_time_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EmbeddedStore(tmp_path / "m.db").close()
    monkeypatch.setattr(embedded_copy, "_DELAY_S", 0)
    monkeypatch.setattr(embedded_copy, "_consistent_files", lambda _path: None)
    with pytest.raises(KafkaStorageError, match="try again, or stop the broker"):
        load_copy(tmp_path / "m.db")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError, match="cannot be read: No such file"):
        load_copy(tmp_path / "missing.db")


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(KafkaStorageError, match=f"metadata store {tmp_path}/m.db is damaged"):
        load_copy(tmp_path / "m.db")
