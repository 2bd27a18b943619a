"""Committed offsets of groups: stored, committed, fetched, deleted and expired."""
