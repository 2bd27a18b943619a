"""Settings of a client metrics subscription."""

TABLE = """
interval.ms INT M-* 100..3600000 300000
    The interval at which a client pushes its metrics.
match LIST M-* match
    The clients that push metrics, as name=pattern pairs; if empty, all clients.
metrics LIST M-* .
    The prefixes of the metrics to push; * for all metrics, empty for none.
"""
