"""Penstock: a distributed commit log that speaks Kafka's protocol and writes Kafka's files."""

__version__ = "0.1.0"
