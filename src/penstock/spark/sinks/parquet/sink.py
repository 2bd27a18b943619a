"""Parquet files as the sink of a pipeline, exactly-once, for any reader of the folder.

A batch is written to `_staging`, then committed (see `commit_log`), then made visible by one
rename. So a reader sees a batch or does not, and never the half of one:

    part-00000000000000000017.parquet                    the rows of a batch
    penstock_batch=17/country=de/part-….parquet          the same with `partition_by`

With `partition_by` a batch is a folder, and its number a column more. Readers leave out names that
begin with `_`.
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
    """Each batch is one file, or with `partition_by` one file for each value and batch."""

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
        # Whatever is here now was staged by owners before: none of it can be committed any more.
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
            self._refuse(None if dead_letters is None else dead_letters())
        except Exception:
            # An owner that comes removes what others have staged.
            self._log.check_owned()
            self._files.delete(token)
            raise
        number = self._log.next_number
        move = (self._staged(token), self._visible(number)) if count else None
        stored = StoredProgress(batch.end, batch.query_id, batch.batch_id)
        commit = Commit(number, "batch", stored, self._owner, count, move)
        self._log.append(commit)
        self._finish(commit)
        self._files.delete(token)
        return WriteResult(count)

    def clear(self) -> None:
        """Progress is gone at once, then the files, one by one."""
        commit = Commit(self._log.next_number, "clear", None, self._owner)
        self._log.append(commit)
        self._finish(commit)

    def close(self) -> None:
        """There is nothing to give back."""

    def _refuse(self, dead_letters: "pa.Table | None") -> None:
        if dead_letters is not None and dead_letters.num_rows:
            raise OptionError(
                f"{self._key}: dead letters cannot be stored in Parquet files: name a topic for "
                "them"
            )

    def _check_columns(self, rows: "DataFrame") -> None:
        by = self._spec.partition_by
        missing = [each for each in by if each not in rows.columns]
        if missing:
            raise OptionError(
                f"sink {self._spec.name}: the view {self._spec.view} has no column "
                f"{', '.join(missing)} for partition_by: it has {', '.join(rows.columns)}"
            )
        if by and BATCH_COLUMN in rows.columns:
            raise OptionError(
                f"sink {self._spec.name}: {BATCH_COLUMN} is the name of the column that batches "
                "get with partition_by: rename it in the view"
            )

    def _stage(self, rows: "DataFrame", token: str) -> int:
        """Run the plan once; how many rows it had."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        observation = Observation()
        counted = rows.observe(observation, count(lit(1)).alias("rows"))
        by = self._spec.partition_by
        spread = counted.repartition(*by) if by else counted.repartition(1)
        writer = spread.write.mode("error").option(
            "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
        )
        writer = writer.partitionBy(*by) if by else writer.option("maxRecordsPerFile", 0)
        writer.parquet(f"{self._root}/{token}")
        return int(observation.get.get("rows", 0))

    def _staged(self, token: str) -> str:
        if self._spec.partition_by:
            return token
        names = [name for name in self._files.names(token) if name.endswith(".parquet")]
        if len(names) != 1:
            raise PipelineError(
                f"{self._key}: Spark has written {len(names)} files instead of one for a batch; "
                "nothing of it was stored"
            )
        return f"{token}/{names[0]}"

    def _visible(self, number: int) -> str:
        if self._spec.partition_by:
            return f"{BATCH_COLUMN}={number}"
        return f"part-{number:0{_DIGITS}}.parquet"

    def _finish(self, commit: Commit) -> None:
        """Do what a commit has decided; whoever opens the sink next does it again."""
        if commit.move is not None:
            self._files.rename(*commit.move)
        elif commit.kind == "clear":
            for name in self._files.names(""):
                number = _number(name)
                if number is not None and number < commit.number:
                    self._files.delete(name)


def _number(name: str) -> int | None:
    """Of the batch that a file or folder holds; None if it is not ours."""
    digits = name.removeprefix(f"{BATCH_COLUMN}=")
    if digits == name:
        digits = name.removeprefix("part-").removesuffix(".parquet")
        if len(digits) != _DIGITS or name != f"part-{digits}.parquet":
            return None
    return int(digits) if digits.isdecimal() else None
