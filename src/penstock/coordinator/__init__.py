"""Coordinators of groups and transactions, as pure state machines.

`group.shard` is the place to start: it describes how a host runs a shard.
"""
