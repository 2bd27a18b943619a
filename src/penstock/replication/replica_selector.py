"""Which replica a consumer should read from, by its rack (KIP-392).

The leader chooses, and names a follower in its response if that is nearer to the client
(`replica.selector.class`).
"""

from collections.abc import Callable
from typing import Final

from penstock.replication.partition import Partition

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"


def preferred_read_replica(
    partition: Partition, fetch_offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """Returns the follower that a client in this rack should read from; None for the leader.

    That is the follower with the most records among those that are in the rack and in the ISR and
    have the offset. A leader in the same rack wins. `rack_of` returns the rack of a broker that the
    client can reach, else None.
    """
    if not rack or rack_of(partition.local_id) == rack:
        return None
    candidates = [
        follower
        for follower in partition.followers.values()
        if follower.broker_id in partition.isr
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and rack_of(follower.broker_id) == rack
    ]
    if not candidates:
        return None
    best = max(
        candidates,
        key=lambda follower: (
            follower.log_end_offset,
            follower.last_caught_up_ms,
            follower.broker_id,
        ),
    )
    return best.broker_id
