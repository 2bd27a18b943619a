"""Consuming: what to read, from where, and the records themselves."""
