"""Settings of a group; what a group does not set comes from the broker."""

TABLE = """
consumer.assignment.interval.ms INT M-* 0.. 1000
    Shortest time between two assignments of a consumer group.
consumer.heartbeat.interval.ms INT M-* 1.. 5000
    How often a member of a consumer group sends heartbeats.
consumer.session.timeout.ms INT M-* 1.. 45000
    A member of a consumer group that is silent for so long is removed.
share.assignment.interval.ms INT M-* 0.. 1000
    Shortest time between two assignments of a share group.
share.auto.offset.reset STRING M-* reset latest
    Where a share group begins: latest, earliest, or by_duration:P1D and the like.
share.delivery.count.limit INT M-* 2.. 5
    How often a record is handed out before it is given up.
share.heartbeat.interval.ms INT M-* 1.. 5000
    How often a member of a share group sends heartbeats.
share.isolation.level STRING M-* {read_committed,read_uncommitted} read_uncommitted
    Whether a share group sees records of open transactions.
share.partition.max.record.locks INT M-* 100.. 2000
    Most records of a partition that are handed out at once.
share.record.lock.duration.ms INT M-* 1000.. 30000
    How long a record that was handed out is kept from others.
share.renew.acknowledge.enable BOOLEAN M-* . true
    Whether a member may ask for more time with a record.
share.session.timeout.ms INT M-* 1.. 45000
    A member of a share group that is silent for so long is removed.
streams.assignment.interval.ms INT M-* 0.. 1000
    Shortest time between two assignments of a streams group.
streams.heartbeat.interval.ms INT M-* 1.. 5000
    How often a member of a streams group sends heartbeats.
streams.initial.rebalance.delay.ms INT M-* 0.. 3000
    How long a new streams group waits for more members.
streams.num.standby.replicas INT M-* 0.. 0
    Standby tasks of a streams group.
streams.session.timeout.ms INT M-* 1.. 45000
    A member of a streams group that is silent for so long is removed.
"""
