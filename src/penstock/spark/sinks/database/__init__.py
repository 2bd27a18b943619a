"""Results in a relational database, exactly once (D3): see docs/pipeline-databases.md."""

from penstock.spark.sinks.database.sink import DatabaseSink

__all__ = ["DatabaseSink"]
