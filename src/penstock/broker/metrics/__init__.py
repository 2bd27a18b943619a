"""Metrics and health of a broker for Prometheus: counters are read when they are scraped."""
