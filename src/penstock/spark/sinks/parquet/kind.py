"""Directories of Parquet files as a kind of sink: see `sinks/kind.py`."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.pipeline.model import PipelineSpec, Problem, SinkSpec
from penstock.spark.sinks.kind import (
    CommonFields,
    LastBatch,
    SinkKind,
    SinkState,
    missing_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.check.relations import Relation
    from penstock.spark.pipeline.yaml_nodes import Part
    from penstock.spark.sinks.port import Sink


@dataclass(frozen=True, kw_only=True)
class ParquetSinkSpec(SinkSpec):
    """A directory of Parquet files."""

    path: str
    partition_by: tuple[str, ...] = ()


class ParquetSinkKind(SinkKind[ParquetSinkSpec]):
    spec_type = ParquetSinkSpec
    keys = ("path", "partition_by")
    required_keys = "path"
    update_refusal = "rows in Parquet files cannot be changed: append only"

    def parse(self, part: "Part", common: CommonFields) -> ParquetSinkSpec:
        return ParquetSinkSpec(
            **common, path=part.path("path") or "", partition_by=part.texts("partition_by")
        )

    def check(self, sink: ParquetSinkSpec, relation: "Relation") -> Iterator[Problem]:
        yield from missing_columns(sink, "partition_by", sink.partition_by, relation)

    # --- plan

    def describe(self, sink: ParquetSinkSpec) -> str:
        by = f", by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        return f"{sink.view} into Parquet files in {sink.path}{by}"

    def guarantee(self, sink: ParquetSinkSpec, dead_letters: str) -> str:
        return "exactly once: the files of a batch become visible together with its offsets"

    # --- run, rebuild and status

    def create(self, spec: PipelineSpec, sink: ParquetSinkSpec, spark: "SparkSession") -> "Sink":
        from penstock.spark.sinks.parquet.sink import ParquetSink

        return ParquetSink(sink, spec.query(sink), spark)

    def read_state(self, spec: PipelineSpec, sink: ParquetSinkSpec) -> SinkState | None:
        from penstock.spark.sinks.parquet.commit_log import CommitLog

        commit = CommitLog(_ReadOnlyFiles(sink.path), spec.query(sink)).last()
        if commit is None:
            return None
        has_run = commit.stored is not None and commit.stored.batch_id >= 0
        last_batch = LastBatch(commit.rows) if has_run else None
        return SinkState(commit.stored, commit.owner, last_batch=last_batch)


class _ReadOnlyFiles:
    """The `Files` of a commit log, read through Arrow: without Spark."""

    def __init__(self, root: str) -> None:
        from pyarrow import fs

        # Hadoop's `s3a` is `s3` to Arrow.
        uri = root.replace("s3a://", "s3://", 1) if ":" in root else str(Path(root).absolute())
        self._fs, self._root = fs.FileSystem.from_uri(uri)

    def names(self, directory: str) -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector)]

    def read(self, path: str) -> bytes:
        with self._fs.open_input_stream(f"{self._root}/{path}") as stream:
            return bytes(stream.read())

    def create(self, path: str, content: bytes) -> bool:
        raise UnsupportedOperation("status changes nothing")

    def rename(self, source: str, target: str) -> bool:
        raise UnsupportedOperation("status changes nothing")

    def delete(self, path: str) -> None:
        raise UnsupportedOperation("status changes nothing")
