"""Steps only query: the statements, calls and files that the SQL of a pipeline may not use.

The file belongs to the operator, and a step with `function` may do anything. But SQL that looks
like a query must not change a catalog, run programs or read files that nothing else mentions.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sqlglot import Token, TokenType

from penstock.spark.check.relations import Finding

RUN_ON_FILES: Final = "spark.sql.runSQLOnFiles"
"""Spark's setting that allows a path as a table; it is off unless the pipeline sets it."""

FILE_FORMATS: Final = frozenset(
    ["avro", "binaryfile", "csv", "delta", "hudi", "iceberg", "json", "libsvm", "orc", "parquet",
     "text", "xml"]
)  # fmt: skip
"""Data sources that Spark reads as the schema of a path: text.`/etc/hosts`."""

_QUERY_KEYWORDS: Final = frozenset(["FROM", "SELECT", "TABLE", "VALUES", "WITH"])
_JAVA_CALLS: Final = frozenset(["java_method", "reflect", "try_reflect"])


def is_query(tokens: Sequence[Token]) -> bool:
    """Returns whether the statement begins like a query; all others begin differently."""
    words = (token for token in tokens if token.token_type is not TokenType.L_PAREN)
    first = next(words, None)
    return (
        first is not None
        and first.token_type not in (TokenType.IDENTIFIER, TokenType.STRING)
        and first.text.upper() in _QUERY_KEYWORDS
    )


def not_a_query(token: Token) -> Finding:
    """Returns the finding for a statement that begins with this token."""
    return Finding(
        token.line,
        column_of_token(token),
        f"a step is a SELECT; {token.text.upper()} is not possible here: rows are stored by "
        "`sinks`",
    )


def refused_call(tokens: Sequence[Token]) -> Finding | None:
    """Returns a finding for the first call of Java code or of a program."""
    for token, following in pairwise(tokens):
        name = token.text.lower()
        if token.token_type is TokenType.STRING:
            continue
        if name in _JAVA_CALLS and following.token_type is TokenType.L_PAREN:
            call = f"{name}(…) calls Java code"
        elif name == "using" and following.token_type is TokenType.STRING:
            call = "USING with a text runs a program"
        else:
            continue
        message = f"{call}, which SQL may not do here: use a step with `function`"
        return Finding(token.line, column_of_token(token), message)
    return None


def column_of_token(token: Token) -> int:
    """Returns the column in which the token starts."""
    return max(token.col - (token.end - token.start), 1)
