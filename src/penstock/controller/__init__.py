"""Cluster metadata and the decisions about it: pure functions and state machines, no I/O."""
