"""Membership of a consumer in its group, for both protocols, and the group's offsets (C3, C4, C5).

The consumer uses `ConsumerCoordinator` (coordinator.py), which does the I/O. Machines without I/O
decide: `classic.py` (JoinGroup, SyncGroup, Heartbeat) and `consumer_protocol.py` (KIP-848).
"""
