"""Tables of databases as sinks of pipelines, exactly once: see docs/pipeline-databases.md."""
