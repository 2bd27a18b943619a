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
    assert r"not JSON: \x1b[2J\r\nERROR forged\u202e\x00. Name a dead-letter" in str(raised.value)
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
