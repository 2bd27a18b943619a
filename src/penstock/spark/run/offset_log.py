"""Spark's offset log: which offsets the micro-batches of a query end at.

A checkpoint has a file `offsets/<n>` for each batch that was planned, `commits/<n>` for each that
is done, and `metadata` with the id of the query. Besides, we keep in it where the query began:
Spark does not write that down, and asks the source again when it repeats the first batch.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.spark.errors import PipelineError
from penstock.spark.progress import Json, Progress, SourceOffsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BEGIN = "penstock/begin.json"
_NO_OFFSET = "-"


def parse_offsets(text: str) -> list[SourceOffsets]:
    """What a file of the offset log says, source by source."""
    version, _, rest = text.partition("\n")
    if version.strip() not in ("v1", "v2"):
        raise PipelineError(
            f"the offset log of the checkpoint is of a format that is not known ({version[:20]!r}):"
            " it was written by a newer version of Spark. Use that version"
        )
    found: list[SourceOffsets] = []
    for line in rest.split("\n")[1:]:
        # In v2 a name comes first; `{` is part of no name.
        offsets = line[line.find("{") :] if version.strip() == "v2" and "{" in line else line
        if not offsets.strip():
            continue
        if offsets.endswith(_NO_OFFSET):
            found.append(SourceOffsets({}))
        else:
            found.append(SourceOffsets.from_json(json.loads(offsets)))
    return found


def number_repeated(names: Iterable[str]) -> list[str]:
    """Names for the sources of a plan: one that is read twice is `clicks`, then `clicks#2`."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


def source_of(occurrence: str) -> str:
    """The name of the source, as the pipeline has it."""
    return occurrence.partition("#")[0]


def by_name(sources: Sequence[SourceOffsets]) -> Progress:
    """The offsets of a batch by the names of its sources, in the order of the plan."""
    names = number_repeated(source.source for source in sources)
    return dict(zip(names, sources, strict=True))


class Files(Protocol):
    """The folder of a checkpoint, wherever it is. Paths are below it."""

    def read(self, path: str) -> str | None:
        """None if there is no such file."""

    def write(self, path: str, text: str) -> None:
        """All of it or, if this process dies, none."""

    def names(self, folder: str) -> list[str]:
        """None if there is no such folder."""

    def remove(self) -> None:
        """The folder with everything in it."""


class Checkpoint:
    """What is to be known of a query from its checkpoint."""

    def __init__(self, files: Files) -> None:
        self._files = files

    @property
    def query_id(self) -> str | None:
        """Spark's id of the query; it is the same as long as the checkpoint lives."""
        written = self._files.read("metadata")
        return None if written is None else str(json.loads(written)["id"])

    @property
    def last_planned(self) -> int | None:
        """The last batch whose offsets are fixed; done or not."""
        return max(self._batches("offsets"), default=None)

    @property
    def last_done(self) -> int | None:
        return max(self._batches("commits"), default=None)

    @property
    def exists(self) -> bool:
        """Whether there is anything of one."""
        return bool(self._files.names(""))

    def end_of(self, batch_id: int) -> Progress | None:
        """Where a batch ends; None if that is not known (any more)."""
        written = self._files.read(f"offsets/{batch_id}")
        return None if written is None else by_name(parse_offsets(written))

    @property
    def begin(self) -> Progress | None:
        """Where the first batch begins."""
        written = self._files.read(_BEGIN)
        if written is None:
            return None
        found: dict[str, dict[str, Json]] = json.loads(written)
        return {name: SourceOffsets.from_json(each) for name, each in found.items()}

    def write_begin(self, begin: Progress) -> None:
        """Before Spark plans the first batch."""
        written = {name: each.to_json() for name, each in begin.items()}
        self._files.write(_BEGIN, json.dumps(written))

    def remove(self) -> None:
        self._files.remove()

    def _batches(self, folder: str) -> list[int]:
        return [int(name) for name in self._files.names(folder) if name.isdecimal()]


class CheckpointFiles:
    """`Files` of any file system that Spark can reach."""

    def __init__(self, spark: "SparkSession", location: str) -> None:
        from penstock.spark.sinks.hadoop_files import HadoopFiles

        self._files = HadoopFiles(spark, location)

    def read(self, path: str) -> str | None:
        from py4j.protocol import Py4JJavaError

        try:
            return self._files.read(path).decode()
        except Py4JJavaError as error:
            if "FileNotFoundException" in error.java_exception.getClass().getName():
                return None
            raise

    def write(self, path: str, text: str) -> None:
        # Whoever calls this means the new one.
        self._files.delete(path)
        self._files.create(path, text.encode())

    def names(self, folder: str) -> list[str]:
        return self._files.names(folder)

    def remove(self) -> None:
        self._files.delete("")
