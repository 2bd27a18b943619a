"""The problems of a pipeline, each with its line (D2, E5)."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.check.validate import validate
from penstock.spark.pipeline.model import (
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
    Watermark,
)
from penstock.spark.pipeline.yaml_file import parse
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.topic.kind import TopicSinkSpec

GOOD = """\
name: clicks
bootstrap_servers: localhost:9092,[::1]:9092
trigger: 1 second
sources:
  clicks:
    topic: clicks
    schema: user string, at timestamp, page string, n int
    required: [user]
    watermark: {column: at, delay: 10 minutes}
tables:
  customers: {database: "sqlite:///shop.db", table: customers, schema: "user string, city string"}
steps:
  once:
    from: clicks
    deduplicate: [user, page]
  per_minute:
    sql: |
      SELECT window.start AS minute, c.user, d.city,
             count(*) AS n
      FROM once c LEFT JOIN customers d ON c.user = d.user
      GROUP BY window(at, '1 minute'), c.user, d.city
sinks:
  stored:
    from: per_minute
    database: sqlite:///out.db
    table: per_minute
    mode: upsert
    key: [minute, user]
    order_by: [n]
    delete_when: n = 0
  sent: {from: per_minute, topic: per-minute, key: user}
  kept: {from: clicks, path: files}
