"""Rows as the text of an INSERT for MySQL, built by Arrow column by column."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.sinks.database.rows import is_bytes, is_text

_TEXT = pa.large_string()


def literals(column: pa.Array) -> pa.Array:
    """Returns each value as an escaped literal of MySQL."""
    kind = column.type
    if is_bytes(kind):
        texts = [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
        return pc.fill_null(pa.array(texts, _TEXT), "NULL")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))
    elif pa.types.is_float32(kind):
        # MySQL compares a FLOAT with a literal as doubles, so it needs all digits.
        column = column.cast(pa.float64())
    texts = column.cast(_TEXT)
    if is_text(kind):
        texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "''")
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(kind)):
        quote = pa.scalar("'", _TEXT)
        texts = pc.binary_join_element_wise(quote, texts, quote, pa.scalar("", _TEXT))
    return pc.fill_null(texts, "NULL")


class SqlRows:
    """The rows of a batch, each as `(1, 'a')`."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        columns = [literals(column) for column in batch.columns]
        inner = pc.binary_join_element_wise(*columns, pa.scalar(",", _TEXT))
        self._rows = inner
        # Plus two brackets and a comma.
        self._ends = np.cumsum(pc.binary_length(inner).to_numpy(zero_copy_only=False) + 3)

    @property
    def longest(self) -> int:
        return int(np.diff(self._ends, prepend=0).max(initial=0))

    def chunks(self, size: int) -> Iterator[str]:
        """Yields all rows, in texts of at most `size` bytes or of one row."""
        start = 0
        while start < len(self._ends):
            before = int(self._ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(self._ends, before + size, "right")))
            rows = self._rows.slice(start, end - start).to_pylist()
            yield "(" + "),(".join(rows) + ")"
            start = end
