"""Kafka's wire protocol: declared messages, and codecs compiled from the declarations.

`messages` holds the requests and responses, `stored` what Kafka keeps in its own topics, both as
plain declared classes. `codec` turns them into bytes and back, `frames` cuts a byte stream into
messages and puts headers on them, `api` says which class belongs to which API key.
"""
