"""Runs a pipeline: from its description to queries of Spark's, exactly once."""
