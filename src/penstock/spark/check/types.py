"""The types of columns, as far as the analysis of a query needs them."""

from penstock.spark.decode.datatypes import DataType, Field, Scalar, StructOf
from penstock.spark.decode.ddl import parse_ddl
from penstock.spark.errors import OptionError

TIMESTAMP = Scalar("timestamp")
WINDOW = StructOf((Field("start", TIMESTAMP), Field("end", TIMESTAMP)))


def parse_type(text: str) -> DataType | None:
    """Returns the type of this name, or None for one that only Spark knows."""
    try:
        return parse_ddl(f"x {text}")[0].type
    except OptionError:
        return None


def is_time(data_type: DataType) -> bool:
    """Returns whether a column of this type can have a watermark."""
    return isinstance(data_type, Scalar) and data_type.name in ("timestamp", "timestamp_ntz")
