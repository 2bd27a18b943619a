"""Types of columns, as far as following a query needs them."""

from penstock.spark.decode.datatypes import DataType, Field, Scalar, StructOf
from penstock.spark.decode.ddl import parse_ddl
from penstock.spark.errors import OptionError

TIMESTAMP = Scalar("timestamp")
WINDOW = StructOf((Field("start", TIMESTAMP), Field("end", TIMESTAMP)))


def parse_type(text: str) -> DataType | None:
    """None for a type that is not known here; Spark has more of them."""
    try:
        return parse_ddl(f"x {text}")[0].type
    except OptionError:
        return None


def is_time(kind: DataType) -> bool:
    """Whether a watermark may be on it."""
    return isinstance(kind, Scalar) and kind.name in ("timestamp", "timestamp_ntz")
