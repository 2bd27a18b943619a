"""The commit log: one owner at a time, whatever the drivers do (D3)."""

import os
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.spark.errors import FencedError, OptionError, ProgressError
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.parquet.commit_log import DIRECTORY, Commit, CommitLog
from tests.support.spark.topic_sinks import Killed, at

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class LocalFiles:
    """The files of a driver that can be killed before any of its operations."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.steps_left: int | None = None

    def names(self, directory: str) -> list[str]:
        self._step()
        path = self._root / directory
        return os.listdir(path) if path.is_dir() else []

    def read(self, path: str) -> bytes:
        self._step()
        return (self._root / path).read_bytes()

    def create(self, path: str, content: bytes) -> bool:
        self._step()
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return False
        target.write_bytes(content)
        return True

    def rename(self, source: str, target: str) -> bool:
        self._step()
        if not (self._root / source).exists():
            return False
        (self._root / source).rename(self._root / target)
        return True

    def delete(self, path: str) -> None:
        self._step()
        target = self._root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def _step(self) -> None:
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise Killed("in the middle")
            self.steps_left -= 1


class Driver:
    """A sink that uses the log like the Parquet sink, without Spark."""

    def __init__(self, root: Path) -> None:
        self.files = LocalFiles(root)
        self.log = CommitLog(self.files, "p.s")
        self.stored: StoredProgress | None = None
        self._root = root

    def open(self) -> None:
        self.stored = self.log.take_over("me", self._finish)

    def write(self, count: int, token: str) -> None:
        start = self.position
        staged = self._root / token
        staged.write_text("".join(f"{number}\n" for number in range(start, start + count)))
        stored = StoredProgress(at(start + count), "q", 0)
        number = self.log.next_number
        commit = Commit(number, "batch", stored, "me", count, (token, f"part-{number:05}"))
        self.log.append(commit)
        self.stored = stored
        self._finish(commit)

    @property
    def position(self) -> int:
        if self.stored is None:
            return 0
        return next(iter(self.stored.progress["clicks"].offsets.values()))

    def _finish(self, commit: Commit) -> None:
        if commit.move is not None:
            self.files.rename(*commit.move)


def visible(root: Path) -> list[int]:
    parts = sorted(root.glob("part-*"))
    return [int(line) for part in parts for line in part.read_text().splitlines()]


@pytest.mark.parametrize(
    "commit",
    [
        Commit(3, "open", None, "me"),
        Commit(4, "batch", StoredProgress(at(5), "q", 2), "me", 7, ("_staging/a", "part-4")),
    ],
)
def test_a_commit_is_read_as_it_was_written(commit: Commit) -> None:
    assert Commit.from_bytes(commit.number, commit.to_bytes(NOW)) == commit


@pytest.mark.parametrize("written", [b"", b"[]", b"{}", b'{"kind": "open"}'])
def test_invalid_commits_are_refused(written: bytes) -> None:
    with pytest.raises(ProgressError, match="commit 3 cannot be read"):
        Commit.from_bytes(3, written)


def test_a_directory_belongs_to_one_query(tmp_path: Path) -> None:
    CommitLog(LocalFiles(tmp_path), "p/q.a").take_over("me", lambda commit: None)
    CommitLog(LocalFiles(tmp_path), "p/q.a").check_alone()
    with pytest.raises(OptionError, match=r"holds the results of p/q\.a"):
        CommitLog(LocalFiles(tmp_path), "p.b").check_alone()


def test_an_owner_that_was_replaced_is_refused(tmp_path: Path) -> None:
    old, new = Driver(tmp_path), Driver(tmp_path)
    old.open()
    new.open()
    with pytest.raises(FencedError, match=r"taken over p\.s"):
        old.write(3, "old")
    with pytest.raises(FencedError, match="is not open"):
        old.write(3, "old")
    new.write(3, "new")
    assert visible(tmp_path) == [0, 1, 2]


def test_old_commits_are_removed_and_sleepers_still_refused(tmp_path: Path) -> None:
    """The number of a paused driver is free again: its commit has no effect."""
    sleeper, driver = Driver(tmp_path), Driver(tmp_path)
    sleeper.open()
    driver.open()
    for number in range(300):
        driver.write(1, f"staged-{number}")
    names = os.listdir(tmp_path / DIRECTORY / "p.s")
    assert len(names) < 260
    assert f"{2:020}.json" not in names
    with pytest.raises(FencedError):
        sleeper.write(1, "sleeper")
    # Also if it has checked before the pause.
    sleeper.log._number = 1
    late = Commit(2, "batch", StoredProgress(at(1), "q", 0), "me", 1, ("sleeper", "part-00002"))
    assert sleeper.log._create(late)
    again = Driver(tmp_path)
    again.open()
    assert again.position == 300
    assert visible(tmp_path) == list(range(300))


@pytest.mark.parametrize("seed", range(40))
def test_any_history_of_crashes_and_takeovers(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    drivers: list[Driver] = []
    for number in range(60):
        fresh = not drivers or rng.random() < 0.25
        if fresh:
            drivers.append(Driver(tmp_path))
        driver = drivers[-1] if fresh else rng.choice(drivers)
        if rng.random() < 0.3:
            driver.files.steps_left = rng.randrange(7)
        try:
            if fresh:
                driver.open()
            else:
                driver.write(rng.randint(1, 3), f"staged-{number}")
        except (FencedError, Killed):
            drivers.remove(driver)
        else:
            driver.files.steps_left = None
    last = Driver(tmp_path)
    last.open()
    assert visible(tmp_path) == list(range(last.position))
    assert last.position > 0
