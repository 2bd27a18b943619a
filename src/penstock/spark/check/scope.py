"""What names mean in one SELECT: the views that it reads, their columns, and fields of those."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.spark.check.relations import Column, Finding, Relation
from penstock.spark.check.sql_parse import place
from penstock.spark.decode.datatypes import ArrayOf, MapOf, StructOf
from penstock.spark.pipeline.nearest import suggestion

# Spark takes these for functions if there is no such column.
_WITHOUT_BRACKETS = frozenset(
    ["user", "current_time", "localtime", "localtimestamp", "grouping__id", "_metadata"]
)


@dataclass(frozen=True)
class Read:
    """A view, or a subquery, after FROM or JOIN, under the name that columns may begin with."""

    alias: str
    relation: Relation


@dataclass(frozen=True)
class Found:
    """A column that a name stands for, and which view has it (by place in the scope)."""

    column: Column
    read: int | None = None
    is_whole: bool = True
    """Not a field of it."""


@dataclass
class Scope:
    """Names that may be used in a SELECT."""

    reads: list[Read] = field(default_factory=list)
    outer: "Scope | None" = None
    merged: set[str] = field(default_factory=set)
    """Columns that USING has made one, in small letters."""
    made: dict[str, Column] = field(default_factory=dict)
    """`window` and `session_window`, which GROUP BY makes."""
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Names that the list of the SELECT gives, in small letters."""

    def find(self, node: exp.Expr, *, aliases: bool = False) -> Found | Finding | None:
        """The column; what is wrong; or None if it cannot be known (or is no column at all)."""
        path = path_of(node)
        if path is None:
            return None
        names = [each.name for each in path]
        here = self._here(names, path)
        if here is not None:
            return here
        first = names[0].lower()
        if first in self.made:
            return _followed(Found(self.made[first]), path[1:])
        if aliases and first in self.aliases:
            return None
        if first in _WITHOUT_BRACKETS or not self._is_known(names):
            return None
        if self.outer is not None:
            further = self.outer.find(node, aliases=aliases)
            if not isinstance(further, Finding):
                return further
        return self._missing(path)

    def all_columns(self) -> list[Column]:
        """What `*` stands for; columns of USING are there once."""
        found: list[Column] = []
        seen: set[str] = set()
        for each in self.reads:
            for column in each.relation.columns:
                name = column.name.lower()
                if name in self.merged and name in seen:
                    continue
                seen.add(name)
                found.append(column)
        return found

    @property
    def complete(self) -> bool:
        return all(each.relation.complete for each in self.reads)

    def _here(self, names: Sequence[str], path: Sequence[exp.Identifier]) -> Found | Finding | None:
        first = names[0].lower()
        if len(names) > 1:
            for at, each in enumerate(self.reads):
                if each.alias.lower() == first:
                    found = each.relation.find(names[1])
                    if found:
                        return _followed(Found(found[0], at), path[2:])
        matches = [
            (at, column)
            for at, each in enumerate(self.reads)
            for column in each.relation.find(names[0])
        ]
        if not matches:
            return None
        if len(matches) > 1 and first not in self.merged:
            where = [self.reads[at].alias for at, _ in matches]
            if len(set(where)) == 1:
                message = f"{where[0]} has several columns {names[0]}: give them different names"
            else:
                also = ", ".join(f"{each}.{names[0]}" for each in where if each)
                message = f"the column {names[0]} is ambiguous: write {also}"
            return Finding(*place(path[0]), message)
        at, column = matches[0]
        return _followed(Found(column, at), path[1:])

    def _is_known(self, names: Sequence[str]) -> bool:
        """Whether the views here are known so well that the name cannot be one of theirs."""
        if any(not each.isidentifier() for each in names[:2]) and any(
            not column.name for each in self.reads for column in each.relation.columns
        ):
            return False
        if len(names) > 1:
            named = [each for each in self.reads if each.alias.lower() == names[0].lower()]
            if named:
                return all(each.relation.complete for each in named)
        return self.complete

    def _missing(self, path: Sequence[exp.Identifier]) -> Finding:
        names = [each.name for each in path]
        for each in self.reads:
            if len(names) > 1 and each.alias.lower() == names[0].lower():
                known = each.relation.names
                message = f"{each.alias} has no column {names[1]}{suggestion(names[1], known)}"
                return Finding(*place(path[1]), message)
        known = [name for each in self.reads for name in each.relation.names]
        if len(names) > 1:
            known = [*(each.alias for each in self.reads), *known]
            message = f"{names[0]} is neither a view that is read here nor a column"
        else:
            message = f"there is no column {names[0]}"
        return Finding(*place(path[0]), message + suggestion(names[0], list(dict.fromkeys(known))))


def path_of(node: exp.Expr) -> list[exp.Identifier] | None:
    """The names of `a.b.c`; None if it begins with something else than a name."""
    if isinstance(node, exp.Column):
        return [each for each in node.parts if isinstance(each, exp.Identifier)]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = path_of(node.this)
        return None if before is None else [*before, node.expression]
    return None


def columns_in(node: exp.Expr, bound: frozenset[str] = frozenset()) -> Iterator[exp.Expr]:
    """Columns (with the fields after them) of an expression, not of queries within it."""
    if isinstance(node, exp.Query | exp.Subquery):
        return
    path = path_of(node)
    if path is not None and not node.is_star:
        if path and path[0].name.lower() not in bound:
            yield node
        return
    if isinstance(node, exp.Lambda):
        bound = bound | {each.name.lower() for each in node.expressions}
    for each in node.iter_expressions():
        yield from columns_in(each, bound)


def _followed(found: Found, fields: Sequence[exp.Identifier]) -> Found | Finding:
    """The field of a column; or what is wrong with the path."""
    column = found.column
    name = column.name
    kind = column.type
    many = False
    for each in fields:
        if kind is None:
            return Found(Column(fields[-1].name), found.read, is_whole=False)
        if isinstance(kind, ArrayOf):
            many, kind = True, kind.element
        if isinstance(kind, MapOf):
            kind = kind.value
            continue
        if not isinstance(kind, StructOf):
            what = "an array" if many else f"a {kind}"
            return Finding(
                *place(each), f"{name} is {what} and has no fields, so {each.name} is not there"
            )
        named = [one for one in kind.fields if one.name.lower() == each.name.lower()]
        if not named:
            known = [one.name for one in kind.fields]
            return Finding(
                *place(each), f"{name} has no field {each.name}{suggestion(each.name, known)}"
            )
        name, kind = each.name, named[0].type
    if not fields:
        return found
    return Found(
        Column(fields[-1].name, ArrayOf(kind) if many and kind is not None else kind),
        found.read,
        is_whole=False,
    )
