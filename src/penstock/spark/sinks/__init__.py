"""Sinks: each stores results, dead letters and offsets in one transaction."""
