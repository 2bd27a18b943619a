"""Topics as sinks: of pipelines, and of `format("penstock")`."""
