"""Classic groups: members join in generations, and their leader assigns the partitions.

`model` is the group as a value, `requests` decides about JoinGroup, SyncGroup, Heartbeat and
LeaveGroup, `update` takes a group from one generation to the next, `group_type` is the entry in
the registry of group types.
"""
