"""Partitions hosted by this broker: appends, fetches, flushes, moves and periodic work."""
