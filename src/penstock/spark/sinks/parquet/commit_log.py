"""Commits as files, for sinks that are folders: numbered, each made by exactly one driver.

    _penstock/<key>/00000000000000000017.json

The file with the largest number says how far the query is. To take the query over is to make the
next file, and so is every batch: a driver that was replaced finds its number taken. The file
system must make a file as a whole and only once; that is what Spark's own checkpoints ask of it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Protocol
from urllib.parse import quote, unquote

from penstock.spark.errors import FencedError, OptionError, ProgressError
from penstock.spark.progress import Json, StoredProgress

FOLDER: Final = "_penstock"
_DIGITS: Final = 20
_KEPT: Final = 200
"""Older ones say nothing any more, and are removed."""

CommitKind = Literal["open", "begin", "batch", "clear"]


class Files(Protocol):
    """What is needed of a file system. Paths are relative to the folder of the sink."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing if there is none."""

    def read(self, path: str) -> bytes: ...

    def create(self, path: str, content: bytes) -> bool:
        """Make a file, with all its content at once; False if it is there already."""

    def rename(self, source: str, target: str) -> bool:
        """At once, file or folder; False if there is no such source."""

    def delete(self, path: str) -> None:
        """With all that is in it; nothing happens if it is not there."""


@dataclass(frozen=True)
class Commit:
    number: int
    kind: CommitKind
    stored: StoredProgress | None
    """How far the query is from here on; None: it has never run, or was cleared."""
    owner: str
    rows: int = 0
    move: tuple[str, str] | None = None
    """The batch is visible once this is renamed to that."""

    def to_bytes(self, now: datetime) -> bytes:
        found: dict[str, Json] = {
            "kind": self.kind,
            "owner": self.owner,
            "at": now.isoformat(timespec="milliseconds"),
            "rows": self.rows,
        }
        if self.move is not None:
            found["move"] = list(self.move)
        if self.stored is not None:
            found |= self.stored.to_json()
        return json.dumps(found, indent=1).encode()

    @classmethod
    def from_bytes(cls, number: int, written: bytes) -> "Commit":
        try:
            found = json.loads(written)
            stored = StoredProgress.from_json(found) if "progress" in found else None
            move = found.get("move")
            return cls(
                number,
                found["kind"],
                stored,
                found["owner"],
                int(found["rows"]),
                None if move is None else (move[0], move[1]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise ProgressError(
                f"commit {number} cannot be read ({error!r}): the file was damaged, or written by "
                "a newer version of Penstock; use that version"
            ) from error


class CommitLog:
    """The commits of one key. Used by one driver, from one thread."""

    def __init__(self, files: Files, key: str) -> None:
        self._files = files
        self._key = key
        self._folder = f"{FOLDER}/{quote(key, safe='')}"
        self._number = 0

    def check_alone(self) -> None:
        """`OptionError` where the folder belongs to another query."""
        own = self._folder.rpartition("/")[2]
        others = [unquote(name) for name in self._files.names(FOLDER) if name != own]
        if others:
            raise OptionError(
                f"the folder of {self._key} holds the results of {', '.join(sorted(others))}: "
                "give each sink a folder of its own"
            )

    def take_over(self, owner: str, finish: "Callable[[Commit], None]") -> StoredProgress | None:
        """Become the owner. `finish` gets the last commit, which may not be done wholly."""
        while True:
            last = self.last()
            if last is not None:
                finish(last)
            stored = None if last is None else last.stored
            number = 1 if last is None else last.number + 1
            if self._create(Commit(number, "open", stored, owner)):
                self._number = number
                return stored

    def last(self) -> Commit | None:
        numbers = self._numbers()
        if not numbers:
            return None
        number = max(numbers)
        return Commit.from_bytes(number, self._files.read(self._path(number)))

    @property
    def next_number(self) -> int:
        return self._number + 1

    def check_owned(self) -> None:
        """`FencedError` if another driver has come since."""
        if max(self._numbers(), default=0) != self._number:
            self._number = 0
            raise FencedError(
                f"another driver has taken over {self._key}: stop this one, or stop the other "
                "and start this one again"
            )

    def append(self, commit: Commit) -> None:
        """From here on the commit is decided. `FencedError` if it is not, and never will be, or if
        the next owner counts it and finishes it."""
        if self._number == 0 or commit.number != self.next_number:
            raise FencedError(f"{self._key} is not open: open it again")
        # A driver that slept for long finds its number free again once old commits are removed.
        # It is told by newer ones; a commit below them counts for nobody.
        self.check_owned()
        is_made = self._create(commit)
        if is_made:
            self._number = commit.number
        self.check_owned()
        if commit.number % (_KEPT // 4) == 0:
            for number in self._numbers():
                if number < commit.number - _KEPT:
                    self._files.delete(self._path(number))

    def _create(self, commit: Commit) -> bool:
        content = commit.to_bytes(datetime.now(UTC))
        return self._files.create(self._path(commit.number), content)

    def _numbers(self) -> list[int]:
        names = (name.removesuffix(".json") for name in self._files.names(self._folder))
        return [int(name) for name in names if name.isdecimal()]

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:0{_DIGITS}}.json"
