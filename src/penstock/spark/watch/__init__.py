"""Listeners of a run: lag in the consumer group, the terminal, Prometheus."""
