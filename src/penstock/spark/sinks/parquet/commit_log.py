"""A log of commits in a directory: numbered files, each created by exactly one driver.

    _penstock/<key>/00000000000000000017.json

The file with the largest number has the progress of the query. A driver takes the query over by
creating the next file, and commits each batch in the same way: a driver that was replaced finds its
number taken. The file system must create a file atomically and only once, as Spark's own
checkpoints require.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Protocol
from urllib.parse import quote, unquote

from penstock.spark.errors import FencedError, OptionError, ProgressError
from penstock.spark.progress import Json, StoredProgress

DIRECTORY: Final = "_penstock"
_DIGITS: Final = 20
_MAX_COMMITS: Final = 200
"""Older commits are not needed and are removed."""

CommitKind = Literal["open", "begin", "batch", "clear"]


class Files(Protocol):
    """The required operations of a file system. Paths are relative to the sink's directory."""

    def names(self, directory: str) -> list[str]:
        """Returns the names in a directory; none if it does not exist."""

    def read(self, path: str) -> bytes: ...

    def create(self, path: str, content: bytes) -> bool:
        """Creates a file with its content atomically; returns False if it exists."""

    def rename(self, source: str, target: str) -> bool:
        """Renames a file or directory atomically; returns False if the source does not exist."""

    def delete(self, path: str) -> None:
        """Deletes a file, or a directory with its contents, if it exists."""


@dataclass(frozen=True)
class Commit:
    """One entry of the log."""

    number: int
    kind: CommitKind
    stored: StoredProgress | None
    """The progress of the query after the commit; None: it has never run, or was cleared."""
    owner: str
    rows: int = 0
    move: tuple[str, str] | None = None
    """Source and target of the rename that makes the batch visible."""

    def to_bytes(self, now: datetime) -> bytes:
        document: dict[str, Json] = {
            "kind": self.kind,
            "owner": self.owner,
            "at": now.isoformat(timespec="milliseconds"),
            "rows": self.rows,
        }
        if self.move is not None:
            document["move"] = list(self.move)
        if self.stored is not None:
            document |= self.stored.to_json()
        return json.dumps(document, indent=1).encode()

    @classmethod
    def from_bytes(cls, number: int, written: bytes) -> "Commit":
        try:
            document = json.loads(written)
            stored = StoredProgress.from_json(document) if "progress" in document else None
            move = document.get("move")
            return cls(
                number,
                document["kind"],
                stored,
                document["owner"],
                int(document["rows"]),
                None if move is None else (move[0], move[1]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise ProgressError(
                f"commit {number} cannot be read ({error!r}): the file was damaged, or written by "
                "a newer version of Penstock",
                remedy="use that version",
            ) from error


class CommitLog:
    """The commits of one query. Used by one driver, from one thread."""

    def __init__(self, files: Files, key: str) -> None:
        self._files = files
        self._key = key
        self._directory = f"{DIRECTORY}/{quote(key, safe='')}"
        self._number = 0

    def check_alone(self) -> None:
        """Raises `OptionError` if the directory belongs to another query."""
        own = self._directory.rpartition("/")[2]
        others = [unquote(name) for name in self._files.names(DIRECTORY) if name != own]
        if others:
            raise OptionError(
                f"the directory of {self._key} holds the results of {', '.join(sorted(others))}",
                remedy="give each sink a directory of its own",
            )

    def take_over(self, owner: str, finish: "Callable[[Commit], None]") -> StoredProgress | None:
        """Makes this driver the owner and returns the progress of the query.

        Calls `finish` with the last commit, whose rename or deletion may be incomplete.
        """
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
        """Raises `FencedError` if another driver has taken the query over."""
        if max(self._numbers(), default=0) != self._number:
            self._number = 0
            raise FencedError(
                f"another driver has taken over {self._key}",
                remedy="stop this one, or stop the other and start this one again",
            )

    def append(self, commit: Commit) -> None:
        """Makes a commit effective.

        Raises `FencedError` if another driver has taken the query over: then the commit is either
        without effect, or the next owner has seen it and finishes it.
        """
        if self._number == 0 or commit.number != self.next_number:
            raise FencedError(f"{self._key} is not open", remedy="open it again")
        # After a long pause a driver may find its number free, because old commits were removed.
        # The newer commits show that it was replaced, and a commit below them has no effect.
        self.check_owned()
        if self._create(commit):
            self._number = commit.number
        self.check_owned()
        if commit.number % (_MAX_COMMITS // 4) == 0:
            for number in self._numbers():
                if number < commit.number - _MAX_COMMITS:
                    self._files.delete(self._path(number))

    def _create(self, commit: Commit) -> bool:
        content = commit.to_bytes(datetime.now(UTC))
        return self._files.create(self._path(commit.number), content)

    def _numbers(self) -> list[int]:
        names = (name.removesuffix(".json") for name in self._files.names(self._directory))
        return [int(name) for name in names if name.isdecimal()]

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:0{_DIGITS}}.json"
