"""`format("penstock")`: topics as a source of Spark."""
