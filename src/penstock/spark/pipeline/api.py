"""`Pipeline`, the Python API: builds by calls what a `pipeline.yml` describes.

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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.spark.pipeline.model import (
    DEFAULT_BATCH_RECORDS,
    DeadLetterSpec,
    NamedPart,
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

    A method that defines a view returns its name, for use in SQL and as the view of a sink. Nothing
    is checked before `validate`, and nothing runs before `run`.
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
        self._spec = PipelineSpec(
            name=name,
            bootstrap_servers=bootstrap_servers,
            sources=(),
            sinks=(),
            checkpoint=checkpoint,
            trigger=trigger,
            max_batch_records=max_batch_records,
            kafka=dict(kafka or {}),
            spark=dict(spark or {}),
        )

    @classmethod
    def from_file(cls, path: str | Path) -> "Pipeline":
        """Returns the pipeline of a `pipeline.yml`, to which more can be added."""
        from penstock.spark.pipeline.yaml_file import load

        spec = load(path)
        pipeline = cls(spec.name, bootstrap_servers=spec.bootstrap_servers)
        pipeline._spec = spec
        return pipeline

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
        """Adds a view of a topic, of several, or of all whose names match `pattern`.

        `watermark` is a column and the time by which its rows may be late: `("at", "10 minutes")`.
        """
        return self._add(
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

    def table(
        self,
        name: str,
        *,
        database: str | None = None,
        table: str | None = None,
        path: str | None = None,
        schema: str | None = None,
    ) -> str:
        """Adds a view of a database table, or of files, which every batch reads again."""
        return self._add(
            TableSpec(name=name, database=database, table=table, path=path, schema=_text(schema))
        )

    def sql(
        self,
        name: str,
        sql: str,
        *,
        watermark: tuple[str, str] | None = None,
        unbounded_state: bool = False,
    ) -> str:
        """Adds a view that a SELECT makes from earlier views."""
        return self._add(
            StepSpec(
                name=name,
                sql=textwrap.dedent(sql).strip(),
                watermark=_watermark(watermark),
                unbounded_state=unbounded_state,
            )
        )

    def deduplicate(
        self,
        name: str,
        view: str,
        columns: str | Sequence[str],
        *,
        watermark: tuple[str, str] | None = None,
        unbounded_state: bool = False,
    ) -> str:
        """Adds a view without the rows whose columns appeared before, within the watermark."""
        return self._add(
            StepSpec(
                name=name,
                source=view,
                deduplicate=_names(columns),
                watermark=_watermark(watermark),
                unbounded_state=unbounded_state,
            )
        )

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
        """Adds a view that a function makes from all earlier views, DataFrames by name.

        `function` may be given as text, `module:function`. Without it, returns a decorator:
        `@p.step("scored")`.
        """

        def add(step_function: "StepFunction | str") -> None:
            self._add(StepSpec(name=name, function=step_function, watermark=_watermark(watermark)))

        if function is not None:
            add(function)
            return name

        def decorate(step_function: _Function) -> _Function:
            add(step_function)
            return step_function

        return decorate

    def add_sink(self, sink: SinkSpec) -> None:
        """Adds a sink of any kind; the methods `to_…` are shorter."""
        self._add(sink)

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
        """Stores the view in a table, exactly once. The default name of the sink is the view's.

        `mode="upsert"` replaces rows with the same `key`. If a batch has several of them, the last
        one by `order_by` is stored; rows for which `delete_when` is true delete theirs.
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
        """Writes the view to a topic, each batch in one transaction.

        Without `topic`, each row goes to the topic that its column `topic` names.
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
        """Writes the view to Parquet files in a directory."""
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
        """Sets where records go that cannot be read, and how many of them a batch may have."""
        dead_letters = DeadLetterSpec(
            topic=topic, table=table, max_count=max_count, max_share=max_share
        )
        self._spec = replace(self._spec, dead_letters=dead_letters)

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline as data, as it is now."""
        return self._spec

    def validate(self, *, online: bool = False) -> list[Problem]:
        """Returns what is wrong with the pipeline; an empty list if it can be started.

        With `online`, topics and tables are checked against the broker and the databases, too.
        """
        from penstock.spark.check.validate import validate, validate_online

        return validate_online(self.spec) if online else validate(self.spec)

    def plan(self) -> str:
        """Returns a description of what would run, for people to read."""
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
        """Runs until it is interrupted; with `once`, until all present records are processed.

        Raises `PipelineError` with all problems that `validate` finds.
        """
        from penstock.spark.errors import PipelineError
        from penstock.spark.run.run import run

        problems = self.validate()
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise PipelineError(f"the pipeline {self._spec.name} cannot run:\n{lines}")
        return run(self.spec, once=once, master=master, spark=spark, listeners=listeners)

    def _add(self, part: NamedPart) -> str:
        """Adds a part to its section, and returns its name."""
        section: dict[str, Any] = {part.section: (*getattr(self._spec, part.section), part)}
        self._spec = replace(self._spec, **section)
        return part.name


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _text(text: str | None) -> str | None:
    return None if text is None else textwrap.dedent(text).strip()


def _watermark(watermark: tuple[str, str] | None) -> Watermark | None:
    return None if watermark is None else Watermark(column=watermark[0], delay=watermark[1])
