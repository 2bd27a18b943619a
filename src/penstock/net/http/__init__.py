"""A small HTTP/1.1 server for metrics and health, on the event loop of the broker."""
