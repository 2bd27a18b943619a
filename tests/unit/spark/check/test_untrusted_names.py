"""Names in a pipeline file that would collide with Penstock's own, or leave its text (D2)."""

import pytest

from penstock.spark.check.validate import validate
from penstock.spark.database_url import without_password
from penstock.spark.errors import TooManyDeadLettersError, printable
from penstock.spark.pipeline.yaml_file import parse
from penstock.spark.run.dead_letter_reader import check_limits
from tests.support.spark.database_sinks import letters_at

FILE = """\
name: clicks
bootstrap_servers: localhost:9092
sources:
  clicks: {{topic: clicks, schema: "user string, `a``b` string"}}
sinks:
  {sink}
"""


def problems_of(sink: str, more: str = "") -> list[str]:
    spec, problems = parse(FILE.format(sink=sink) + more, "pipeline.yml")
    assert spec is not None
    return [str(problem) for problem in [*problems, *validate(spec)]]


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ("a: {from: clicks, topic: _penstock_pipelines}", "sinks.a.topic: the topic _penstock_pip"),
        ("a.b: {from: clicks, topic: b}", "'a.b' is not a name for a sink"),
        (f"{'a' * 100}: {{from: clicks, topic: b}}", "is not a name for a sink"),
        ("dead-letters: {from: clicks, topic: b}", "the name dead-letters is reserved"),
        ("Replay-DLQ: {from: clicks, path: b}", "the name Replay-DLQ is reserved"),
        (
            'a: {from: clicks, database: "sqlite:///a.db", table: penstock_offset}',
            "sinks.a.table: the name penstock_offset is reserved",
        ),
        (
            'a: {from: clicks, database: "postgresql://h/d", table: "a\\nb"}',
            r"sinks.a.table: the name of the table 'a\nb' contains a control character",
        ),
        (
            'a: {from: clicks, database: "mysql://h/d", table: a}',
            "sinks.a.from: the name of the column 'a`b' contains a backtick",
        ),
        (
            'a: {from: clicks, database: "post gres://u:secret@h/d", table: a}',
            "'post gres://u:***@h/d' is not the address of a database",
        ),
    ],
)
def test_names_of_sinks(sink: str, problem: str) -> None:
    problems = problems_of(sink)
    assert len(problems) == 1
    assert problems[0].startswith("line 6: ")
    assert problem in problems[0]


@pytest.mark.parametrize(
    ("dead_letters", "problem"),
    [
        ("{table: Penstock_Pipeline}", "the name Penstock_Pipeline is reserved for Penstock"),
        ("{table: Results}", "Results is the table of the sink a: use another table"),
        ("{table: temp.dead}", "the schema temp is dropped with its connection"),
    ],
)
def test_the_table_of_dead_letters(dead_letters: str, problem: str) -> None:
    sink = 'a: {from: clicks, database: "sqlite:///a.db", table: results}'
    problems = problems_of(sink, f"dead_letters: {dead_letters}\n")
    assert len(problems) == 1
    assert problems[0].startswith("line 7: dead_letters.table: ")
    assert problem in problems[0]


def test_dead_letters_are_not_written_to_the_topic_with_the_progress() -> None:
    sink = "a: {from: clicks, topic: b}"
    (problem,) = problems_of(sink, "dead_letters: {topic: _penstock_pipelines}\n")
    assert "contains the progress of pipelines" in problem


def test_a_record_in_an_error_stays_on_its_line() -> None:
    letters = letters_at(3, reason="not JSON: \x1b[2J\r\nERROR forged\u202e\0")
    with pytest.raises(TooManyDeadLettersError) as raised:
        check_limits("clicks.a", None, letters, 1)
    assert r"not JSON: \x1b[2J\r\nERROR forged\u202e\x00; name a dead-letter" in str(raised.value)
    assert printable("Größe 🎉 'a' \\") == "Größe 🎉 'a' \\"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@ss@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@s:s@h:1/d?password=x", "postgresql://u:***@h:1/d?password=***"),
        ("mysql://h/d?passwd=x&a=b", "mysql://h/d?passwd=***&a=b"),
        ("postgresql://h/d?a=b&sslPassword=x", "postgresql://h/d?a=b&sslPassword=***"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
    ],
)
def test_passwords_of_addresses_are_hidden(url: str, shown: str) -> None:
    assert without_password(url) == shown


STEP = """\
name: clicks
bootstrap_servers: localhost:9092
spark: {{"spark.sql.runSQLOnFiles": "{files}"}}
sources:
  clicks: {{topic: clicks, schema: "drop string, `table` string"}}
steps:
  rows:
    sql: |
      {sql}
sinks:
  a: {{from: rows, topic: b}}
"""


def step_problems(sql: str, *, files: bool = False) -> list[str]:
    spec, problems = parse(STEP.format(sql=sql, files=str(files).lower()), "pipeline.yml")
    assert spec is not None
    return [str(problem) for problem in [*problems, *validate(spec)]]


def test_a_column_with_the_name_of_a_keyword_does_not_allow_the_statement() -> None:
    (problem,) = step_problems("DROP TABLE clicks")
    assert problem.startswith("line 9: steps.rows.sql: a step is a SELECT; DROP is not possible")
    (problem,) = step_problems("SELECT drop, reflect('a', 'b') AS b FROM clicks")
    assert problem.startswith("line 9: steps.rows.sql: reflect(…) calls Java code")
    assert step_problems("SELECT drop, `table` FROM clicks") == []


def test_files_are_not_read_by_their_path() -> None:
    sql = "SELECT c._key FROM clicks c JOIN text.`/etc/passwd` p ON p.value = c._topic"
    (problem,) = step_problems(sql)
    assert problem.startswith("line 9: steps.rows.sql: text.`/etc/passwd`")
    assert "is a file, not a view: name it in `tables`" in problem
    assert step_problems(sql, files=True) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT drop FROM clicks WHERE " + " OR ".join(["drop = 'x'"] * 3000),
        " UNION ALL ".join(["SELECT drop FROM clicks"] * 1000),
        f"SELECT {'(' * 3000}drop{')' * 3000} FROM clicks",
    ],
)
def test_deep_statements_are_left_to_spark(sql: str) -> None:
    assert step_problems(sql) == []


def test_deep_types_are_a_problem_with_a_line() -> None:
    file = FILE.replace("user string", f"a {'array<' * 2000}int{'>' * 2000}")
    spec, _ = parse(file.format(sink="a: {from: clicks, topic: b}"), "pipeline.yml")
    assert spec is not None
    (problem,) = validate(spec)
    assert str(problem).startswith("line 4: sources.clicks.schema: ")
    assert "nested more than 100 deep" in problem.message


def test_anchors_that_merge_each_other_take_no_exponential_time() -> None:
    merges = ["m0: &m0 {from: clicks}"]
    merges += [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 20)}]}}" for n in range(1, 30)]
    text = "\n".join([*merges, FILE.format(sink="a: {<<: *m29, topic: b}")])
    spec, _ = parse(text, "pipeline.yml")
    assert spec is not None
    assert spec.sinks[0].view == "clicks"


def test_a_condition_may_not_call_java() -> None:
    (problem,) = problems_of(
        'a: {from: clicks, database: "sqlite:///a.db", table: t, mode: upsert, key: user, '
        "delete_when: \"reflect('a', 'b') = user\"}"
    )
    assert problem.startswith("line 6: sinks.a.delete_when: reflect(…) calls Java code")