dead_letters: {topic: dead, max_count: 10, max_share: 0.5}
"""


def problems_of(text: str, file: str = "/flows/pipeline.yml") -> list[str]:
    spec, problems = parse(text, file, variables={})
    assert spec is not None
    return [str(problem) for problem in (*problems, *validate(spec))]


def test_a_good_file_has_no_problem() -> None:
    assert problems_of(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: clicks", "name: my clicks", "line 1: pipeline.name: 'my clicks' is not a name"),
        ("localhost:9092,", "localhost,", "line 2: pipeline.bootstrap_servers: 'localhost' is"),
        ("[::1]:9092", "h:99999", "'h:99999' is not an address"),
        (
            "trigger: 1 second",
            "trigger: soon",
            "line 3: pipeline.trigger: 'soon' is not a duration",
        ),
        ("trigger: 1 second", "max_batch_records: 0", "a batch has at least one record"),
        ("trigger: 1 second", "kafka: {bootstrap.servers: x}", "set by bootstrap_servers"),
        ("trigger: 1 second", "spark: {sql.x: y}", "sql.x is not a setting of Spark"),
        ("  clicks:\n", "  2clicks:\n", "line 5: sources.2clicks: '2clicks' is not a name that"),
        ("  customers:", "  Clicks:", "line 11: tables.Clicks: the name Clicks is already used"),
        ("  once:\n", "  per_minute:\n", "per_minute appears twice"),
        ("topic: clicks", "topic: cli cks", "line 6: sources.clicks.topic: 'cli cks' cannot be"),
        ("topic: clicks", "pattern: '['", "line 6: sources.clicks.pattern"),
        ("    topic: clicks\n", "", "line 5: sources.clicks: the topics are missing"),
        ("topic: clicks\n", "topic: clicks\n    pattern: x\n", "the topics are missing"),
        (
            "topic: clicks\n",
            "topic: clicks\n    schema_file: x\n",
            "schema_file does not go with",
        ),
        (
            "topic: clicks\n",
            "topic: clicks\n    message: x\n",
            "message does not go with the",
        ),
        (
            "topic: clicks\n",
            "topic: clicks\n    starting: soon\n",
            "line 7: sources.clicks.starting",
        ),
        ("topic: clicks\n", "topic: clicks\n    options: {minPartition: 3}\n", "minPartitions"),
        ("topic: clicks\n", "topic: clicks\n    options: {epoch: x}\n", "option epoch is 'x'"),
        (
            "topic: clicks\n",
            "topic: clicks\n    format: avro\n",
            "avro, which needs schema_file",
        ),
        ("    schema: user string, at timestamp, page string, n int\n", "", "needs a schema"),
        ("page string", "page sting", "line 7: sources.clicks.schema: schema, line 1, column 33"),
        ("page string", "_topic string", "a field may not be named _topic"),
        ("required: [user]", "required: [usr]", "line 8: sources.clicks.required: the required"),
        ("column: at", "column: att", "line 9: sources.clicks.watermark: there is no column att"),
        ("column: at", "column: page", "page is a string, but a watermark needs a timestamp"),
        ("n int\n", "n struct<at timestamp>\n", None),
        ("delay: 10 minutes", "delay: 10 lightyears", "line 9: sources.clicks.watermark.delay"),
        ("table: customers, ", "", "line 11: tables.customers: table is missing"),
        (
            'database: "sqlite:///shop.db", table: customers',
            "path: no/where",
            "no file or directory",
        ),
        ('schema: "user string, city string"', "schema: user", "line 11: tables.customers.schema"),
        ("from: clicks\n    dedu", "from: klicks\n    dedu", "line 14: steps.once.from: there is"),
        ("    from: clicks\n    dedu", "    dedu", "from is missing: the view to deduplicate"),
        ("[user, page]", "[user, pag]", "line 15: steps.once.deduplicate: clicks has no column"),
        ("from: clicks\n    dedu", "from: customers\n    dedu", "customers is a table"),
        ("from: clicks\n    dedu", "from: per_minute\n    dedu", "only defined further down"),
        (
            "    watermark: {column: at, delay: 10 minutes}\n",
            "",
            "line 14: steps.once.deduplicate: state without a watermark",
        ),
        (
            "    deduplicate: [user, page]\n",
            "    deduplicate: [user]\n    function: x:y\n",
            "line 13: steps.once: a step has one of sql, function or deduplicate, not function",
        ),
        ("    deduplicate: [user, page]\n", "", "from goes with deduplicate only"),
        (
            "    deduplicate: [user, page]\n",
            "    deduplicate: [user]\n    watermark: {column: at, delay: x}\n",
            "line 16: steps.once.watermark.delay: 'x' is not a duration",
        ),
        (
            "c.user, d.city,\n",
            "c.usr, d.city,\n",
            "line 18: steps.per_minute.sql: c has no column ",
        ),
        ("count(*)", "cuont(*)", "line 19: steps.per_minute.sql: there is no function cuont"),
        ("FROM once", "FROM onze", "line 20: steps.per_minute.sql: there is no view onze"),
        ("'1 minute'), c.user", "'1 minute')) c.user", "line 21: steps.per_minute.sql: the SQL"),
        ("window(at,", "window(att,", "line 21: steps.per_minute.sql: there is no column att"),
        (
            "      SELECT",
            "      INSERT INTO x SELECT",
            "line 18: steps.per_minute.sql: a step is a",
        ),
        (
            "d.city\nsinks",
            "d.city\n      ORDER BY n\nsinks",
            "line 22: steps.per_minute.sql: ORDER",
        ),
        ("  sent: {from: per_minute", "  sent: {from: per_hour", "line 31: sinks.sent.from: there"),
        ("  sent: {", "  se nt: {", "line 31: sinks.se nt: 'se nt' is not a name"),
        ("  sent: {", "  Stored: {", "there are two sinks Stored"),
        ("  kept: {from: clicks", "  kept: {from: customers", "customers reads no topic"),
        ("SELECT window.start AS minute", "SELECT window.start AS n", "several columns n"),
        ("database: sqlite:///out.db", "database: out.db", "line 25: sinks.stored.database"),
        ("mode: upsert\n", "mode: upsert\n    writing: staged\n", "line 28: sinks.stored.writing"),
        ("    key: [minute, user]\n", "", "line 23: sinks.stored.key: upsert needs key"),
        ("key: [minute, user]", "key: [minute, usr]", "has no column usr: did you mean user?"),
        ("order_by: [n]", "order_by: [m]", "line 29: sinks.stored.order_by: per_minute has no"),
        ("    mode: upsert\n", "", "order_by goes with `mode: upsert` only"),
        ("    mode: upsert\n", "", "delete_when goes with `mode: upsert` only"),
        ("delete_when: n = 0", "delete_when: n =", "line 30: sinks.stored.delete_when"),
        ("delete_when: n = 0", "delete_when: m = 0", "there is no column m"),
        ("topic: per-minute", "topic: per minute", "line 31: sinks.sent.topic: 'per minute'"),
        ("topic: per-minute", "topic: ", "line 31: sinks.sent.topic: say the topic"),
        ("topic: per-minute, key: user", "topic: x, key: usr", "line 31: sinks.sent.key"),
        ("path: files}", "path: files, partition_by: x}", "line 32: sinks.kept.partition_by"),
        ("path: files}", "path: files, output_mode: update}", "append only"),
        ("topic: dead, ", "", "line 33: dead_letters: the destination is missing"),
        (
            "topic: dead, ",
            "topic: dead, table: x, ",
            "line 33: dead_letters: the destination is missing",
        ),
        ("topic: dead, ", "topic: 'a b', ", "line 33: dead_letters.topic: 'a b' cannot be"),
        ("topic: dead, ", "topic: clicks, ", "which would read its own dead letters"),
        ("topic: clicks\n", "pattern: de.*\n", "which would read its own dead letters"),
        (
            "topic: clicks\n",
            "topic: clicks\n    format: csv\n    options: {sep: ''}\n",
            "line 8: sources.clicks.options: option sep is ''",
        ),
        (
            "topic: clicks\n",
            "topic: clicks\n    format: csv\n    options: {quote: ab}\n",
            "line 8: sources.clicks.options: option quote is 'ab'",
        ),
        ("trigger: 1 second", "kafka: {linger.ms: soon}", "line 3: pipeline.kafka: "),
        ("trigger: 1 second", "kafka: {no.such: x}", "line 3: pipeline.kafka: "),
        ("trigger: 1 second", "kafka: {max.request.size: 5000000, acks: all}", None),
        ("topic: dead, ", "table: dead, ", "line 33: dead_letters.table: a table can only hold"),
        ("max_count: 10", "max_count: -1", "line 33: dead_letters.max_count: -1 is negative"),
        ("max_share: 0.5", "max_share: 5", "line 33: dead_letters.max_share: 5.0 is not a share"),
    ],
)
def test_a_problem_has_its_line(old: str, new: str, expected: str | None) -> None:
    assert old in GOOD
    problems = problems_of(GOOD.replace(old, new, 1))
    if expected is None:
        assert problems == []
    else:
        assert any(expected in problem for problem in problems), problems


def test_a_problem_in_a_list_has_the_line_of_its_item() -> None:
    lists = GOOD.replace("required: [user]", "required:\n      - user\n      - usr")
    assert problems_of(lists)[0].startswith("line 10: sources.clicks.required: the required field")
    topics = GOOD.replace("topic: clicks", "topics:\n      - clicks\n      - cli cks", 1)
    assert problems_of(topics)[0].startswith("line 8: sources.clicks.topic: 'cli cks' cannot be")


def test_a_condition_may_name_a_column_like_a_keyword_of_sql() -> None:
    """Spark reads it without backticks."""
    text = GOOD.replace("AS n\n", "AS n, max(page) AS values\n")
    assert problems_of(text.replace("delete_when: n = 0", "delete_when: values = 'x'")) == []


def test_a_problem_in_sql_has_its_column_in_the_file() -> None:
    (problem,) = problems_of(GOOD.replace("d.city,\n", "d.town,\n"))
    line = GOOD.replace("d.city,\n", "d.town,\n").splitlines()[17]
    assert f"(column {line.index('town') + 1})" in problem


AGGREGATES = """\
name: p
bootstrap_servers: h:1
sources:
  s:
    topic: t
    schema: k string, at timestamp
    watermark: {column: at, delay: 1 hour}
  u: {topic: u, schema: "k string, at timestamp"}
