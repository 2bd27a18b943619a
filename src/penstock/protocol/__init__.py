"""Kafka's wire protocol: declared messages, and codecs compiled from the declarations.

`messages` has the requests and responses, `stored` the records of Kafka's internal topics, both as
declared classes. `codec` encodes and decodes them, `frames` splits a byte stream into messages and
adds headers, `api` maps API keys to classes.
"""
