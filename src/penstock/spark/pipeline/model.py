"""A pipeline as data: what `pipeline.yml` says and what the Python API builds.

Nothing here needs Spark, a broker or a file. Every part knows the line of the file that it was read
from, if it was, so that whoever finds a problem can say where.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode: TypeAlias = Literal["append", "update"]

StepFunction: TypeAlias = "Callable[[Mapping[str, DataFrame]], DataFrame]"
"""Gets every view defined so far, by name."""

DEFAULT_BATCH_RECORDS = 500_000


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of the file, if it was read from one."""

    line: int | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Where each of its keys is, and each text of a list, as `required.user`."""

    def line_of(self, *keys: str) -> int | None:
        """Of the first of these that is there; else where the part begins."""
        return next((self.lines[each] for each in keys if each in self.lines), self.line)


@dataclass(frozen=True, kw_only=True)
class Watermark(_Part):
    column: str
    delay: str
    """An interval as Spark reads it: `10 minutes`."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec(_Part):
    """A topic, or several of one format, decoded into a view of this name.

    Besides its fields the view has `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, and
    `_headers` if asked for. The format `raw` has `key` and `value` as binary instead of fields.
    """

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression, instead of `topics`."""
    format: str = "json"
    """The name of a record format: see `penstock.spark.decode.formats.registry`."""
    schema: str | None = None
    """The fields, as in CREATE TABLE: `id bigint, at timestamp`. Avro and Protobuf need none."""
    schema_file: str | None = None
    """An Avro schema (.avsc), or a set of Protobuf descriptors."""
    message: str | None = None
    """The full name of the Protobuf message."""
    required: tuple[str, ...] = ()
    """Fields that may not be missing or null: such a record is a dead letter."""
    watermark: Watermark | None = None
    starting: str = "earliest"
    """`earliest`, `latest`, or a time (ISO 8601), where the pipeline has never run."""
    headers: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the source (`minPartitions`, `kafka.…`), or of the format (CSV's `sep`)."""

    def line_of_topic(self, topic: str) -> int | None:
        return self.line_of(f"topics.{topic}", "topics", f"topic.{topic}", "topic")


@dataclass(frozen=True, kw_only=True)
class TableSpec(_Part):
    """A static table to join with, read again in every batch."""

    name: str
    database: str | None = None
    """SQLAlchemy's address of the database."""
    table: str | None = None
    path: str | None = None
    """A folder or file instead of a database: Parquet, or CSV with a header, or JSON lines."""
    schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class StepSpec(_Part):
    """A view made from earlier ones: by SQL, by a function, or by dropping repeated rows."""

    name: str
    sql: str | None = None
    function: "StepFunction | str | None" = None
    """In a file: `module:function`, or `path/to/file.py:function`."""
    deduplicate: tuple[str, ...] = ()
    """Columns that make a row the same as another, within the watermark."""
    source: str | None = None
    """The view that `deduplicate` reads."""
    watermark: Watermark | None = None
    """On the view that this step makes."""
    unbounded_state: bool = False
    """Says that state without a watermark is meant: it grows with the number of keys."""
    sql_line: int | None = None
    """Where the first line of the SQL is."""
    sql_indent: int = 0
    """How far the SQL is moved to the right in the file."""


@dataclass(frozen=True, kw_only=True)
class SinkSpec(_Part):
    """Where the rows of a view go; each kind of sink has a subclass (see `sinks/kind.py`)."""

    name: str
    view: str
    output_mode: OutputMode | None = None
    """None: `update` for upserts of aggregates, else `append`."""


@dataclass(frozen=True, kw_only=True)
class DeadLetterSpec(_Part):
    """Where records go that cannot be read: a topic, or a table in the database of the sink."""

    topic: str | None = None
    table: str | None = None
    max_count: int | None = None
    """The pipeline stops when one batch has more of them, before anything of it is stored."""
    max_share: float | None = None
    """The same, as a share (0 to 1) of the records of a batch of at least 100."""


@dataclass(frozen=True, kw_only=True)
class PipelineSpec(_Part):
    name: str
    bootstrap_servers: str
    sources: tuple[SourceSpec, ...]
    sinks: tuple[SinkSpec, ...]
    tables: tuple[TableSpec, ...] = ()
    steps: tuple[StepSpec, ...] = ()
    dead_letters: DeadLetterSpec | None = None
    """None: a record that cannot be read stops the pipeline."""
    checkpoint: str = "checkpoints"
    """A folder; each query has one of its own below `<checkpoint>/<pipeline>/`."""
    trigger: str = "1 second"
    max_batch_records: int = DEFAULT_BATCH_RECORDS
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Kafka's client settings (`security.protocol`, …) for everything that speaks to the broker."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""
    file: str | None = None

    @property
    def client_settings(self) -> dict[str, str]:
        """Kafka's settings by their dotted names, for every client of the pipeline's brokers."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap_servers}

    def query(self, sink: SinkSpec) -> str:
        """The key of the query that feeds this sink."""
        return f"{self.name}.{sink.name}"


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong with a pipeline, found before Spark starts."""

    line: int | None
    where: str
    """The part: `steps.per_minute.sql`."""
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        return f"{place}{self.where}: {self.message}"


def all_views(spec: PipelineSpec) -> Sequence[str]:
    """Names that SQL may use, in the order in which they are defined."""
    return [
        *(each.name for each in spec.sources),
        *(each.name for each in spec.tables),
        *(each.name for each in spec.steps),
    ]
