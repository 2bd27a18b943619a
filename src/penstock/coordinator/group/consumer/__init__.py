"""Consumer groups of KIP-848: the coordinator assigns partitions, members reconcile.

`model` is the group as a value, `heartbeat` decides about ConsumerGroupHeartbeat, `classic_members`
about members that use the classic protocol, `update` collects a decision, `replay` applies records,
`group_type` is the entry in the registry of group types.
"""
