"""Sparse memory-mapped indexes of a segment: by offset, by timestamp, by aborted transaction."""