steps:
  ever: {sql: "SELECT k, count(*) AS n FROM u GROUP BY k", unbounded_state: true}
  all: {sql: "SELECT count(*) AS n FROM s"}
  sessions:
    sql: SELECT k, session_window(at, '1 minute') AS w FROM s GROUP BY k, w
  minutes: {sql: "SELECT window(at, '1 minute') AS w, count(*) AS n FROM s GROUP BY w"}
  hours: {sql: "SELECT window(window_time(w), '1 hour') AS h, sum(n) AS n FROM minutes GROUP BY h"}
  some: {sql: "SELECT k FROM s LIMIT 10"}
sinks:
"""


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ("{from: ever, topic: t}", "append is not possible: no row of the aggregation in ever"),
        ("{from: ever, path: t}", "Use another sink, or a watermark"),
        ("{from: ever, database: 'sqlite:///x', table: t}", "with `mode: upsert`"),
        ("{from: ever, topic: t, output_mode: update}", None),
        ("{from: ever, database: 'sqlite:///x', table: t, mode: upsert, key: k}", None),
        ("{from: all, topic: t}", "append is not possible"),
        ("{from: all, topic: t, output_mode: update}", None),
        ("{from: sessions, topic: t}", None),
        ("{from: sessions, topic: t, output_mode: update}", "session windows of sessions"),
        ("{from: sessions, database: 'sqlite:///x', table: t, mode: upsert, key: k}", None),
        ("{from: hours, topic: t}", None),
        (
            "{from: hours, topic: t, output_mode: update}",
            "hours reads the result of an earlier aggregation",
        ),
        ("{from: some, topic: t, output_mode: update}", "LIMIT (in some) only appends"),
    ],
)
def test_output_modes_that_the_query_does_not_allow(sink: str, expected: str | None) -> None:
    problems = problems_of(f"{AGGREGATES}  out: {sink}\n")
    if expected is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problems[0].startswith("line 18: sinks.out.output_mode: ")
        assert expected in problems[0]


def test_a_missing_watermark_is_reported_once() -> None:
    text = AGGREGATES.replace(", unbounded_state: true", "") + "  out: {from: ever, topic: t}\n"
    (problem,) = problems_of(text)
    assert problem.startswith("line 10: steps.ever.sql: state without a watermark")


def test_steps_after_a_function_are_not_checked() -> None:
    text = AGGREGATES.replace(
        "  all: {sql", "  made: {function: 'json:dumps'}\n  all: {sql"
    ).replace("FROM u GROUP", "FROM made GROUP")
    text = text.replace("SELECT k, count(*) AS n", "SELECT anything, own_function(k) AS n")
    text = text.replace("  ever: ", "  zz: {sql: SELECT 1 AS a}\n  ever: ")
    lines = text.splitlines(keepends=True)
    made = next(line for line in lines if line.startswith("  made"))
    lines.remove(made)
    zz_index = next(i for i, line in enumerate(lines) if line.startswith("  zz"))
    lines.insert(zz_index, made)
    assert problems_of("".join(lines) + "  out: {from: ever, topic: t}\n") == []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("steps.py:score", None),
        ("steps.py:imported", None),
        ("steps.py:made", None),
        ("steps.py:scor", "there is no function scor in"),
        ("other.py:score", "there is no file"),
        ("broken.py:score", "broken.py, line 1: "),
        ("flow.steps:score", None),
        ("flow.nothing:score", "there is no module flow.nothing"),
        ("flow_steps.sub:score", "there is no module flow_steps"),
        ("steps", "'steps' does not name a function"),
        ("steps.py:a-b", "does not name a function"),
        ("json:dumps", None),
        ("json.dumps.x:y", "there is no module json.dumps"),
    ],
)
def test_functions_are_found_without_running_them(
    tmp_path: Path, function: str, expected: str | None
) -> None:
    source = (
        "from os import path as imported\nmade = 1\ndef score(views): raise SystemExit\n1 / 0\n"
    )
    (tmp_path / "steps.py").write_text(source)
    (tmp_path / "broken.py").write_text("def (\n")
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "__init__.py").write_text("1 / 0\n")
    (tmp_path / "flow" / "steps.py").write_text(source)
    text = (
        "name: p\nbootstrap_servers: h:1\nsources: {s: {topic: t, schema: a int}}\n"
        f"steps:\n  made: {{function: '{function}'}}\nsinks: {{o: {{from: made, topic: x}}}}\n"
    )
    problems = problems_of(text, str(tmp_path / "pipeline.yml"))
    if expected is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problems[0].startswith("line 5: steps.made.function: ")
        assert expected in problems[0]


AVRO = """{"type": "record", "name": "Click", "fields": [
  {"name": "user", "type": "string"},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("schema_file: click.avsc, watermark: {column: at, delay: 1 hour}", None),
        ("schema_file: click.avsc, required: [usr]", "did you mean user?"),
        ("schema_file: click.avsc, watermark: {column: user, delay: 1 hour}", "user is a string"),
        ("schema_file: klick.avsc", "klick.avsc"),
        ("schema_file: wrong.avsc", "wrong.avsc"),
        ("headers: true", "needs schema_file"),
    ],
)
def test_avro_schemas_are_read(tmp_path: Path, more: str, expected: str | None) -> None:
    (tmp_path / "click.avsc").write_text(AVRO)
    (tmp_path / "wrong.avsc").write_text("{")
    text = (
        "name: p\nbootstrap_servers: h:1\n"
        f"sources:\n  s: {{topic: t, format: avro, {more}}}\n"
        "steps: {a: {sql: 'SELECT user, at FROM s'}}\nsinks: {o: {from: a, topic: x}}\n"
    )
    problems = problems_of(text, str(tmp_path / "pipeline.yml"))
    if expected is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problems[0].startswith("line 4: sources.s.")
        assert expected in problems[0]


