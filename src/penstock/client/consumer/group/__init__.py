"""Membership of a consumer in its group, for both protocols, and the group's offsets (C3, C4, C5).

`group.py` is what the consumer works with; it does the I/O. What to do is decided by machines
without any: `classic.py` (JoinGroup, SyncGroup, Heartbeat) and `consumer_protocol.py` (KIP-848).
"""
