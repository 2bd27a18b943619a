"""What is wrong with a pipeline, found before Spark starts; and what would run."""
