"""The Parquet sink of a pipeline: exactly once for every reader of the directory.

A batch is written to `_staging`, then committed (see `commit_log`), then made visible by one
rename, so readers never see a part of a batch:

    part-00000000000000000017.parquet                    the rows of a batch
    penstock_batch=17/country=de/part-….parquet          the same with `partition_by`

With `partition_by` a batch is a directory, and its number is an additional column. Readers ignore
names that begin with `_`.
"""

import uuid
from typing import TYPE_CHECKING, Final

from penstock.spark.errors import OptionError, PipelineError
from penstock.spark.progress import Batch, Progress, StoredProgress
from penstock.spark.sinks.hadoop_files import HadoopFiles
from penstock.spark.sinks.parquet.commit_log import Commit, CommitLog, Files
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.port import DeadLetters, Sink, WriteResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

STAGING: Final = "_staging"
BATCH_COLUMN: Final = "penstock_batch"
_DIGITS: Final = 20


class ParquetSink(Sink):
    """Writes one file for each batch; with `partition_by`, one for each value and batch."""

    def __init__(self, spec: ParquetSinkSpec, key: str, spark: "SparkSession") -> None:
        self._spec = spec
        self._key = key
        self._files: Files
        self._files = files = HadoopFiles(spark, spec.path)
        self._root = files.root
        self._log = CommitLog(self._files, key)
        self._owner = ""

    def open(self, owner: str) -> StoredProgress | None:
        self._owner = owner
        self._log.check_alone()
        stored = self._log.take_over(owner, self._finish)
        # Rows that earlier owners have staged can no longer be committed.
        self._files.delete(STAGING)
        return stored

    def begin_at(self, start: Progress) -> None:
        self._log.append(Commit(self._log.next_number, "begin", StoredProgress(start), self._owner))

    def write(
        self, rows: "DataFrame", batch: Batch, dead_letters: "DeadLetters | None" = None
    ) -> WriteResult:
        self._check_columns(rows)
        token = f"{STAGING}/{uuid.uuid4()}"
        try:
            count = self._stage(rows, token)
            self._refuse_dead_letters(None if dead_letters is None else dead_letters())
        except Exception:
            # If there is a new owner, it removes staged rows itself.
            self._log.check_owned()
            self._files.delete(token)
            raise
        number = self._log.next_number
        move = (self._staged_path(token), self._visible_path(number)) if count else None
        stored = StoredProgress(batch.end, batch.query_id, batch.batch_id)
        commit = Commit(number, "batch", stored, self._owner, count, move)
        self._log.append(commit)
        self._finish(commit)
        self._files.delete(token)
        return WriteResult(count)

    def clear(self) -> None:
        """Removes the progress atomically, then the files one by one."""
        commit = Commit(self._log.next_number, "clear", None, self._owner)
        self._log.append(commit)
        self._finish(commit)

    def close(self) -> None:
        """Does nothing: the sink holds no connections."""

    def _refuse_dead_letters(self, dead_letters: "pa.Table | None") -> None:
        if dead_letters is not None and dead_letters.num_rows:
            raise OptionError(
                f"{self._key}: dead letters cannot be stored in Parquet files",
                remedy="name a topic for them",
            )

    def _check_columns(self, rows: "DataFrame") -> None:
        by = self._spec.partition_by
        missing = [name for name in by if name not in rows.columns]
        if missing:
            raise OptionError(
                f"sink {self._spec.name}: the view {self._spec.view} has no column "
                f"{', '.join(missing)} for partition_by: it has {', '.join(rows.columns)}"
            )
        if by and BATCH_COLUMN in rows.columns:
            raise OptionError(
                f"sink {self._spec.name}: {BATCH_COLUMN} is the name of the column that batches "
                "get with partition_by",
                remedy="rename it in the view",
            )

    def _stage(self, rows: "DataFrame", token: str) -> int:
        """Runs the plan once, writes its rows below `token`, and returns their number."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        observation = Observation()
        observed = rows.observe(observation, count(lit(1)).alias("rows"))
        by = self._spec.partition_by
        partitioned = observed.repartition(*by) if by else observed.repartition(1)
        writer = partitioned.write.mode("error").option(
            "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
        )
        writer = writer.partitionBy(*by) if by else writer.option("maxRecordsPerFile", 0)
        writer.parquet(f"{self._root}/{token}")
        return int(observation.get.get("rows", 0))

    def _staged_path(self, token: str) -> str:
        if self._spec.partition_by:
            return token
        names = [name for name in self._files.names(token) if name.endswith(".parquet")]
        if len(names) != 1:
            raise PipelineError(
                f"{self._key}: Spark has written {len(names)} files instead of one for a batch; "
                "nothing of it was stored"
            )
        return f"{token}/{names[0]}"

    def _visible_path(self, number: int) -> str:
        if self._spec.partition_by:
            return f"{BATCH_COLUMN}={number}"
        return f"part-{number:0{_DIGITS}}.parquet"

    def _finish(self, commit: Commit) -> None:
        """Renames or deletes what a commit names. The next owner repeats it after a crash."""
        if commit.move is not None:
            self._files.rename(*commit.move)
        elif commit.kind == "clear":
            for name in self._files.names(""):
                number = _number(name)
                if number is not None and number < commit.number:
                    self._files.delete(name)


def _number(name: str) -> int | None:
    """Returns the batch number of a file or directory; None if the sink did not write it."""
    digits = name.removeprefix(f"{BATCH_COLUMN}=")
    if digits == name:
        digits = name.removeprefix("part-").removesuffix(".parquet")
        if len(digits) != _DIGITS or name != f"part-{digits}.parquet":
            return None
    return int(digits) if digits.isdecimal() else None
