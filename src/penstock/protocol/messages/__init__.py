"""Requests and responses, one file per API, each named as Kafka names it."""
