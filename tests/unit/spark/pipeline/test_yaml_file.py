"""Parsing `pipeline.yml`: all keys, and problems with their lines."""

import textwrap
from pathlib import Path

import pytest

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import (
    DeadLetterSpec,
    PipelineSpec,
    SourceSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.pipeline.yaml_file import PipelineFileError, load, parse
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.topic.kind import TopicSinkSpec

WHOLE = """\
name: clicks
bootstrap_servers: ${SERVERS:-localhost:9092}
checkpoint: state
trigger: 5 seconds
max_batch_records: 10_000
kafka:
  security.protocol: SASL_SSL
  retries: 3
  enable.idempotence: true
spark:
  spark.sql.shuffle.partitions: 4
sources:
  clicks:
    topic: clicks
    schema: >
      user string,
      at timestamp
    required: [user]
    watermark: {column: at, delay: 10 minutes}
    starting: 2026-01-31T12:00:00Z
    headers: true
    options: {minPartitions: 4}
  orders:
    topics: [a, b]
    format: avro
    schema_file: schemas/order.avsc
tables:
  customers:
    database: sqlite:///shop.db
    table: customers
    schema: user string, city string
steps:
  once:
    from: clicks
    deduplicate: user
  per_minute:
    sql: |
      SELECT user,
             ${not_a_variable} AS x
      FROM once
    unbounded_state: yes_really
  scored:
    function: scoring.py:score
    watermark: {column: at, delay: 1 hour}
sinks:
  stored:
    from: per_minute
    database: ${DB}
    table: per_minute
    mode: upsert
    key: [user]
    order_by: user
    delete_when: x = '${y}'
    writing: staged
    create_table: false
  sent:
    from: scored
    topic: scores
    key: user
    options: {kafka.linger.ms: 5}
  kept:
    from: scored
    path: files/scores
    partition_by: [user]
    output_mode: append
dead_letters:
  topic: clicks-dead
  max_count: 100
  max_share: 0.01
"""


def _parse(text: str, **variables: str) -> tuple[PipelineSpec | None, list[str]]:
    spec, problems = parse(textwrap.dedent(text), "/flows/pipeline.yml", variables=variables)
    return spec, [str(problem) for problem in problems]


def test_every_key_is_read() -> None:
    text = WHOLE.replace("yes_really", "true")
    spec, problems = parse(text, "/flows/pipeline.yml", variables={"DB": "postgresql://h/d"})

    assert problems == []
    assert spec is not None
    assert (spec.name, spec.bootstrap_servers) == ("clicks", "localhost:9092")
    assert (spec.checkpoint, spec.trigger) == ("/flows/state", "5 seconds")
    assert spec.max_batch_records == 10_000
    assert spec.kafka == {
        "security.protocol": "SASL_SSL",
        "retries": "3",
        "enable.idempotence": "true",
    }
    assert spec.spark == {"spark.sql.shuffle.partitions": "4"}
    assert spec.file == "/flows/pipeline.yml"
    assert spec.sources == (
        SourceSpec(
            name="clicks",
            topics=("clicks",),
            schema="user string, at timestamp",
            required=("user",),
            watermark=Watermark(column="at", delay="10 minutes", line=19),
            starting="2026-01-31T12:00:00Z",
            headers=True,
            options={"minPartitions": "4"},
            line=13,
        ),
        SourceSpec(
            name="orders",
            topics=("a", "b"),
            format="avro",
            schema_file="/flows/schemas/order.avsc",
            line=23,
        ),
    )
    assert spec.tables == (
        TableSpec(
            name="customers",
            database="sqlite:////flows/shop.db",
            table="customers",
            schema="user string, city string",
            line=28,
        ),
    )
    once, per_minute, scored = spec.steps
    assert (once.source, once.deduplicate, once.line) == ("clicks", ("user",), 33)
    assert per_minute.sql == "SELECT user,\n       ${not_a_variable} AS x\nFROM once"
    assert (per_minute.line, per_minute.sql_line, per_minute.sql_indent) == (36, 38, 6)
    assert per_minute.unbounded_state
    assert scored.function == "scoring.py:score"
    assert scored.watermark == Watermark(column="at", delay="1 hour", line=44)
    assert spec.sinks == (
        DatabaseSinkSpec(
            name="stored",
            view="per_minute",
            database="postgresql://h/d",
            table="per_minute",
            mode="upsert",
            key=("user",),
            order_by=("user",),
            delete_when="x = '${y}'",
            writing="staged",
            create_table=False,
            line=46,
        ),
        TopicSinkSpec(
            name="sent",
            view="scored",
            topic="scores",
            key=("user",),
            options={"kafka.linger.ms": "5"},
            line=56,
        ),
        ParquetSinkSpec(
            name="kept",
            view="scored",
            path="/flows/files/scores",
            partition_by=("user",),
            output_mode="append",
            line=61,
        ),
    )
    assert spec.dead_letters == DeadLetterSpec(
        topic="clicks-dead", max_count=100, max_share=0.01, line=66
    )


def test_defaults_are_those_of_the_model() -> None:
    spec, problems = _parse(
        """\
        name: p
        bootstrap_servers: h:1
        sources: [{name: s, topic: t, schema: a int}]
        sinks: [{name: out, from: s, topic: }]
        """
    )
    assert problems == []
    assert spec == PipelineSpec(
        name="p",
        bootstrap_servers="h:1",
        sources=(SourceSpec(name="s", topics=("t",), schema="a int", line=3),),
        sinks=(TopicSinkSpec(name="out", view="s", line=4),),
        checkpoint="/flows/checkpoints",
        file="/flows/pipeline.yml",
        line=1,
    )


HEAD = "name: p\nbootstrap_servers: h:1\n"
TAIL = "sinks: {out: {from: s, topic: t}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "file: the file is empty"),
        ("- a\n", "line 1: file: the file is not a mapping"),
        ("name: p\n\tx: 1\n", "line 2: file: there is a tab"),
        ("name: p\nkey: a: b\n", "line 2: file: not readable as YAML: a `:` is not expected"),
        ("name: 'p\n", "a quote is never closed"),
        ("name: p\n  x\ny\n", "a `:` is missing after a key"),
        ("a: {\n", "not readable as YAML"),
        ("name: p\n---\nname: q\n", "a pipeline is one document"),
        ("bootstrap_servers: h:1\n", "line 1: pipeline: name is missing"),
        (HEAD + "nmae: x\n", "line 3: pipeline.nmae: unknown key nmae: did you mean name?"),
        (HEAD + "name: q\n", "line 3: pipeline.name: name appears twice (first in line 1)"),
        (HEAD + "on: x\n", "line 3: pipeline.on: YAML reads the key on as true: quote it"),
        (HEAD, "line 1: pipeline: sources are missing"),
        (HEAD, "line 1: pipeline: sinks are missing"),
        (HEAD + "sources: 3\n", "line 3: pipeline.sources: must be a mapping by name"),
        (HEAD + "sources:\n  s: 3\n", "line 4: sources.s: must be a mapping with keys"),
        (HEAD + "sources: [{topic: t}]\n", "line 3: sources[0]: name is missing"),
        (HEAD + "sources:\n  s: {topic: on}\n", "YAML reads on as true: put it in quotes"),
        (HEAD + "sources:\n  s: {topic: 12}\n", 'a text, but 12 is a number: write "12"'),
        (HEAD + "sources:\n  s: {topic: {a: b}}\n", "must be a text, not a mapping"),
        (HEAD + "sources:\n  s: {topic: [[a]]}\n", "must be a text, not a list"),
        (HEAD + "sources:\n  s: {topic: a, topics: [b]}\n", "topic and topics are both set"),
        (HEAD + "sources:\n  s:\n    topic:\n", "line 5: sources.s.topic: is empty"),
        (HEAD + "sources:\n  s: {topic: !x y}\n", "the tag !x is not supported"),
        (HEAD + "sources:\n  s: {format: jsn}\n", "'jsn' is not one of json, avro"),
        (HEAD + "sources:\n  s: {headers: maybe}\n", "maybe is neither true nor false"),
        (HEAD + "sources:\n  s: {headers: yes}\n", "or write true or false"),
        (HEAD + "sources:\n  s: {options: 3}\n", "must be a mapping of names and values"),
        (HEAD + "sources:\n  s:\n    watermark: 3\n", "line 5: sources.s.watermark: must be"),
        (HEAD + "sources:\n  s:\n    watermark: {column: a}\n", "delay is missing"),
        (
            HEAD + "sources:\n  s:\n    watermark:\n      column: a\n      delay: 10\n",
            "line 7: sources.s.watermark.delay: 10 has no unit: write `10 seconds`",
        ),
        (HEAD + "trigger: 1:30\n", "has no unit"),
        (HEAD + "max_batch_records: many\n", "line 3: pipeline.max_batch_records: 'many' is not"),
        (HEAD + "checkpoint: ${HERE}\n", "the environment variable HERE is not set"),
        (HEAD + "checkpoint: ${a b}\n", "${a b} does not name an environment variable"),
        (HEAD + "sinks:\n  out: {topic: t}\n", "line 4: sinks.out: from is missing"),
        (HEAD + "sinks:\n  out: {from: s}\n", "a sink has either database and table, or topic"),
        (
            HEAD + "sinks:\n  out:\n    from: s\n    path: x\n    topic: t\n",
            "line 4: sinks.out: a sink has either database and table, or topic, or path and not "
            "topic and path",
        ),
        (
            HEAD + "sinks:\n  out:\n    from: s\n    topic: x\n    mode: upsert\n",
            "line 7: sinks.out.mode: mode does not go with topic",
        ),
        (HEAD + "sinks:\n  out: {from: s, database: sqlite:///x}\n", "table is missing"),
        (HEAD + "dead_letters: topic\n", "line 3: dead_letters: must be a mapping"),
        (HEAD + "dead_letters: {max_share: x}\n", "'x' is not a number such as 0.01"),
        (HEAD + "? [a]\n: b\n", "a key must be a text"),
    ],
)
def test_problems_of_a_file(text: str, expected: str) -> None:
    _, problems = _parse(text)
    assert any(expected in problem for problem in problems), problems


