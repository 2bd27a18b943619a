"""The interface of a kind of sink: everything that a pipeline does with sinks of one kind.

The parser of `pipeline.yml`, the checks, the plan, the run and the status contain nothing about
single kinds: they look the kind of a sink up in the registry and call its methods. A new kind is

1. a subclass of `SinkSpec`, the sink as data;
2. a subclass of `Sink` (`port.py`), which stores rows and progress in one transaction;
3. a subclass of `SinkKind`, and its line in `registry.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypedDict, TypeVar

from penstock.spark.pipeline.model import OutputMode, PipelineSpec, Problem, SinkSpec
from penstock.spark.pipeline.nearest import suggestion
from penstock.spark.progress import StoredProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.check.databases import Databases
    from penstock.spark.check.relations import Relation
    from penstock.spark.pipeline.yaml_nodes import Part
    from penstock.spark.sinks.port import Sink

Spec = TypeVar("Spec", bound=SinkSpec)


class CommonFields(TypedDict):
    """The fields that every `SinkSpec` has, read from a file."""

    name: str
    view: str
    output_mode: OutputMode | None
    line: int
    lines: Mapping[str, int]


@dataclass(frozen=True)
class LastBatch:
    """The last batch that a sink has stored."""

    rows: int
    dead_letters: int | None = None
    """None: unknown."""
    at: str = ""


@dataclass(frozen=True)
class SinkState:
    """What a sink has stored about its query."""

    stored: StoredProgress | None
    """None: the query has not begun, or its results were cleared."""
    owner: str
    epoch: int | None = None
    """None if the sink counts no epochs."""
    since: str = ""
    """When the owner took the query over."""
    last_batch: LastBatch | None = None


class SinkKind(ABC, Generic[Spec]):
    """One kind of sink. Has no state: one instance serves all pipelines.

    Importing the module of a kind must not import pyspark, SQLAlchemy or the clients: `validate`
    and `plan` import all kinds.
    """

    spec_type: ClassVar[type[SinkSpec]]
    keys: ClassVar[Sequence[str]]
    """The keys of its part of `pipeline.yml`; a sink that has the first one is of this kind."""
    required_keys: ClassVar[str]
    """The keys that such a sink must have, as an error names them: `database and table`."""
    update_refusal: ClassVar[str | None] = None
    """Why rows cannot be changed after they were written; None if they can."""
    dead_letters_with_rows: ClassVar[Literal["table", "topic"] | None] = None
    """Which of the two places for dead letters is written in the transaction of the rows."""
    state_needs_broker: ClassVar[bool] = False
    """Whether `read_state` sends requests to the pipeline's brokers."""

    @property
    def distinctive_key(self) -> str:
        return self.keys[0]

    # --- the pipeline as data

    @abstractmethod
    def parse(self, part: "Part", common: CommonFields) -> Spec:
        """Returns the sink that a part of `pipeline.yml` describes; adds problems to the part."""

    # --- validate

    def choices(self, sink: Spec) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yields key, value and allowed values of each key that allows few values.

        A file cannot hold other values; a pipeline that is built in Python can.
        """
        yield from ()

    def check(self, sink: Spec, relation: "Relation") -> Iterator[Problem]:
        """Yields what is wrong with the sink, given the columns of its view."""
        yield from ()

    def check_tables(
        self, sink: Spec, relation: "Relation", databases: "Databases"
    ) -> Iterator[Problem]:
        """Yields what is wrong with the tables that the sink writes to, as they are now."""
        yield from ()

    def topics(self, sink: Spec) -> Sequence[str]:
        """Returns the topics that the key `topic` names, to be looked up in the broker."""
        return ()

    def prefers_update(self, sink: Spec) -> bool:
        """Whether the default output mode of aggregates is `update`."""
        return False

    def append_advice(self, sink: Spec) -> str:
        """Returns what to do about a view whose rows are never final."""
        if self.update_refusal is not None:
            return "Use another sink, or a watermark"
        return "Say `output_mode: update`, to get a row each time that it changes"

    # --- plan

    @abstractmethod
    def describe(self, sink: Spec) -> str:
        """Returns where the rows go and how: `clicks into topic out, keyed by user`."""

    @abstractmethod
    def guarantee(self, sink: Spec, dead_letters: str) -> str:
        """Returns what is guaranteed about the rows.

        `dead_letters` is `, dead letters` if they are in the transaction of the rows, else empty.
        """

    # --- run, rebuild and status

    @abstractmethod
    def create(self, spec: PipelineSpec, sink: Spec, spark: "SparkSession") -> "Sink":
        """Returns the sink, which the caller must open. `rebuild` uses it, too (`Sink.clear`)."""

    @abstractmethod
    def read_state(self, spec: PipelineSpec, sink: Spec) -> SinkState | None:
        """Returns what the sink has stored; None if the query has never run.

        Does not take the query over, changes nothing and needs no Spark.
        """


def missing_columns(
    sink: SinkSpec, key: str, names: Sequence[str], relation: "Relation"
) -> Iterator[Problem]:
    """Yields a problem for each column that `key` names and the view does not have."""
    if not relation.is_complete:
        return
    for name in names:
        if not relation.find(name):
            message = f"{sink.view} has no column {name}{suggestion(name, relation.names)}"
            yield sink.problem(key, message, name)
