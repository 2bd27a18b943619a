"""The step of the payments pipeline that is easier to write in Python than in SQL."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT_CENTS = 500_000


def check(views: "Mapping[str, DataFrame]") -> "DataFrame":
    """Returns each payment as JSON with its warnings; the column `topic` names its topic."""
    from pyspark.sql import functions as f

    doubts = f.array_compact(
        f.array(
            f.when(f.col("merchant").isNull(), "unknown merchant"),
            f.when(f.col("cents") <= 0, "amount is not positive"),
            f.when(f.col("cents") > LIMIT_CENTS, "amount above the limit"),
        )
    )
    fields = f.struct("id", "card", "merchant", "country", "cents", "at", "doubts")
    return (
        views["enriched"]
        .withColumn("doubts", doubts)
        .select(
            f.col("card").alias("key"),
            f.to_json(fields).alias("value"),
            f.when(f.size("doubts") == 0, "payments.approved")
            .otherwise("payments.suspicious")
            .alias("topic"),
        )
    )
