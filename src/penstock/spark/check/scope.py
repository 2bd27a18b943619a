"""Name resolution in one SELECT: the views that it reads, their columns, and fields of those."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.spark.check.relations import Column, Finding, Relation
from penstock.spark.check.sql_parse import position_of
from penstock.spark.decode.datatypes import ArrayOf, MapOf, StructOf
from penstock.spark.pipeline.nearest import suggestion

# Spark takes these for functions if there is no such column.
_FUNCTIONS_WITHOUT_BRACKETS = frozenset(
    ["user", "current_time", "localtime", "localtimestamp", "grouping__id", "_metadata"]
)


@dataclass(frozen=True)
class FromItem:
    """A view or subquery in FROM or JOIN, with the name by which columns can be qualified."""

    alias: str
    relation: Relation


@dataclass(frozen=True)
class ResolvedColumn:
    """The column that a name stands for."""

    column: Column
    item_index: int | None = None
    """Which item of the scope has it."""
    is_whole: bool = True
    """False for a field of the column."""


@dataclass
class Scope:
    """The names that a SELECT may use."""

    items: list[FromItem] = field(default_factory=list)
    outer: "Scope | None" = None
    merged_columns: set[str] = field(default_factory=set)
    """Columns that USING has merged, in lower case."""
    group_windows: dict[str, Column] = field(default_factory=dict)
    """`window` and `session_window`, which GROUP BY defines."""
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Names that the SELECT list defines, in lower case."""

    def find(self, node: exp.Expr, *, aliases: bool = False) -> ResolvedColumn | Finding | None:
        """Returns the column, or what is wrong, or None if that is unknown or it is no column."""
        path = path_of(node)
        if path is None:
            return None
        names = [part.name for part in path]
        match = self._find_here(names, path)
        if match is not None:
            return match
        first = names[0].lower()
        if first in self.group_windows:
            return _resolve_fields(ResolvedColumn(self.group_windows[first]), path[1:])
        if aliases and first in self.aliases:
            return None
        if first in _FUNCTIONS_WITHOUT_BRACKETS or not self._is_surely_missing(names):
            return None
        if self.outer is not None:
            outer_match = self.outer.find(node, aliases=aliases)
            if not isinstance(outer_match, Finding):
                return outer_match
        return self._missing_column(path)

    def all_columns(self) -> list[Column]:
        """Returns the columns that `*` stands for; those that USING merged appear once."""
        columns: list[Column] = []
        names: set[str] = set()
        for item in self.items:
            for column in item.relation.columns:
                name = column.name.lower()
                if name in self.merged_columns and name in names:
                    continue
                names.add(name)
                columns.append(column)
        return columns

    @property
    def is_complete(self) -> bool:
        return all(item.relation.is_complete for item in self.items)

    def _find_here(
        self, names: Sequence[str], path: Sequence[exp.Identifier]
    ) -> ResolvedColumn | Finding | None:
        first = names[0].lower()
        if len(names) > 1:
            for index, item in enumerate(self.items):
                if item.alias.lower() == first:
                    columns = item.relation.find(names[1])
                    if columns:
                        return _resolve_fields(ResolvedColumn(columns[0], index), path[2:])
        matches = [
            (index, column)
            for index, item in enumerate(self.items)
            for column in item.relation.find(names[0])
        ]
        if not matches:
            return None
        if len(matches) > 1 and first not in self.merged_columns:
            aliases = [self.items[index].alias for index, _ in matches]
            if len(set(aliases)) == 1:
                message = f"{aliases[0]} has several columns {names[0]}: give them different names"
            else:
                qualified = ", ".join(f"{alias}.{names[0]}" for alias in aliases if alias)
                message = f"the column {names[0]} is ambiguous: write {qualified}"
            return Finding(*position_of(path[0]), message)
        index, column = matches[0]
        return _resolve_fields(ResolvedColumn(column, index), path[1:])

    def _is_surely_missing(self, names: Sequence[str]) -> bool:
        """Returns whether all columns are known that the name could stand for."""
        if any(not name.isidentifier() for name in names[:2]) and any(
            not column.name for item in self.items for column in item.relation.columns
        ):
            return False
        if len(names) > 1:
            items = [item for item in self.items if item.alias.lower() == names[0].lower()]
            if items:
                return all(item.relation.is_complete for item in items)
        return self.is_complete

    def _missing_column(self, path: Sequence[exp.Identifier]) -> Finding:
        names = [part.name for part in path]
        for item in self.items:
            if len(names) > 1 and item.alias.lower() == names[0].lower():
                advice = suggestion(names[1], item.relation.names)
                message = f"{item.alias} has no column {names[1]}{advice}"
                return Finding(*position_of(path[1]), message)
        candidates = [name for item in self.items for name in item.relation.names]
        if len(names) > 1:
            candidates = [*(item.alias for item in self.items), *candidates]
            message = f"{names[0]} is neither a view in FROM nor a column"
        else:
            message = f"there is no column {names[0]}"
        advice = suggestion(names[0], dict.fromkeys(candidates))
        return Finding(*position_of(path[0]), message + advice)


def path_of(node: exp.Expr) -> list[exp.Identifier] | None:
    """Returns the names of `a.b.c`, or None if the node does not start with a name."""
    if isinstance(node, exp.Column):
        return [part for part in node.parts if isinstance(part, exp.Identifier)]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = path_of(node.this)
        return None if before is None else [*before, node.expression]
    return None


def columns_in(node: exp.Expr, bound: frozenset[str] = frozenset()) -> Iterator[exp.Expr]:
    """Yields the columns of an expression, with their fields, but not those of subqueries.

    `bound` are the names of lambda parameters, which are not columns.
    """
    if isinstance(node, exp.Query | exp.Subquery):
        return
    path = path_of(node)
    if path is not None and not node.is_star:
        if path and path[0].name.lower() not in bound:
            yield node
        return
    if isinstance(node, exp.Lambda):
        bound = bound | {parameter.name.lower() for parameter in node.expressions}
    for part in node.iter_expressions():
        yield from columns_in(part, bound)


def _resolve_fields(
    resolved: ResolvedColumn, fields: Sequence[exp.Identifier]
) -> ResolvedColumn | Finding:
    """Returns the field of a column that the path leads to, or what is wrong with the path."""
    column = resolved.column
    name = column.name
    data_type = column.type
    in_array = False
    for identifier in fields:
        if data_type is None:
            return ResolvedColumn(Column(fields[-1].name), resolved.item_index, is_whole=False)
        if isinstance(data_type, ArrayOf):
            in_array, data_type = True, data_type.element
        if isinstance(data_type, MapOf):
            data_type = data_type.value
            continue
        if not isinstance(data_type, StructOf):
            what = "an array" if in_array else f"a {data_type}"
            return Finding(
                *position_of(identifier),
                f"{name} is {what}, which has no fields, so there is no {identifier.name}",
            )
        matches = [f for f in data_type.fields if f.name.lower() == identifier.name.lower()]
        if not matches:
            advice = suggestion(identifier.name, [f.name for f in data_type.fields])
            return Finding(
                *position_of(identifier), f"{name} has no field {identifier.name}{advice}"
            )
        name, data_type = identifier.name, matches[0].type
    if not fields:
        return resolved
    return ResolvedColumn(
        Column(
            fields[-1].name,
            ArrayOf(data_type) if in_array and data_type is not None else data_type,
        ),
        resolved.item_index,
        is_whole=False,
    )
