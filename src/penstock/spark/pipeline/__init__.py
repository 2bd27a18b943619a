"""What a pipeline is, what is wrong with one, and how it runs."""
