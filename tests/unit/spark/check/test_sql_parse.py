"""Statements that cannot be parsed have a message and a position."""

import pytest
from sqlglot import exp

from penstock.spark.check.relations import Finding
from penstock.spark.check.sql_parse import parse_condition, parse_query


@pytest.mark.parametrize(
    ("sql", "line", "column", "message"),
    [
        ("", 1, None, "the SQL is empty"),
        ("-- nothing", 1, None, "only a comment"),
        ("SELECT a,\nFROM t", 1, 9, "a comma too many before FROM"),
        ("SELECT a\nFROM t GROUP BY a,", 2, 18, "a comma too many at the end"),
        ("SELECT f(a,\n) FROM t", 1, 11, "a comma too many before )"),
        ("SELECT * FROM a JOIN b ON", 1, 24, "ON has no condition at the end"),
        ("SELECT a b\nc FROM t", 2, 1, "`c` is not expected here"),
        ("SELECT count(a\nFROM t", 2, 1, "`)` is missing near `FROM`"),
        ("SELECT a FROM t WHERE", 1, 17, "something is missing in WHERE"),
        ("SELECT CASE WHEN a THEN b FROM t", 1, 25, "a CASE has no END"),
        ("SELEC a FROM t", 1, 9, "begins with SELECT or WITH, this one with SELEC"),
        ("SELECT 'a\nFROM t", 1, 8, "' is never closed"),
        ("SELECT a -- it's\n, `b FROM t", 2, 3, "` is never closed"),
        ("SELECT a /* no end\nFROM t", 1, 10, "/ is never closed"),
        ("SELECT FROM t", 1, 1, "SELECT has no columns"),
        ("SELECT 1;\nSELECT 2", 1, 9, "another statement follows"),
        ("INSERT INTO t SELECT 1", 1, 1, "INSERT is not possible here"),
        ("DROP TABLE t", 1, 1, "DROP is not possible here"),
    ],
)
def test_syntax_errors(sql: str, line: int, column: int | None, message: str) -> None:
    parsed = parse_query(sql)
    assert parsed.tree is None
    assert parsed.finding is not None
    assert message in parsed.finding.message
    assert (parsed.finding.line, parsed.finding.column) == (line, column)


@pytest.mark.parametrize("sql", ["SELECT n >>> 1 AS e FROM t", "SELECT X '1F' AS x", "TABLE t"])
def test_syntax_that_sqlglot_does_not_know_is_not_an_error(sql: str) -> None:
    parsed = parse_query(sql)
    assert parsed.tree is None
    assert parsed.finding is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT window, count(*) FROM t GROUP BY window",
        "SELECT window w FROM t GROUP BY window(at, '1 minute')",
        "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY b)",
        "SELECT 1;",
    ],
)
def test_window_is_a_name_and_a_clause(sql: str) -> None:
    assert isinstance(parse_query(sql).tree, exp.Select)


def test_a_condition() -> None:
    assert isinstance(parse_condition("op = 'd' AND n > 1"), exp.And)
    for wrong in ("op =", "", "a GROUP BY a", "a LIMIT 1"):
        assert isinstance(parse_condition(wrong), Finding), wrong


@pytest.mark.parametrize(
    ("sql", "column", "message"),
    [
        ("ADD JAR '/a.jar' -- >>>", 1, "ADD JAR is not possible here"),
        (f"SET a = {'(' * 3000}1{')' * 3000}", 1, "SET is not possible here"),
        ("EXECUTE IMMEDIATE 'DROP TABLE t'", 1, "EXECUTE is not possible here"),
        ("BEGIN DROP TABLE t; END", 1, "DROP"),
        ("DROP TABLE t", 1, "DROP is not possible here"),
        ("SELECT a, Reflect('java.lang.System', 'exit', 1) FROM t", 11, "reflect(…) calls Java"),
        ("SELECT `java_method`('a', 'b') >>> 1", 8, "java_method(…) calls Java code"),
        ("SELECT system.builtin.try_reflect ('a', 'b')", 23, "try_reflect(…) calls Java code"),
        ("SELECT TRANSFORM(a) USING 'cat' AS (b) FROM t", 21, "runs a program"),
        ("MAP a USING 'cat' FROM t", 7, "runs a program"),
    ],
)
def test_statements_and_calls_that_are_refused_whatever_columns_are_named(
    sql: str, column: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    parsed = parse_query(sql)
    assert parsed.is_refusal
    assert parsed.finding is not None
    assert message in parsed.finding.message
    assert parsed.finding.line == 1
    assert "BEGIN" in sql or parsed.finding.column == column
    assert not caplog.records


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT transform(a, x -> x + 1), 'reflect(' AS b, reflect FROM t JOIN u USING (id)",
        "(SELECT 1)",
        "FROM t SELECT a",
        "VALUES (1, 'a'), (2, 'b') AS v(a, b)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
    ],
)
def test_queries_are_not_refused(sql: str) -> None:
    assert parse_query(sql).finding is None