def test_parts_may_share_keys_by_anchors() -> None:
    spec, problems = _parse(
        HEAD
        + "sources:\n  a: &one {topic: a, schema: x int}\n  b: {<<: *one, topic: b}\n"
        + TAIL.replace("s,", "a,")
    )
    assert problems == []
    assert spec is not None
    assert [(source.topics, source.schema) for source in spec.sources] == [
        (("a",), "x int"),
        (("b",), "x int"),
    ]


@pytest.mark.parametrize(
    ("sql", "line", "text", "indent"),
    [
        ("sql: SELECT 1 AS a", 5, "SELECT 1 AS a", 9),
        ('sql: "SELECT 1"', 5, "SELECT 1", 10),
        ("sql: SELECT 1\n      , 2", 5, "SELECT 1\n      , 2", 0),
        ("sql: |\n\n      SELECT 1\n        , 2\n", 6, "\nSELECT 1\n  , 2", 6),
        ("sql: >-\n      SELECT 1 -- one\n        , 2\n\n", 6, "SELECT 1 -- one\n  , 2", 6),
        ("sql: |2\n      SELECT 1\n", 6, "SELECT 1", 6),
    ],
)
def test_the_position_of_sql(sql: str, line: int, text: str, indent: int) -> None:
    spec, problems = _parse(
        HEAD + f"steps:\n  a:\n    {sql}\n  b: {{sql: x}}\nsources: {{}}\n{TAIL}"
    )

    assert problems == []
    assert spec is not None
    step = spec.steps[0]
    if "|2" not in sql:
        assert step.sql == text
    assert (step.sql_line, step.sql_indent) == (line, indent)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: *b\n", "line 1: file: not readable as YAML: undefined alias 'b': its anchor"),
        ("a: 1\n---\nb: 2\n", "line 2: file: not readable as YAML: found another document"),
        ("a: 1\nb: x\0y\n", "line 2: file: '\\x00' is not allowed in a text"),
        (f"a: {'[' * 1100}\n", "file: not readable as YAML: it is nested too deeply"),
        (HEAD + "sources: &a\n  <<: *a\n" + TAIL, "line 4: sources: `<<` cannot merge a mapping"),
        (
            HEAD + "sources:\n  s:\n    name: t\n    topic: t\n" + TAIL,
            "line 5: sources.s.name: the key s already is the name",
        ),
    ],
)
def test_problems_of_unusual_files(text: str, expected: str) -> None:
    _, problems = _parse(text)
    assert str(problems[0]).startswith(expected)


