"""A pipeline as data: the content of a `pipeline.yml`, which the Python API builds as well.

Nothing here needs Spark, a broker or a file. A part that was read from a file has its line, so that
a problem can be reported with its position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode: TypeAlias = Literal["append", "update"]

StepFunction: TypeAlias = "Callable[[Mapping[str, DataFrame]], DataFrame]"
"""Receives every view defined so far, by name, and returns a new one."""

DEFAULT_BATCH_RECORDS = 500_000

REPLAY = "replay-dlq"
DEAD_LETTERS = "dead-letters"
"""Stand for the name of a sink in the keys of other progress, so no sink may have these names."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of a pipeline, with its position if it was read from a file."""

    section: ClassVar[str] = ""
    """The key of the file that it belongs to."""
    line: int | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The lines of its keys, and of the texts in lists: `required.user`."""

    def line_of(self, *keys: str) -> int | None:
        """Returns the line of the first of these keys that the file has, else of the part."""
        return next((self.lines[key] for key in keys if key in self.lines), self.line)

    @property
    def where(self) -> str:
        """Its name in problems."""
        return self.section

    def problem(self, key: str, message: str, item: str = "") -> "Problem":
        """Returns a problem of one of its keys, or of the whole part if `key` is empty.

        `item` is the text in the list of this key that the problem is about.
        """
        if not key:
            return Problem(self.line, self.where, message)
        return Problem(self.line_of(f"{key}.{item}", key), f"{self.where}.{key}", message)


@dataclass(frozen=True, kw_only=True)
class NamedPart(_Part):
    """One of several parts of a section, such as `sources.clicks`."""

    name: str

    @property
    def where(self) -> str:
        return f"{self.section}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Watermark(_Part):
    """How late the rows of a view may be, by the times in one of its columns."""

    column: str
    delay: str
    """An interval as Spark reads it: `10 minutes`."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec(NamedPart):
    """A topic, or several of one format, decoded into a view of this name.

    Besides its fields the view has `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, and
    `_headers` if `headers` is set. The format `raw` has the binary fields `key` and `value`.
    """

    section = "sources"
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression, instead of `topics`."""
    format: str = "json"
    """The name of a record format: see `penstock.spark.decode.formats.registry`."""
    schema: str | None = None
    """The fields of JSON and CSV, as in CREATE TABLE: `id bigint, at timestamp`."""
    schema_file: str | None = None
    """An Avro schema (.avsc), or a set of Protobuf descriptors."""
    message: str | None = None
    """The full name of the Protobuf message."""
    required: tuple[str, ...] = ()
    """Fields without which a record is a dead letter."""
    watermark: Watermark | None = None
    starting: str = "earliest"
    """`earliest`, `latest`, or a time (ISO 8601): where a pipeline starts that has never run."""
    headers: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source (`minPartitions`, `kafka.…`), or of the format (CSV's `sep`)."""

    def topic_problem(self, topic: str, message: str) -> "Problem":
        """Returns a problem of a topic in `topics` or `topic`."""
        line = self.line_of(f"topics.{topic}", "topics", f"topic.{topic}", "topic")
        return Problem(line, f"{self.where}.topic", message)


@dataclass(frozen=True, kw_only=True)
class TableSpec(NamedPart):
    """A static table to join with, which every batch reads again."""

    section = "tables"
    database: str | None = None
    """The address of the database, as SQLAlchemy reads it."""
    table: str | None = None
    path: str | None = None
    """A directory or file instead of a database: Parquet, CSV with a header, or JSON lines."""
    schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class StepSpec(NamedPart):
    """A view made from earlier views: by SQL, by a function, or by dropping repeated rows."""

    section = "steps"
    sql: str | None = None
    function: "StepFunction | str | None" = None
    """In a file: `module:function`, or `path/to/file.py:function`."""
    deduplicate: tuple[str, ...] = ()
    """The columns by which a row repeats another one, within the watermark."""
    source: str | None = None
    """The view that `deduplicate` reads."""
    watermark: Watermark | None = None
    """The watermark of the view that this step makes."""
    unbounded_state: bool = False
    """Whether state without a watermark is intended: it grows with the number of keys."""
    sql_line: int | None = None
    """The line of the file in which the SQL starts."""
    sql_indent: int = 0
    """How far the SQL is indented in the file."""


@dataclass(frozen=True, kw_only=True)
class SinkSpec(NamedPart):
    """Where the rows of a view go; each kind of sink has a subclass (see `sinks/kind.py`)."""

    section = "sinks"
    view: str
    output_mode: OutputMode | None = None
    """None: `update` for upserts of aggregates, else `append`."""


@dataclass(frozen=True, kw_only=True)
class DeadLetterSpec(_Part):
    """Where records go that cannot be read: a topic, or a table in the database of the sink."""

    section = "dead_letters"
    topic: str | None = None
    table: str | None = None
    max_count: int | None = None
    """A batch with more of them stops the pipeline, before any of its rows are stored."""
    max_share: float | None = None
    """The same limit as a share (0 to 1) of the records of a batch of at least 100."""


@dataclass(frozen=True, kw_only=True)
class PipelineSpec(_Part):
    """A whole pipeline."""

    section = "pipeline"
    name: str
    bootstrap_servers: str
    sources: tuple[SourceSpec, ...]
    sinks: tuple[SinkSpec, ...]
    tables: tuple[TableSpec, ...] = ()
    steps: tuple[StepSpec, ...] = ()
    dead_letters: DeadLetterSpec | None = None
    """None: a record that cannot be read stops the pipeline."""
    checkpoint: str = "checkpoints"
    """A directory; the checkpoint of each query is `<checkpoint>/<pipeline>/<sink>`."""
    trigger: str = "1 second"
    max_batch_records: int = DEFAULT_BATCH_RECORDS
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Kafka's client settings (`security.protocol`, …) for all clients of the broker."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""
    file: str | None = None

    @property
    def client_settings(self) -> dict[str, str]:
        """Kafka's settings by their dotted names, for every client of the pipeline's brokers."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap_servers}

    def query(self, sink: SinkSpec) -> str:
        """Returns the key of the query that feeds this sink."""
        return f"{self.name}.{sink.name}"


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong with a pipeline, found before Spark starts."""

    line: int | None
    where: str
    """The key, with those around it: `steps.per_minute.sql`."""
    message: str

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line is not None else ""
        return f"{line}{self.where}: {self.message}"
