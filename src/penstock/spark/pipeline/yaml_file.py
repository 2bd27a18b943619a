"""The parser of `pipeline.yml`, which returns a `PipelineSpec` with the line of every part.

The keys are the names of the fields in `model.py`, except `from` (the view that a sink or a
deduplication reads) and `topic` (for a single topic). Paths are relative to the file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast, get_args

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from penstock.spark.decode.formats.registry import FORMATS
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import (
    DEFAULT_BATCH_RECORDS,
    DeadLetterSpec,
    OutputMode,
    PipelineSpec,
    Problem,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.pipeline.yaml_nodes import Document, Part, compose, entries, environment
from penstock.spark.sinks.kind import CommonFields
from penstock.spark.sinks.registry import SINK_KINDS

_PIPELINE = (
    "name", "bootstrap_servers", "checkpoint", "trigger", "max_batch_records", "kafka", "spark",
    "sources", "tables", "steps", "sinks", "dead_letters",
)  # fmt: skip
_SOURCE = (
    "name", "topic", "topics", "pattern", "format", "schema", "schema_file", "message", "required",
    "watermark", "starting", "headers", "options",
)  # fmt: skip
_TABLE = ("name", "database", "table", "path", "schema")
_STEP = ("name", "sql", "function", "deduplicate", "from", "watermark", "unbounded_state")
_SINK = ("name", "from", "output_mode")
_DEAD_LETTERS = ("topic", "table", "max_count", "max_share")

_T = TypeVar("_T")


class PipelineFileError(PipelineError):
    """A file that does not describe a pipeline; `problems` lists all mistakes in it."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{file} is not a pipeline that can run:\n{lines}")
        self.problems = problems


