"""The SQLite file of the embedded store: created, locked, checked, truncated, full, failing."""

import re
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.cluster.embedded import SCHEMA_VERSION, EmbeddedStore
from penstock.cluster.znode_json import DamagedNodeError
from penstock.controller.metadata import ConfigRecord, ControllerEpochRecord, Put, Record
from penstock.core.errors import KafkaStorageError
from tests.support.cluster.metadata_changes import (
    EPHEMERAL_RECORDS,
    PERSISTENT_RECORDS,
    config,
    partition,
    topic,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


def make(path: Path, *records: Record) -> None:
    with closing(EmbeddedStore(path)) as store:
        store.commit([Put(record) for record in records])


def edit(path: Path, statement: str, *values: object) -> None:
    """Change the file behind the store's back, while it is closed."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def test_a_new_file_is_its_owners_alone(path: Path) -> None:
    """X2: SCRAM credentials are in it."""
    with closing(EmbeddedStore(path)) as store:
        store.commit([Put(ControllerEpochRecord(1))])
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["metadata.db", "metadata.db-wal"]
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]


def test_after_a_clean_stop_everything_is_in_one_file(path: Path) -> None:
    make(path, *PERSISTENT_RECORDS)
    assert list(path.parent.iterdir()) == [path]


def test_each_commit_is_synced(path: Path) -> None:
    """S7"""
    with closing(EmbeddedStore(path)) as store:
        settings = [
            store._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "locking_mode")
        ]
    assert settings == ["wal", 2, "exclusive"]


def test_a_file_whose_creation_was_interrupted_is_completed(path: Path) -> None:
    path.touch()
    make(path, topic("t"))
    with closing(EmbeddedStore(path)) as store:
        assert store.load().records == [topic("t")]


def test_a_second_store_on_the_file_is_refused(path: Path) -> None:
    with closing(EmbeddedStore(path)) as store:
        with pytest.raises(KafkaStorageError, match=f"{re.escape(str(path))} is in use"):
            EmbeddedStore(path)
        store.commit([Put(topic("t"))])
        assert store.load().records == [topic("t")]


def test_a_second_process_is_refused_until_the_first_is_done(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from penstock.cluster.embedded import *\n"
        "try: EmbeddedStore(Path(sys.argv[1])).close()\n"
        "except KafkaStorageError as error: print(error.message)"
    )

    def other_process() -> str:
        command = [sys.executable, "-c", script, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with closing(EmbeddedStore(path)):
        assert other_process().startswith(f"metadata store {path} is in use by another process")
    assert other_process() == ""


def test_a_newer_schema_is_refused(path: Path) -> None:
    make(path, *PERSISTENT_RECORDS)
    edit(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(
        KafkaStorageError, match="schema version 2, this release knows versions up to 1"
    ):
        EmbeddedStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("statement", ["CREATE TABLE node (a)", "PRAGMA user_version = 1"])
def test_a_sqlite_file_of_something_else_is_left_alone(path: Path, statement: str) -> None:
    edit(path, statement)
    before = path.read_bytes()
    with pytest.raises(
        KafkaStorageError, match=r"metadata\.db is an SQLite file of another program"
    ):
        EmbeddedStore(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(KafkaStorageError, match=r"metadata\.db is damaged .* from a backup"):
        EmbeddedStore(path)


def test_a_damaged_page_is_refused(path: Path) -> None:
    make(path, topic("t", 300), *(partition("t", index) for index in range(300)))
    data = bytearray(path.read_bytes())
    for page in range(2 * 4096, len(data), 4096):
        data[page : page + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(KafkaStorageError, match="is damaged"), closing(EmbeddedStore(path)) as s:
        s.load()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError, match=r"nowhere/metadata\.db can not be opened"):
        EmbeddedStore(tmp_path / "nowhere" / "metadata.db")


def test_a_damaged_node_is_named_and_can_be_fixed_by_hand(path: Path) -> None:
    make(path, *PERSISTENT_RECORDS)
    node = "/brokers/topics/t/partitions/1/state"
    edit(path, "UPDATE node SET data = '{' WHERE path = ?", node)
    with closing(EmbeddedStore(path)) as store, pytest.raises(DamagedNodeError, match=node):
        store.load()
    fixed = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    edit(path, "UPDATE node SET data = ? WHERE path = ?", fixed, node)
    with closing(EmbeddedStore(path)) as store:
        assert partition("t", 1) in store.load().records


def test_a_log_that_is_cut_anywhere_holds_the_commits_before_the_cut(path: Path) -> None:
    """S7: what a power failure leaves of the last writes is a prefix of the commits."""
    sizes = []
    log = path.with_name("metadata.db-wal")
    with closing(EmbeddedStore(path)) as store:
        for epoch in range(4):
            store.commit(
                [Put(ControllerEpochRecord(epoch)), Put(config(("topics", "t"), a="x" * 9000))]
            )
            sizes.append(log.stat().st_size)
        copy = path.parent / "copy"
        copy.mkdir()
        main, whole = path.read_bytes(), log.read_bytes()
    for cut in sorted({*range(0, len(whole), 1500), *sizes, *(size - 1 for size in sizes)}):
        (copy / path.name).write_bytes(main)
        (copy / log.name).write_bytes(whole[:cut])
        with closing(EmbeddedStore(copy / path.name)) as store:
            epochs = [r.epoch for r in store.load().records if isinstance(r, ControllerEpochRecord)]
            complete_entries = sum(size <= cut for size in sizes)
            assert epochs == ([complete_entries - 1] if complete_entries else [])
            assert store.commit([Put(ControllerEpochRecord(9))]) == complete_entries + 1


def test_ephemeral_nodes_of_a_killed_session_are_removed_permanently(path: Path) -> None:
    """A crash after the next start does not bring it back."""
    with closing(EmbeddedStore(path)) as store:
        store.commit([Put(record) for record in EPHEMERAL_RECORDS])
        first = shutil.copytree(path.parent, path.parent.parent / f"{path.parent.name}-first")
    with closing(EmbeddedStore(first / path.name)):
        second = shutil.copytree(first, path.parent.parent / f"{path.parent.name}-second")
    with closing(sqlite3.connect(second / path.name)) as db:
        assert db.execute("SELECT count(*) FROM node").fetchone() == (0,)


def test_a_full_disk_costs_the_commit_only(path: Path) -> None:
    with closing(EmbeddedStore(path)) as store:
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(KafkaStorageError, match=r"disk of metadata store .* is full"):
            store.commit([Put(topic("t")), Put(config(("topics", "t"), a="x" * 50_000))])
        assert store.load().records == []
        store.commit([Put(topic("t"))])
        assert store.load().records == [topic("t")]


@contextmanager
def files_can_not_grow_beyond(size: int) -> Iterator[None]:
    """Writes beyond fail with EFBIG: Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_after_a_failed_write_the_store_rejects_commits_until_it_is_opened_again(
    path: Path,
) -> None:
    """Nobody knows then what is on disk."""
    big = ConfigRecord((("topics", "t"),), {"a": "x" * 100_000})
    with closing(EmbeddedStore(path)) as store:
        store.commit([Put(topic("t"))])
        size = path.with_name("metadata.db-wal").stat().st_size
        with files_can_not_grow_beyond(size), pytest.raises(KafkaStorageError, match="failed"):
            store.commit([Put(big)])
        with pytest.raises(KafkaStorageError, match="until it is opened again"):
            store.commit([Put(big)])
        assert store.load().records == [topic("t")]
    make(path, big)
    with closing(EmbeddedStore(path)) as store:
        assert store.load().records == [topic("t"), big]


def test_a_change_that_can_not_be_written_costs_the_commit_only(path: Path) -> None:
    with closing(EmbeddedStore(path)) as store:
        with pytest.raises(ValueError, match="not an entity"):
            store.commit([Put(topic("t")), Put(config(("planets", "mars"), a="1"))])
        assert store.load().records == []
        assert store.commit([Put(topic("t"))]) == 1
