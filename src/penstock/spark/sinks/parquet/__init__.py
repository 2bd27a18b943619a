"""Directories of Parquet files as sinks of pipelines."""