def load(path: str | Path) -> PipelineSpec:
    """Returns the pipeline of a file. Raises `PipelineFileError` when the file has mistakes."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PipelineError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from error
    spec, problems = parse(text, str(path))
    if spec is None or problems:
        raise PipelineFileError(str(path), problems)
    return spec


def parse(
    text: str, file: str, *, variables: Mapping[str, str] | None = None
) -> tuple[PipelineSpec | None, list[Problem]]:
    """Returns the pipeline, as far as it can be read, and what is wrong with the file.

    `variables` replace the environment's.
    """
    variables = environment() if variables is None else variables
    document = Document(text, variables, Path(file).parent)
    root = compose(document)
    if root is None:
        return None, document.problems
    spec = _Reader(document).pipeline(root, file)
    return spec, sorted(document.problems, key=lambda p: (p.line or 0, p.where))


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document

    def pipeline(self, root: MappingNode, file: str) -> PipelineSpec | None:
        part = Part(self._document, root, "pipeline", _PIPELINE)
        name = part.text("name", required=True)
        servers = part.text("bootstrap_servers", required=True)
        sources = self._named(part, "sources", _SOURCE, self._source)
        tables = self._named(part, "tables", _TABLE, self._table)
        steps = self._named(part, "steps", _STEP, self._step)
        sinks: tuple[SinkSpec, ...] = self._named(part, "sinks", _sink_keys(), self._sink)
        for key in ("sources", "sinks"):
            if key not in part:
                part.add("", f"{key} are missing: a pipeline needs at least one")
        checkpoint = part.text("checkpoint") or PipelineSpec.checkpoint
        trigger = self._duration(part, "trigger") or PipelineSpec.trigger
        records = part.number("max_batch_records")
        dead_letters = self._dead_letters(part)
        if name is None or servers is None:
            return None
        return PipelineSpec(
            name=name,
            bootstrap_servers=servers,
            sources=sources,
            tables=tables,
            steps=steps,
            sinks=sinks,
            kafka=part.settings("kafka"),
            spark=part.settings("spark"),
            dead_letters=dead_letters,
            checkpoint=self._document.resolve_path(checkpoint),
            trigger=trigger,
            max_batch_records=DEFAULT_BATCH_RECORDS if records is None else records,
            file=file,
            line=part.line,
            lines=part.lines,
        )

    def _named(
        self,
        part: Part,
        key: str,
        keys: tuple[str, ...],
        read: Callable[[Part, str], _T | None],
    ) -> tuple[_T, ...]:
        """Reads parts that have names: a mapping by name, or a list whose items have a `name`."""
        node = part.get(key)
        specs: list[_T | None] = []
        if isinstance(node, MappingNode):
            for name, (key_node, value) in entries(self._document, node, key).items():
                child = self._part(value, f"{key}.{name}", keys, key_node)
                if child is not None:
                    if "name" in child:
                        child.add("name", f"the key {name} already is the name: leave it out")
                    specs.append(read(child, name))
        elif isinstance(node, SequenceNode):
            for index, value in enumerate(node.value):
                child = self._part(value, f"{key}[{index}]", keys, value)
                item_name = child.text("name", required=True) if child is not None else None
                if child is not None and item_name is not None:
                    child.where = f"{key}.{item_name}"
                    specs.append(read(child, item_name))
        elif node is not None:
            part.add(key, "must be a mapping by name, as in `clicks: {…}`")
        return tuple(spec for spec in specs if spec is not None)

    def _part(self, node: Node, where: str, keys: tuple[str, ...], key: Node | None) -> Part | None:
        if isinstance(node, MappingNode):
            return Part(self._document, node, where, keys, key)
        self._document.add(
            node, where, f"must be a mapping with keys such as {', '.join(keys[:4])}"
        )
        return None

    def _source(self, part: Part, name: str) -> SourceSpec:
        if "topic" in part and "topics" in part:
            part.add("topic", "topic and topics are both set: leave one of them out")
        record_format = part.choice("format", tuple(FORMATS)) or SourceSpec.format
        return SourceSpec(
            name=name,
            topics=part.texts("topics") or part.texts("topic"),
            pattern=part.text("pattern"),
            schema=_strip(part.text("schema")),
            schema_file=part.path("schema_file"),
            message=part.text("message"),
            required=part.texts("required"),
            watermark=self._watermark(part),
            options=self._options(part, record_format),
            format=record_format,
            starting=part.text("starting") or SourceSpec.starting,
            headers=part.flag("headers") is True,
            line=part.line,
            lines=part.lines,
        )

    def _table(self, part: Part, name: str) -> TableSpec:
        return TableSpec(
            name=name,
            database=part.database("database"),
            table=part.text("table"),
            path=part.path("path"),
            schema=_strip(part.text("schema")),
            line=part.line,
            lines=part.lines,
        )

    def _step(self, part: Part, name: str) -> StepSpec:
        sql, line, indent = self._sql(part)
        return StepSpec(
            name=name,
            sql=sql,
            function=part.text("function"),
            deduplicate=part.texts("deduplicate"),
            source=part.text("from"),
            watermark=self._watermark(part),
            line=part.line,
            lines=part.lines,
            sql_line=line,
            sql_indent=indent,
            unbounded_state=part.flag("unbounded_state") is True,
        )

    def _sink(self, part: Part, name: str) -> SinkSpec | None:
        view = part.text("from", required=True)
        output_mode = cast("OutputMode | None", part.choice("output_mode", get_args(OutputMode)))
        kinds = [kind for kind in SINK_KINDS.values() if kind.distinctive_key in part]
        if len(kinds) != 1:
            expected = ", or ".join(kind.required_keys for kind in SINK_KINDS.values())
            actual = " and ".join(kind.distinctive_key for kind in kinds)
            contradiction = f" and not {actual}" if kinds else ""
            part.add("", f"a sink has either {expected}{contradiction}")
            return None
        kind = kinds[0]
        for key in _sink_keys():
            if key in part and key not in (*_SINK, *kind.keys):
                part.add(key, f"{key} does not go with {kind.distinctive_key}")
        common: CommonFields = {
            "name": name,
            "view": view or "",
            "output_mode": output_mode,
            "line": part.line,
            "lines": part.lines,
        }
        sink: SinkSpec = kind.parse(part, common)
        return sink

    def _dead_letters(self, pipeline: Part) -> DeadLetterSpec | None:
        node = pipeline.get("dead_letters")
        part = (
            None
            if node is None
            else self._part(node, "dead_letters", _DEAD_LETTERS, pipeline.key("dead_letters"))
        )
        if part is None:
            return None
        return DeadLetterSpec(
            topic=part.text("topic"),
            table=part.text("table"),
            max_count=part.number("max_count"),
            max_share=part.share("max_share"),
            line=part.line,
            lines=part.lines,
        )

    def _watermark(self, parent: Part) -> Watermark | None:
        node = parent.get("watermark")
        if node is None:
            return None
        part = self._part(
            node, f"{parent.where}.watermark", ("column", "delay"), parent.key("watermark")
        )
        if part is None:
            return None
        column = part.text("column", required=True)
        delay = self._duration(part, "delay", required=True)
        if column is None or delay is None:
            return None
        return Watermark(column=column, delay=delay, line=part.line, lines=part.lines)

    def _duration(self, part: Part, key: str, *, required: bool = False) -> str | None:
        node = part.get(key)
        if isinstance(node, ScalarNode) and node.tag.endswith((":int", ":float")):
            part.add(key, f"{node.value} has no unit: write `{node.value} seconds`")
            return None
        return part.text(key, required=required)

    def _sql(self, part: Part) -> tuple[str | None, int | None, int]:
        """Returns the SQL, the line of the file in which it starts, and its indentation there."""
        text = part.text("sql", raw=True)
        node = part.get("sql")
        if text is None or not isinstance(node, ScalarNode):
            return None, None, 0
        start = node.start_mark
        if node.style in ("|", ">"):
            # The lines of a folded text are kept: SQL means the same, problems have their line,
            # and a comment ends with its line instead of swallowing the rest.
            lines = self._document.text[start.index : node.end_mark.index].splitlines()[1:]
            indents = (len(line) - len(line.lstrip()) for line in lines if line.strip())
            indent = min(indents, default=0)
            block = text if node.style == "|" else "\n".join(line[indent:] for line in lines)
            return block.rstrip(), start.line + 2, indent
        if node.style is None:
            raw = self._document.text[start.index : node.end_mark.index].rstrip()
            if "\n" in raw:
                return raw, start.line + 1, 0
            return text, start.line + 1, start.column
        return text.rstrip(), start.line + 1, start.column + 1

    def _options(self, part: Part, record_format: str) -> dict[str, str]:
        options = part.settings("options")
        for name, option in FORMATS[record_format].options.items():
            if option.is_path and name in options:
                options[name] = self._document.resolve_path(options[name])
        return options


def _sink_keys() -> tuple[str, ...]:
    """Returns the keys of all kinds of sinks."""
    keys = (key for kind in SINK_KINDS.values() for key in kind.keys)
    return (*_SINK, *dict.fromkeys(keys))


def _strip(text: str | None) -> str | None:
    return None if text is None else text.strip()