def test_protobuf_needs_its_message(tmp_path: Path) -> None:
    text = (
        "name: p\nbootstrap_servers: h:1\n"
        "sources:\n  s: {topic: t, format: protobuf, schema_file: none.desc, message: a.B}\n"
        "sinks: {o: {from: s, topic: x}}\n"
    )
    (problem,) = problems_of(text, str(tmp_path / "pipeline.yml"))
    assert problem.startswith("line 4: sources.s.schema_file: ")
    (problem,) = problems_of(text.replace(", message: a.B", ""), str(tmp_path / "pipeline.yml"))
    assert "needs message" in problem


def test_settings_of_kafka_are_checked() -> None:
    text = GOOD.replace("trigger: 1 second", "kafka: {security.protocol: TLS}")
    assert any("line 3: pipeline.kafka: " in problem for problem in problems_of(text))


def test_a_pipeline_needs_a_source_and_a_sink() -> None:
    spec = PipelineSpec(name="p", bootstrap_servers="h:1", sources=(), sinks=())
    assert [problem.where for problem in validate(spec)] == ["pipeline.sinks", "pipeline.sources"]


def test_validate_starts_no_spark() -> None:
    """Neither pyspark nor the packages of other formats are imported."""
    script = (
        "import sys\n"
        "from penstock.spark.pipeline.yaml_file import parse\n"
        "from penstock.spark.check.validate import validate\n"
        "from penstock.spark.check.plan import plan\n"
        "spec, problems = parse(sys.stdin.read(), 'pipeline.yml', variables={})\n"
        "assert spec is not None and not problems and not validate(spec) and plan(spec)\n"
        "print([name for name in ('pyspark', 'pyarrow', 'fastavro', 'sqlalchemy', 'pandas')"
        " if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=GOOD, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


_names = st.lists(
    st.sampled_from(["a", "b_1", "Clicks", "per_day", "x9", "_u"]),
    min_size=4,
    max_size=4,
    unique=True,
)
_columns = st.lists(
    st.sampled_from(["user", "n", "page", "from", "`two words`"]),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def _pipelines(draw: st.DrawFn) -> PipelineSpec:
    """Valid pipelines: each view reads existing columns of an earlier view."""
    names = draw(_names)
    columns = draw(_columns)
    typed = ", ".join(f"{name} {draw(st.sampled_from(['int', 'string']))}" for name in columns)
    source = SourceSpec(
        name=names[0],
        topics=("t",),
        schema=f"{typed}, seen timestamp",
        required=("seen",),
        watermark=Watermark(column="seen", delay="5 minutes"),
        starting=draw(st.sampled_from(["earliest", "latest", "2026-01-01"])),
    )
    table = TableSpec(name=names[1], path="s3://b/t", schema="nr int, name string")
    key = draw(st.sampled_from([name for name in columns if name.isidentifier()] or ["seen"]))
    key_sql = f"`{key}`" if key == "from" else key
    where = draw(
        st.sampled_from(["", f" WHERE {key_sql} IS NOT NULL", " WHERE seen > '2026-01-01'"])
    )
    first = draw(
        st.sampled_from(
            [
                StepSpec(name=names[2], sql=f"SELECT * FROM {names[0]}{where}"),
                StepSpec(name=names[2], sql=f"SELECT {key_sql}, seen FROM {names[0]} x{where}"),
                StepSpec(name=names[2], source=names[0], deduplicate=(key,)),
                StepSpec(
                    name=names[2],
                    sql=f"WITH c AS (SELECT * FROM {names[0]}) SELECT c.*, d.name FROM c "
                    f"LEFT JOIN {names[1]} d ON length(c.{key_sql}) = d.nr",
                ),
            ]
        )
    )
    window = draw(
        st.sampled_from(["window(seen, '1 hour')", "window(seen, '1 hour', '5 minutes')"])
    )
    second = StepSpec(
        name=names[3],
        sql=f"SELECT {window} AS w, {key_sql}, count(*) AS total FROM {names[2]} "
        f"GROUP BY w, {key_sql}",
    )
    view = draw(st.sampled_from([names[2], names[3]]))
    sinks: list[SinkSpec] = [
        DatabaseSinkSpec(name="d", view=view, database="sqlite:///x", table="t"),
        DatabaseSinkSpec(
            name="u", view=view, database="mysql://h/d", table="t", mode="upsert", key=(key,)
        ),
        TopicSinkSpec(name="t", view=view, topic="out", key=(key,)),
        ParquetSinkSpec(name="p", view=view, path="out", partition_by=(key,)),
    ]
    return PipelineSpec(
        name="p",
        bootstrap_servers="h:1",
        sources=(source,),
        tables=(table,),
        steps=(first, second),
        sinks=tuple(draw(st.lists(st.sampled_from(sinks), min_size=1, unique_by=id))),
    )


@given(_pipelines())
def test_a_valid_pipeline_has_no_problem(spec: PipelineSpec) -> None:
    assert validate(spec) == []
