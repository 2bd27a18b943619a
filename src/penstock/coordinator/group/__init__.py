"""Groups and their offsets: the state of one partition of `__consumer_offsets`.

`shard` is the machine and says how a host drives it; `events` are the values that go in and out.
"""
