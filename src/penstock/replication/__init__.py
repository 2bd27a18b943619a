"""Replication: the local replica's view of a partition, and requests that wait for records."""