def test_a_dollar_can_be_escaped() -> None:
    spec, _ = _parse(HEAD + "checkpoint: a/$${b}/$c/${D}\n" + TAIL, D="d")
    assert spec is not None
    assert spec.checkpoint == "/flows/a/${b}/$c/d"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("sqlite:///a.db", "sqlite:////flows/a.db"),
        ("sqlite:////a.db", "sqlite:////a.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql://h/d", "postgresql://h/d"),
    ],
)
def test_a_file_of_sqlite_is_relative_to_the_pipeline(written: str, read: str) -> None:
    spec, _ = _parse(HEAD + f"sinks: {{o: {{from: s, database: '{written}', table: t}}}}\n")
    assert spec is not None
    (sink,) = spec.sinks
    assert isinstance(sink, DatabaseSinkSpec)
    assert sink.database == read


def test_load_reports_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yml"
    path.write_text(HEAD + "nmae: x\n")
    with pytest.raises(PipelineFileError, match="unknown key nmae") as caught:
        load(path)
    assert len(caught.value.problems) == 3

    with pytest.raises(PipelineError, match="there is no file"):
        load(tmp_path / "other.yml")
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(PipelineError, match="cannot be read"):
        load(path)
    path.write_text(HEAD + "sources: {s: {topic: t}}\n" + TAIL)
    assert load(str(path)).name == "p"
