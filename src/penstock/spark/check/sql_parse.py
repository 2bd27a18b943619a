"""Parsing the SQL of a step into sqlglot's tree, or into a finding that explains the mistake.

sqlglot reads nearly everything that Spark reads. `window` as a function in GROUP BY is handled
here; statements with syntax that only Spark knows (`x >>> 1`, `X '1F'`, `v:a`) are not checked.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError

from penstock.spark.check.query_only import (
    column_of_token,
    is_query,
    not_a_query,
    refused_call,
)
from penstock.spark.check.relations import Finding

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect

_UNKNOWN_TO_SQLGLOT = re.compile(r">>>|\bX\s+['\"]", re.IGNORECASE)
_UNKNOWN_TOKENS = frozenset([TokenType.COLON, TokenType.PIPE_GT])
"""Fields of variants (`v:a.b`) and pipes, which sqlglot only knows in part."""
_KEYWORDS = """
all alter and any as asof between case create cross cube describe distinct drop else except fetch
for from glob grant having if ilike inner insert intersect into join lateral like limit lock minus
not notnull offset on or outer overlaps qualify returning revoke rlike rollback rollup select
serdeproperties tablesample then uncache union using values when where with xor
"""
_COLUMN_KEYWORDS = frozenset(_KEYWORDS.split())
"""Names that a column may have in Spark without backticks, but that sqlglot reads as keywords."""
_CLAUSES = {
    TokenType.FROM: "FROM",
    TokenType.WHERE: "WHERE",
    TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING",
    TokenType.ORDER_BY: "ORDER BY",
    TokenType.R_PAREN: ")",
    TokenType.UNION: "UNION",
}
_QUOTES = ("'", '"', "`")


@dataclass(frozen=True)
class Parsed:
    """A statement. Without a tree and a finding, it may be right but cannot be checked."""

    tree: exp.Query | None = None
    finding: Finding | None = None
    is_refusal: bool = False
    """Whether the finding holds even if a column has the name of a keyword."""


def parse_query(sql: str) -> Parsed:
    """Parses the one SELECT (or UNION, WITH …, VALUES) that a step consists of."""
    if not sql.strip():
        return Parsed(finding=Finding(1, None, "the SQL is empty: write a SELECT"))
    try:
        tokens = tokenize(sql)
    except TokenError:
        return Parsed(finding=_unfinished_text(sql))
    if not tokens:
        return Parsed(finding=Finding(1, None, "the SQL is only a comment: write a SELECT"))
    refusal = refused_call(tokens)
    if refusal is not None:
        return Parsed(finding=refusal, is_refusal=True)
    if tokens[0].token_type in (TokenType.COMMAND, TokenType.EXECUTE):
        # sqlglot would log a warning.
        return Parsed(finding=not_a_query(tokens[0]), is_refusal=True)
    parsed = _parse(tokens, sql)
    if is_query(tokens):
        return parsed
    return Parsed(finding=parsed.finding or not_a_query(tokens[0]), is_refusal=True)


def refusal_of(sql: str) -> Finding | None:
    """Returns what a part of a statement may not do, such as calling Java code."""
    try:
        return refused_call(tokenize(sql))
    except TokenError:
        return None


def _parse(tokens: list[Token], sql: str) -> Parsed:
    try:
        dangling = _dangling_token(tokens)
        if dangling is not None:
            return Parsed(finding=dangling)
        parser = _dialect().parser(error_level=ErrorLevel.IMMEDIATE)
        statements = [statement for statement in parser.parse(tokens, sql) if statement]
    except ParseError as error:
        is_unknown = any(token.token_type in _UNKNOWN_TOKENS for token in tokens)
        if is_unknown or _UNKNOWN_TO_SQLGLOT.search(sql):
            return Parsed()
        return Parsed(finding=_explain_error(error, sql))
    except (SqlglotError, RecursionError, LookupError, AttributeError, TypeError, ValueError):
        # sqlglot fails on some calls that it does not know in this form.
        return Parsed()
    if len(statements) > 1:
        semicolon = next(token for token in tokens if token.token_type is TokenType.SEMICOLON)
        return Parsed(
            finding=Finding(
                semicolon.line,
                column_of_token(semicolon),
                "a step is one SELECT, but another statement follows after `;`: make it a step of "
                "its own",
            )
        )
    tree = statements[0] if statements else None
    if tokens[0].token_type in (TokenType.TABLE, TokenType.VALUES):
        return Parsed()
    if not isinstance(tree, exp.Query):
        return Parsed(finding=not_a_query(tokens[0]))
    if isinstance(tree, exp.Select) and not tree.expressions:
        message = "SELECT has no columns: name some, or write SELECT *"
        return Parsed(finding=Finding(tokens[0].line, column_of_token(tokens[0]), message))
    return Parsed(tree=tree)


def parse_condition(sql: str) -> exp.Expr | Finding | None:
    """Parses a condition, as in WHERE. Returns None if it cannot be checked."""
    parsed = parse_query(f"SELECT * FROM rows WHERE\n{sql}")
    if parsed.finding is not None:
        finding = parsed.finding
        message = finding.message if sql.strip() else "the condition is empty"
        return Finding(max(1, finding.line - 1), finding.column, message)
    if not isinstance(parsed.tree, exp.Select):
        return None
    clauses = ("group", "having", "order", "limit", "qualify")
    where = parsed.tree.args.get("where")
    if where is None or any(parsed.tree.args.get(clause) for clause in clauses):
        return Finding(1, None, "only a condition is allowed here, as after WHERE")
    condition: exp.Expr = where.this
    return condition


def may_use_keyword_as_column(sql: str, columns: Collection[str]) -> bool:
    """Returns whether the statement may contain a column whose name sqlglot reads as a keyword.

    `columns` are the names, in lower case, of all columns that the statement could use. Findings
    about such a statement are not reliable.
    """
    keywords = _COLUMN_KEYWORDS.intersection(columns)
    if not keywords:
        return False
    try:
        counts = Counter(
            token.text.lower()
            for token in _dialect().tokenize(sql)
            if token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)
        )
    except TokenError:
        return False
    # Every SELECT has its FROM.
    return any(counts[word] > (counts["select"] if word == "from" else 0) for word in keywords)


def tokenize(sql: str) -> list[Token]:
    """Returns the tokens; `window` is a name unless it begins a clause `WINDOW w AS (…)`."""
    tokens = _dialect().tokenize(sql)
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.WINDOW and not _begins_window_clause(tokens, index):
            tokens[index] = Token(
                TokenType.VAR,
                token.text,
                token.line,
                token.col,
                token.start,
                token.end,
                token.comments,
            )
    return tokens


def position_of(node: exp.Expr) -> tuple[int, int | None]:
    """Returns the line and column of the first token of the node whose position is known."""
    positions = [
        (part.meta["line"], part.meta["col"] - (part.meta["end"] - part.meta["start"]))
        for part in node.walk()
        if "line" in part.meta and "start" in part.meta
    ]
    return min(positions) if positions else (1, None)


def sql_of(node: exp.Expr) -> str:
    """Returns the SQL of the node, nearly as it was written."""
    return node.sql("spark", normalize_functions=False, comments=False)


@cache
def _dialect() -> "Dialect":
    return sqlglot.Dialect.get_or_raise("spark")


def _begins_window_clause(tokens: Sequence[Token], index: int) -> bool:
    return (
        index + 2 < len(tokens)
        and tokens[index + 2].token_type is TokenType.ALIAS
        and tokens[index + 1].token_type not in (TokenType.ALIAS, TokenType.COMMA)
    )


def _dangling_token(tokens: Sequence[Token]) -> Finding | None:
    """Returns a finding for a comma or ON before a clause, which sqlglot accepts but not Spark."""
    previous_tokens = [None, *tokens[:-1]]
    for previous, token, following in zip(
        previous_tokens, tokens, [*tokens[1:], None], strict=True
    ):
        if token.token_type not in (TokenType.COMMA, TokenType.ON):
            continue
        if previous is not None and previous.token_type in (TokenType.DOT, TokenType.ALIAS):
            # A column `on`.
            continue
        if following is not None and following.token_type not in _CLAUSES:
            continue
        where = f"before {_CLAUSES[following.token_type]}" if following else "at the end"
        is_comma = token.token_type is TokenType.COMMA
        problem = "there is a comma too many" if is_comma else "ON has no condition"
        return Finding(token.line, column_of_token(token), f"{problem} {where}")
    return None


def _explain_error(error: ParseError, sql: str) -> Finding:
    details = error.errors[0] if error.errors else {}
    line = int(details.get("line") or 1)
    word = str(details.get("highlight") or "").strip()
    column = int(details.get("col") or 0) - max(len(word) - 1, 0)
    description = str(details.get("description") or "")
    if description.startswith("Expecting "):
        message = f"`{description.removeprefix('Expecting ')}` is missing near `{word}`"
    elif description.startswith("Expected END"):
        message = f"a CASE has no END (near `{word}`)"
    elif description.startswith("Required"):
        node = re.search(r"\.(\w+)'>", description)
        part = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", node[1]).upper() if node else "it"
        message = f"something is missing in {part} near `{word}`"
    elif not str(details.get("end_context") or "").strip() and not word:
        message = "the statement ends too early"
    else:
        message = f"`{word}` is not expected here"
        first = sql.split(None, 1)[0].upper()
        if first not in ("SELECT", "WITH", "FROM", "VALUES", "TABLE") and not sql.startswith("("):
            message += f"; a statement begins with SELECT or WITH, this one with {first}"
    return Finding(line, max(column, 1), f"the SQL cannot be read: {message}")


def _unfinished_text(sql: str) -> Finding:
    """Returns the position of a quote or comment that is never closed."""
    position, opened = 0, -1
    while position < len(sql):
        if sql.startswith("--", position):
            position = sql.find("\n", position)
            if position < 0:
                break
        elif sql.startswith("/*", position):
            opened, position = position, sql.find("*/", position)
            if position < 0:
                break
            opened = -1
        elif sql[position] in _QUOTES:
            opened, quote = position, sql[position]
            position += 1
            while position < len(sql) and sql[position] != quote:
                position += 2 if sql[position] == "\\" and quote != "`" else 1
            if position >= len(sql):
                break
            opened = -1
        position += 1
    if opened < 0:
        return Finding(1, None, "the SQL cannot be read: a character in it is not understood")
    before = sql[:opened]
    column = opened - before.rfind("\n")
    return Finding(
        before.count("\n") + 1, column, f"the SQL cannot be read: {sql[opened]} is never closed"
    )
