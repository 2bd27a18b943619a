"""Statements that are right have no problems, and those that are not say what is wrong (D2)."""

from dataclasses import replace

import pytest

from penstock.spark.check.views import analyze
from penstock.spark.pipeline.model import SourceSpec, StepSpec, Watermark
from tests.support.spark.sql_corpus import GOOD, REFUSED, UNBOUNDED, pipeline


def _problems(*sql: str, unbounded_state: bool = False) -> list[str]:
    spec = pipeline(*sql, unbounded_state=unbounded_state)
    return [each.message for each in analyze(spec).problems]


@pytest.mark.parametrize("sql", GOOD)
def test_a_good_statement_has_no_problem(sql: str) -> None:
    assert _problems(sql) == []


@pytest.mark.parametrize(("sql", "said"), [*REFUSED, *UNBOUNDED])
def test_a_bad_statement_has_one_problem_that_says_why(sql: str, said: str) -> None:
    problems = _problems(sql)
    assert len(problems) == 1
    assert said in problems[0]


@pytest.mark.parametrize(("sql", "_said"), UNBOUNDED)
def test_state_without_a_bound_may_be_meant(sql: str, _said: str) -> None:
    assert _problems(sql, unbounded_state=True) == []


@pytest.mark.parametrize("sql", GOOD)
def test_a_view_of_a_good_statement_can_be_read_again(sql: str) -> None:
    assert _problems(sql, "SELECT * FROM s0") == []


def test_a_view_may_not_be_read_before_it_is_made() -> None:
    first = "SELECT k FROM s1"
    assert _problems(first, "SELECT user AS k FROM clicks") == [
        "the view s1 is only defined further down: move it up (column 15)"
    ]


def test_columns_of_a_step_are_known_to_the_next() -> None:
    made = "SELECT user, count(*) AS n, window FROM clicks GROUP BY user, window(at, '1 hour')"
    assert _problems(made, "SELECT user, m FROM s0") == [
        "there is no column m (there is: user, n, window) (column 14)"
    ]


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("from", "SELECT from, to FROM payments WHERE from <> to"),
        ("from", "SELECT to, from FROM payments"),
        ("values", "SELECT values FROM payments"),
        ("offset", "SELECT count(*) AS n FROM payments GROUP BY offset, at"),
        ("when", "SELECT CASE WHEN when > 1 THEN when END AS w FROM payments"),
        ("minus", "SELECT minus FROM payments"),
    ],
)
def test_a_column_may_be_named_like_a_word_of_sql(name: str, sql: str) -> None:
    """Spark takes it without backticks; sqlglot does not, and then nothing is said."""
    source = SourceSpec(
        name="payments",
        topics=("t",),
        schema=f"`{name}` int, to int, at timestamp",
        watermark=Watermark(column="at", delay="1 hour"),
    )
    spec = replace(pipeline(sql), sources=(source,))
    assert analyze(spec).problems == ()
    (other,) = analyze(
        replace(spec, steps=(StepSpec(name="s0", sql="SELECT x FROM payments"),))
    ).problems
    assert other.message.startswith("there is no column x")


def test_an_unnamed_column_is_no_other() -> None:
    made = "SELECT user, count(*) FROM clicks GROUP BY user, window(at, '1 hour')"
    assert _problems(made, "SELECT n FROM s0")[0].startswith("there is no column n")
    assert _problems(made, "SELECT `count(1)` AS n FROM s0") == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nobody_knows FROM elsewhere.table",
        "SELECT x, y FROM clicks LATERAL VIEW explode(props) t",
        "SELECT a.b.c FROM (VALUES (1)) AS v",
        "SELECT anything FROM parquet.`/some/file`",
    ],
)
def test_nothing_is_said_about_what_is_not_known(sql: str) -> None:
    assert _problems(sql) == []
