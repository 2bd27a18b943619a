"""The checkpoint of a query: the end offsets of its micro-batches, as Spark stores them.

A checkpoint has a file `offsets/<n>` for each planned batch, `commits/<n>` for each finished batch,
and `metadata` with the id of the query. Penstock adds the offsets at which the query began: Spark
does not store them, and queries the source again when it repeats the first batch.
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
    """Returns the offsets in a file of the offset log, one item per source."""
    version, _, rest = text.partition("\n")
    if version.strip() not in ("v1", "v2"):
        raise PipelineError(
            f"the offset log of the checkpoint has an unknown format ({version[:20]!r}): it was "
            "written by a newer version of Spark",
            remedy="use that version",
        )
    sources: list[SourceOffsets] = []
    for line in rest.split("\n")[1:]:
        # In v2 each line starts with a name, which cannot contain `{`.
        offsets = line[line.find("{") :] if version.strip() == "v2" and "{" in line else line
        if not offsets.strip():
            continue
        if offsets.endswith(_NO_OFFSET):
            sources.append(SourceOffsets({}))
        else:
            sources.append(SourceOffsets.from_json(json.loads(offsets)))
    return sources


def number_repeated(names: Iterable[str]) -> list[str]:
    """Returns unique names: a name that occurs twice becomes `clicks`, then `clicks#2`."""
    counts: Counter[str] = Counter()
    unique: list[str] = []
    for name in names:
        counts[name] += 1
        unique.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return unique


def source_of(unique_name: str) -> str:
    """Returns the name of the source in the pipeline: `clicks` for `clicks#2`."""
    return unique_name.partition("#")[0]


def by_name(sources: Sequence[SourceOffsets]) -> Progress:
    """Returns the offsets of a batch by the unique names of its sources, in the plan's order."""
    names = number_repeated(source.source for source in sources)
    return dict(zip(names, sources, strict=True))


class Files(Protocol):
    """The files of a checkpoint. Paths are relative to its directory."""

    def read(self, path: str) -> str | None:
        """Returns None if the file does not exist."""

    def write(self, path: str, text: str) -> None:
        """Writes the file atomically."""

    def names(self, directory: str) -> list[str]:
        """Returns the names in a directory; none if it does not exist."""

    def remove(self) -> None:
        """Removes the checkpoint."""


class Checkpoint:
    """A query's checkpoint, as far as a pipeline needs it."""

    def __init__(self, files: Files) -> None:
        self._files = files

    @property
    def query_id(self) -> str | None:
        """Spark's id of the query; it is the same as long as the checkpoint exists."""
        written = self._files.read("metadata")
        return None if written is None else str(json.loads(written)["id"])

    @property
    def last_planned(self) -> int | None:
        """The last batch whose offsets are fixed, finished or not."""
        return max(self._batches("offsets"), default=None)

    @property
    def last_done(self) -> int | None:
        return max(self._batches("commits"), default=None)

    @property
    def exists(self) -> bool:
        """Whether the checkpoint has any file."""
        return bool(self._files.names(""))

    def end_of(self, batch_id: int) -> Progress | None:
        """Returns where a batch ends; None if Spark has no file of it, or has removed it."""
        written = self._files.read(f"offsets/{batch_id}")
        return None if written is None else by_name(parse_offsets(written))

    @property
    def begin(self) -> Progress | None:
        """Where the first batch starts; None if that was not stored."""
        written = self._files.read(_BEGIN)
        if written is None:
            return None
        sources: dict[str, dict[str, Json]] = json.loads(written)
        return {name: SourceOffsets.from_json(offsets) for name, offsets in sources.items()}

    def write_begin(self, begin: Progress) -> None:
        """Stores where the first batch starts. Must be called before Spark plans it."""
        sources = {name: offsets.to_json() for name, offsets in begin.items()}
        self._files.write(_BEGIN, json.dumps(sources))

    def remove(self) -> None:
        self._files.remove()

    def _batches(self, directory: str) -> list[int]:
        return [int(name) for name in self._files.names(directory) if name.isdecimal()]


class CheckpointFiles:
    """The `Files` of a checkpoint on any file system that Spark can reach."""

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
        # `create` would keep an existing file.
        self._files.delete(path)
        self._files.create(path, text.encode())

    def names(self, directory: str) -> list[str]:
        return self._files.names(directory)

    def remove(self) -> None:
        self._files.delete("")
