"""SQL of a step as a tree, or what is wrong with it in plain words.

sqlglot reads nearly all that Spark reads, with two exceptions that are made up for here: `window`
as a function in GROUP BY, and what Spark knows but sqlglot does not (`x >>> 1`, `X '1F'`, `v:a`),
where nothing is said about the statement.
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

from penstock.spark.check.relations import Finding

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect

_UNKNOWN_TO_SQLGLOT = re.compile(r">>>|\bX\s+['\"]", re.IGNORECASE)
_UNKNOWN_TOKENS = frozenset([TokenType.COLON, TokenType.PIPE_GT])
"""Fields of variants (`v:a.b`), and pipes, of which sqlglot knows a part."""
_WORDS = """
all alter and any as asof between case create cross cube describe distinct drop else except fetch
for from glob grant having if ilike inner insert intersect into join lateral like limit lock minus
not notnull offset on or outer overlaps qualify returning revoke rlike rollback rollup select
serdeproperties tablesample then uncache union using values when where with xor
"""
_NO_NAMES = frozenset(_WORDS.split())
"""Words that may be columns for Spark, without backticks, and that sqlglot takes for others."""
_LEFT_OPEN = {
    TokenType.FROM: "FROM",
    TokenType.WHERE: "WHERE",
    TokenType.GROUP_BY: "GROUP BY",
    TokenType.HAVING: "HAVING",
    TokenType.ORDER_BY: "ORDER BY",
    TokenType.R_PAREN: ")",
    TokenType.UNION: "UNION",
}
_QUOTES = {"'": "'", '"': '"', "`": "`"}


@dataclass(frozen=True)
class Parsed:
    """A statement; neither tree nor finding: it may be right, but cannot be looked into."""

    tree: exp.Query | None = None
    finding: Finding | None = None


def parse_query(sql: str) -> Parsed:
    """The one SELECT (or UNION, WITH …, VALUES) that a step may be."""
    if not sql.strip():
        return Parsed(finding=Finding(1, None, "the SQL is empty: write a SELECT"))
    try:
        tokens = tokenize(sql)
        if not tokens:
            return Parsed(finding=Finding(1, None, "there is only a comment: write a SELECT"))
        open_end = _left_open(tokens)
        if open_end is not None:
            return Parsed(finding=open_end)
        parser = _dialect().parser(error_level=ErrorLevel.IMMEDIATE)
        found = [each for each in parser.parse(tokens, sql) if each]
    except TokenError:
        return Parsed(finding=_unfinished_text(sql))
    except ParseError as error:
        unknown = any(each.token_type in _UNKNOWN_TOKENS for each in tokens)
        if unknown or _UNKNOWN_TO_SQLGLOT.search(sql):
            return Parsed()
        return Parsed(finding=_in_words(error, sql))
    except (SqlglotError, RecursionError, LookupError, AttributeError, TypeError, ValueError):
        # sqlglot trips over some calls that it does not know in this form.
        return Parsed()
    if len(found) > 1:
        semicolon = next(each for each in tokens if each.token_type is TokenType.SEMICOLON)
        return Parsed(
            finding=Finding(
                semicolon.line,
                _column(semicolon),
                "a step is one SELECT, and after `;` another statement follows: make it a step "
                "of its own",
            )
        )
    tree = found[0] if found else None
    if tokens[0].token_type is TokenType.TABLE:
        return Parsed()
    if not isinstance(tree, exp.Query):
        word = tokens[0].text.upper()
        return Parsed(
            finding=Finding(
                tokens[0].line,
                _column(tokens[0]),
                f"a step is a SELECT; {word} is not possible here: rows are stored by `sinks`",
            )
        )
    if isinstance(tree, exp.Select) and not tree.expressions:
        what = "SELECT has no columns: name some, or write SELECT *"
        return Parsed(finding=Finding(tokens[0].line, _column(tokens[0]), what))
    return Parsed(tree=tree)


def parse_condition(sql: str) -> exp.Expr | Finding | None:
    """A condition, as in WHERE; None if nothing can be said about it."""
    parsed = parse_query(f"SELECT * FROM rows WHERE\n{sql}")
    if parsed.finding is not None:
        found = parsed.finding
        message = found.message if sql.strip() else "the condition is empty"
        return Finding(max(1, found.line - 1), found.column, message)
    if not isinstance(parsed.tree, exp.Select):
        return None
    extra = [
        name
        for name in ("group", "having", "order", "limit", "qualify")
        if parsed.tree.args.get(name)
    ]
    where = parsed.tree.args.get("where")
    if extra or where is None:
        return Finding(1, None, "only a condition may be here, as after WHERE")
    condition: exp.Expr = where.this
    return condition


def may_be_misread(sql: str, columns: Collection[str]) -> bool:
    """Whether a column may be in the statement whose name sqlglot takes for something else.

    `columns` are the names, in small letters, of all columns that may be there.
    """
    odd = _NO_NAMES.intersection(columns)
    if not odd:
        return False
    try:
        words = Counter(
            each.text.lower()
            for each in _dialect().tokenize(sql)
            if each.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)
        )
    except TokenError:
        return False
    # Every SELECT has its FROM.
    return any(words[each] > (words["select"] if each == "from" else 0) for each in odd)


def tokenize(sql: str) -> list[Token]:
    """Tokens; `window` is a name unless a clause `WINDOW w AS (…)` begins with it."""
    tokens = _dialect().tokenize(sql)
    for at, each in enumerate(tokens):
        if each.token_type is TokenType.WINDOW and not _begins_window_clause(tokens, at):
            tokens[at] = Token(
                TokenType.VAR, each.text, each.line, each.col, each.start, each.end, each.comments
            )
    return tokens


def place(node: exp.Expr) -> tuple[int, int | None]:
    """Line and column of the first word of this part of the statement that has a place."""
    places = [
        (each.meta["line"], each.meta["col"] - (each.meta["end"] - each.meta["start"]))
        for each in node.walk()
        if "line" in each.meta and "start" in each.meta
    ]
    return min(places) if places else (1, None)


def sql_of(node: exp.Expr) -> str:
    """As it was written, more or less."""
    return node.sql("spark", normalize_functions=False, comments=False)


@cache
def _dialect() -> "Dialect":
    return sqlglot.Dialect.get_or_raise("spark")


def _begins_window_clause(tokens: Sequence[Token], at: int) -> bool:
    return (
        at + 2 < len(tokens)
        and tokens[at + 2].token_type is TokenType.ALIAS
        and tokens[at + 1].token_type not in (TokenType.ALIAS, TokenType.COMMA)
    )


def _left_open(tokens: Sequence[Token]) -> Finding | None:
    """A comma before a clause, which sqlglot lets pass and Spark does not."""
    before_it = [None, *tokens[:-1]]
    for before_this, this, after in zip(before_it, tokens, [*tokens[1:], None], strict=True):
        if this.token_type not in (TokenType.COMMA, TokenType.ON):
            continue
        if before_this is not None and before_this.token_type in (TokenType.DOT, TokenType.ALIAS):
            # A column `on`.
            continue
        if after is not None and after.token_type not in _LEFT_OPEN:
            continue
        before = f"before {_LEFT_OPEN[after.token_type]}" if after is not None else "at the end"
        what = "a comma too many" if this.token_type is TokenType.COMMA else "ON has no condition"
        return Finding(this.line, _column(this), f"{what} {before}")
    return None


def _in_words(error: ParseError, sql: str) -> Finding:
    about = error.errors[0] if error.errors else {}
    line = int(about.get("line") or 1)
    word = str(about.get("highlight") or "").strip()
    column = int(about.get("col") or 0) - max(len(word) - 1, 0)
    said = str(about.get("description") or "")
    if said.startswith("Expecting "):
        message = f"`{said.removeprefix('Expecting ')}` is missing near `{word}`"
    elif said.startswith("Expected END"):
        message = f"a CASE has no END (near `{word}`)"
    elif said.startswith("Required"):
        wanting = re.search(r"\.(\w+)'>", said)
        part = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", wanting[1]).upper() if wanting else "it"
        message = f"something is missing in {part} near `{word}`"
    elif not str(about.get("end_context") or "").strip() and not word:
        message = "the statement ends too early"
    else:
        message = f"`{word}` is not expected here"
        first = sql.split(None, 1)[0].upper()
        if first not in ("SELECT", "WITH", "FROM", "VALUES", "TABLE") and not sql.startswith("("):
            message += f"; a statement begins with SELECT or WITH, this one with {first}"
    return Finding(line, max(column, 1), f"the SQL cannot be read: {message}")


def _unfinished_text(sql: str) -> Finding:
    """Where a quote or a comment was opened that is never closed."""
    at, opened = 0, -1
    while at < len(sql):
        if sql.startswith("--", at):
            at = sql.find("\n", at)
            if at < 0:
                break
        elif sql.startswith("/*", at):
            opened, at = at, sql.find("*/", at)
            if at < 0:
                break
            opened = -1
        elif sql[at] in _QUOTES:
            opened, quote = at, sql[at]
            at += 1
            while at < len(sql) and sql[at] != quote:
                at += 2 if sql[at] == "\\" and quote != "`" else 1
            if at >= len(sql):
                break
            opened = -1
        at += 1
    if opened < 0:
        return Finding(1, None, "the SQL cannot be read: a character in it is not understood")
    before = sql[:opened]
    column = opened - before.rfind("\n")
    return Finding(
        before.count("\n") + 1, column, f"the SQL cannot be read: {sql[opened]} is never closed"
    )


def _column(token: Token) -> int:
    return max(token.col - len(token.text) + 1, 1)
