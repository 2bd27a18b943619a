"""Pipelines in Python: the same as `pipeline.yml` says, built by calls.

p = Pipeline("clicks", bootstrap_servers="localhost:9092")
p.source("clicks", topic="clicks", schema="user string, at timestamp",
         watermark=("at", "10 minutes"), required=["user"])
p.sql("per_minute", "SELECT window.start AS minute, user, count(*) AS n FROM clicks "
                    "GROUP BY window(at, '1 minute'), user")
p.to_database("per_minute", "sqlite:///clicks.db", table="per_minute",
              mode="upsert", key=["minute", "user"])
p.run()
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

from penstock.spark.pipeline.model import (
    DEFAULT_BATCH_RECORDS,
    DeadLetterSpec,
    OutputMode,
    PipelineSpec,
    Problem,
    SinkSpec,
    SourceSpec,
    StepFunction,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.sinks.database.kind import DatabaseSinkSpec, Mode, SinkWriting
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.topic.kind import TopicSinkSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.run.run import RunResult
    from penstock.spark.watch.run_listener import RunListener

_Function = TypeVar("_Function", bound="StepFunction")


class Pipeline:
    """Sources, tables, steps and sinks, in the order in which they are added.

    Whatever makes a view gives its name back, for use in SQL and as the view of a sink. Nothing is
    checked before `validate`, and nothing runs before `run`.
    """

    def __init__(
        self,
        name: str,
        *,
        bootstrap_servers: str,
        checkpoint: str = PipelineSpec.checkpoint,
        trigger: str = PipelineSpec.trigger,
        max_batch_records: int = DEFAULT_BATCH_RECORDS,
        kafka: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        """`kafka` are Kafka's client settings, `spark` those of the Spark session."""
        self._name = name
        self._bootstrap_servers = bootstrap_servers
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._max_batch_records = max_batch_records
        self._kafka = dict(kafka or {})
        self._spark = dict(spark or {})
        self._sources: list[SourceSpec] = []
        self._tables: list[TableSpec] = []
        self._steps: list[StepSpec] = []
        self._sinks: list[SinkSpec] = []
        self._dead_letters: DeadLetterSpec | None = None
        self._file: str | None = None
        self._line: int | None = None
        self._lines: Mapping[str, int] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> "Pipeline":
        """The pipeline of a `pipeline.yml`, to which more may be added."""
        from penstock.spark.pipeline.yaml_file import load

        spec = load(path)
        made = cls(
            spec.name,
            bootstrap_servers=spec.bootstrap_servers,
            checkpoint=spec.checkpoint,
            trigger=spec.trigger,
            max_batch_records=spec.max_batch_records,
            kafka=spec.kafka,
            spark=spec.spark,
        )
        made._sources = list(spec.sources)
        made._tables = list(spec.tables)
        made._steps = list(spec.steps)
        made._sinks = list(spec.sinks)
        made._dead_letters = spec.dead_letters
        made._file = spec.file
        made._line = spec.line
        made._lines = spec.lines
        return made

    def source(
        self,
        name: str,
        *,
        topic: str | Sequence[str] = (),
        pattern: str | None = None,
        format: str = SourceSpec.format,  # noqa: A002 (the key of the file)
        schema: str | None = None,
        schema_file: str | None = None,
        message: str | None = None,
        required: Sequence[str] = (),
        watermark: tuple[str, str] | None = None,
        starting: str = SourceSpec.starting,
        headers: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> str:
        """A view of a topic, of several, or of all whose names match `pattern`.

        `watermark` is a column and how late its rows may be: `("at", "10 minutes")`.
        """
        self._sources.append(
            SourceSpec(
                name=name,
                topics=_names(topic),
                pattern=pattern,
                format=format,
                schema=_text(schema),
                schema_file=schema_file,
                message=message,
                required=_names(required),
                watermark=_watermark(watermark),
                starting=starting,
                headers=headers,
                options=dict(options or {}),
            )
        )
        return name

    def table(
        self,
        name: str,
        *,
        database: str | None = None,
        table: str | None = None,
        path: str | None = None,
        schema: str | None = None,
    ) -> str:
        """A view of a table of a database, or of files, read anew in every batch."""
        self._tables.append(
            TableSpec(name=name, database=database, table=table, path=path, schema=_text(schema))
        )
        return name

    def sql(
        self,
        name: str,
        sql: str,
        *,
        watermark: tuple[str, str] | None = None,
        unbounded_state: bool = False,
    ) -> str:
        """A view of a SELECT over earlier ones."""
        self._steps.append(
            StepSpec(
                name=name,
                sql=textwrap.dedent(sql).strip(),
                watermark=_watermark(watermark),
                unbounded_state=unbounded_state,
            )
        )
        return name

    def deduplicate(
        self,
        name: str,
        view: str,
        columns: str | Sequence[str],
        *,
        watermark: tuple[str, str] | None = None,
        unbounded_state: bool = False,
    ) -> str:
        """The rows of a view whose columns were not there before, within the watermark."""
        self._steps.append(
            StepSpec(
                name=name,
                source=view,
                deduplicate=_names(columns),
                watermark=_watermark(watermark),
                unbounded_state=unbounded_state,
            )
        )
        return name

    @overload
    def step(
        self, name: str, *, watermark: tuple[str, str] | None = None
    ) -> Callable[[_Function], _Function]: ...

    @overload
    def step(
        self,
        name: str,
        function: "StepFunction | str",
        *,
        watermark: tuple[str, str] | None = None,
    ) -> str: ...

    def step(
        self,
        name: str,
        function: "StepFunction | str | None" = None,
        *,
        watermark: tuple[str, str] | None = None,
    ) -> str | Callable[[_Function], _Function]:
        """A view that a function makes: it gets every earlier view by name, as DataFrames.

        Also a decorator: `@p.step("scored")`. A text names a function: `module:function`.
        """

        def add(made: "StepFunction | str") -> None:
            self._steps.append(StepSpec(name=name, function=made, watermark=_watermark(watermark)))

        if function is not None:
            add(function)
            return name

        def decorate(made: _Function) -> _Function:
            add(made)
            return made

        return decorate

    def add_sink(self, sink: SinkSpec) -> None:
        """Adds a sink of any kind; the methods `to_…` are shorter."""
        self._sinks.append(sink)

    def to_database(
        self,
        view: str,
        database: str,
        *,
        table: str,
        mode: Mode = "append",
        key: str | Sequence[str] = (),
        order_by: str | Sequence[str] = (),
        delete_when: str | None = None,
        output_mode: OutputMode | None = None,
        writing: SinkWriting = "driver",
        create_table: bool = True,
        name: str | None = None,
    ) -> None:
        """Store the view in a table, exactly once. The sink is named after the view, unless told.

        `mode="upsert"` replaces rows by `key`; of several in a batch the last by `order_by` counts,
        and those for which `delete_when` holds are deleted.
        """
        self.add_sink(
            DatabaseSinkSpec(
                name=name or view,
                view=view,
                database=database,
                table=table,
                mode=mode,
                key=_names(key),
                order_by=_names(order_by),
                delete_when=delete_when,
                output_mode=output_mode,
                writing=writing,
                create_table=create_table,
            )
        )

    def to_topic(
        self,
        view: str,
        topic: str | None = None,
        *,
        key: str | Sequence[str] = (),
        output_mode: OutputMode | None = None,
        options: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the view to a topic, each batch in one transaction.

        Without `topic`, the column `topic` of each row says where it goes.
        """
        self.add_sink(
            TopicSinkSpec(
                name=name or view,
                view=view,
                topic=topic,
                key=_names(key),
                output_mode=output_mode,
                options=dict(options or {}),
            )
        )

    def to_parquet(
        self,
        view: str,
        path: str,
        *,
        partition_by: str | Sequence[str] = (),
        output_mode: OutputMode | None = None,
        name: str | None = None,
    ) -> None:
        """Write the view to Parquet files in a folder."""
        self.add_sink(
            ParquetSinkSpec(
                name=name or view,
                view=view,
                path=path,
                partition_by=_names(partition_by),
                output_mode=output_mode,
            )
        )

    def dead_letters(
        self,
        *,
        topic: str | None = None,
        table: str | None = None,
        max_count: int | None = None,
        max_share: float | None = None,
    ) -> None:
        """Where records go that cannot be read, and how many of a batch may be so."""
        self._dead_letters = DeadLetterSpec(
            topic=topic, table=table, max_count=max_count, max_share=max_share
        )

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline as data, as it is now."""
        return PipelineSpec(
            name=self._name,
            bootstrap_servers=self._bootstrap_servers,
            sources=tuple(self._sources),
            tables=tuple(self._tables),
            steps=tuple(self._steps),
            sinks=tuple(self._sinks),
            dead_letters=self._dead_letters,
            checkpoint=self._checkpoint,
            trigger=self._trigger,
            max_batch_records=self._max_batch_records,
            kafka=self._kafka,
            spark=self._spark,
            file=self._file,
            line=self._line,
            lines=self._lines,
        )

    def validate(self, *, online: bool = False) -> list[Problem]:
        """What is wrong with it; nothing, if it can be started.

        `online` asks the broker and the databases, too.
        """
        from penstock.spark.check.validate import validate, validate_online

        return validate_online(self.spec) if online else validate(self.spec)

    def plan(self) -> str:
        """What would run, for people to read."""
        from penstock.spark.check.plan import plan

        return plan(self.spec)

    def run(
        self,
        *,
        once: bool = False,
        master: str | None = None,
        spark: "SparkSession | None" = None,
        listeners: "Sequence[RunListener]" = (),
    ) -> "RunResult":
        """Run until it is interrupted; with `once`, until what is there now is read.

        `PipelineError` with all problems, if `validate` finds any.
        """
        from penstock.spark.errors import PipelineError
        from penstock.spark.run.run import run

        problems = self.validate()
        if problems:
            found = "\n".join(f"  {each}" for each in problems)
            raise PipelineError(f"the pipeline {self._name} cannot run:\n{found}")
        return run(self.spec, once=once, master=master, spark=spark, listeners=listeners)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _text(given: str | None) -> str | None:
    return None if given is None else textwrap.dedent(given).strip()


def _watermark(given: tuple[str, str] | None) -> Watermark | None:
    return None if given is None else Watermark(column=given[0], delay=given[1])
