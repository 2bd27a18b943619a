"""Requests and responses: one file per API, with Kafka's names."""
