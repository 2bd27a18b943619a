"""Topics in Spark: the `penstock` data source and sink, and pipelines that are exactly-once."""
