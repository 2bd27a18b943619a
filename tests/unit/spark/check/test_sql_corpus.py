"""Good statements have no problem, and bad ones have one problem that explains it (D2)."""

from dataclasses import replace

import pytest

from penstock.spark.check.views import analyze
from penstock.spark.pipeline.model import SourceSpec, StepSpec, Watermark
from tests.support.spark.sql_corpus import GOOD, REFUSED, UNBOUNDED, pipeline


def problems_of(*sql: str, unbounded_state: bool = False) -> list[str]:
    spec = pipeline(*sql, unbounded_state=unbounded_state)
    return [problem.message for problem in analyze(spec).problems]


@pytest.mark.parametrize("sql", GOOD)
def test_a_good_statement_has_no_problem(sql: str) -> None:
    assert problems_of(sql) == []


@pytest.mark.parametrize(("sql", "message"), [*REFUSED, *UNBOUNDED])
def test_a_bad_statement_has_one_problem_that_says_why(sql: str, message: str) -> None:
    problems = problems_of(sql)
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(("sql", "_message"), UNBOUNDED)
def test_state_without_a_bound_may_be_intended(sql: str, _message: str) -> None:
    assert problems_of(sql, unbounded_state=True) == []


@pytest.mark.parametrize("sql", GOOD)
def test_a_view_of_a_good_statement_can_be_read_again(sql: str) -> None:
    assert problems_of(sql, "SELECT * FROM s0") == []


def test_a_view_may_not_be_read_before_its_definition() -> None:
    first = "SELECT k FROM s1"
    assert problems_of(first, "SELECT user AS k FROM clicks") == [
        "the view s1 is only defined further down: move it up (column 15)"
    ]


def test_columns_of_a_step_are_known_to_the_next() -> None:
    aggregate = "SELECT user, count(*) AS n, window FROM clicks GROUP BY user, window(at, '1 hour')"
    assert problems_of(aggregate, "SELECT user, m FROM s0") == [
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
def test_a_column_may_be_named_like_a_keyword_of_sql(name: str, sql: str) -> None:
    """Spark reads it without backticks; sqlglot does not, so the statement is not checked."""
    source = SourceSpec(
        name="payments",
        topics=("t",),
        schema=f"`{name}` int, to int, at timestamp",
        watermark=Watermark(column="at", delay="1 hour"),
    )
    spec = replace(pipeline(sql), sources=(source,))
    assert analyze(spec).problems == ()
    (problem,) = analyze(
        replace(spec, steps=(StepSpec(name="s0", sql="SELECT x FROM payments"),))
    ).problems
    assert problem.message.startswith("there is no column x")


def test_an_unnamed_column_has_only_its_own_name() -> None:
    aggregate = "SELECT user, count(*) FROM clicks GROUP BY user, window(at, '1 hour')"
    assert problems_of(aggregate, "SELECT n FROM s0")[0].startswith("there is no column n")
    assert problems_of(aggregate, "SELECT `count(1)` AS n FROM s0") == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nobody_knows FROM elsewhere.table",
        "SELECT x, y FROM clicks LATERAL VIEW explode(props) t",
        "SELECT a.b.c FROM (VALUES (1)) AS v",
        "SELECT anything FROM lake.`some table`",
    ],
)
def test_unknown_views_and_columns_are_not_reported(sql: str) -> None:
    assert problems_of(sql) == []
