"""A pipeline built in Python, from topic to table, with a real broker and Spark."""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client.admin import NewTopic
from penstock.spark import Pipeline
from penstock.spark.clients import new_admin, new_producer
from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_pipeline_of_sql_and_a_function_runs(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """D1 to D3: Spark runs the views that `validate` accepts."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    with new_admin(client) as admin:
        admin.create_topics([NewTopic("api-clicks", 2)])
    with new_producer(client) as producer:
        for minute, user in enumerate(["ann", "bob", "ann", "ann"]):
            value = {"user": user, "at": f"2026-01-01T00:0{minute}:00Z"}
            producer.send("api-clicks", key=user.encode(), value=json.dumps(value).encode())
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE customers (user TEXT, city TEXT)")
        database.execute("INSERT INTO customers VALUES ('ann', 'Ulm')")
    database.close()

    p = Pipeline(
        "api", bootstrap_servers=broker.bootstrap_servers, checkpoint=str(tmp_path / "checkpoints")
    )
    p.source(
        "clicks",
        topic="api-clicks",
        schema="user string, at timestamp",
        watermark=("at", "1 minute"),
    )
    p.table("customers", database=f"sqlite:///{path}", table="customers")

    @p.step("located")
    def located(views: "Mapping[str, DataFrame]") -> "DataFrame":
        return views["clicks"].join(views["customers"], "user", "left")

    p.sql("named", "SELECT user, at, coalesce(city, '-') AS town FROM located")
    p.to_database("named", f"sqlite:///{path}", table="named")
    assert p.validate(online=True) == []

    result = p.run(once=True, spark=spark)

    assert result.rows == 4
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT town, count(*) FROM named GROUP BY town ORDER BY town"
        ).fetchall()
    database.close()
    assert rows == [("-", 1), ("Ulm", 3)]
