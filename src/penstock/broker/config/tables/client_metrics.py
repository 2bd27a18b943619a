"""Settings of a subscription to clients' metrics."""

TABLE = """
interval.ms INT M-* 100..3600000 300000
    How often a client pushes its metrics.
match LIST M-* match
    Which clients push, as name=pattern pairs; all when empty.
metrics LIST M-* .
    Metrics to push, by the beginnings of their names; * for all, none when empty.
"""
