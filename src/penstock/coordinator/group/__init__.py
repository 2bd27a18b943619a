"""Groups and their offsets: the state of one partition of `__consumer_offsets`.

`shard` is the state machine and describes how a host runs it; `events` are the values that go in
and out. Each type of group has a package (`classic`, `consumer`) and an entry in `group_types`.
"""
