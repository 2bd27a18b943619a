"""Settings of a group; the broker's settings are their defaults."""

TABLE = """
consumer.assignment.interval.ms INT M-* 0.. 1000
    The minimum time between two assignments of a consumer group.
consumer.heartbeat.interval.ms INT M-* 1.. 5000
    The heartbeat interval of members of consumer groups.
consumer.session.timeout.ms INT M-* 1.. 45000
    The time without a heartbeat after which a member of a consumer group is removed.
share.assignment.interval.ms INT M-* 0.. 1000
    The minimum time between two assignments of a share group.
share.auto.offset.reset STRING M-* reset latest
    The start offset of a share group: latest, earliest, or a duration such as by_duration:P1D.
share.delivery.count.limit INT M-* 2.. 5
    The maximum number of deliveries of a record.
share.heartbeat.interval.ms INT M-* 1.. 5000
    The heartbeat interval of members of share groups.
share.isolation.level STRING M-* {read_committed,read_uncommitted} read_uncommitted
    Whether a share group reads records of open and aborted transactions.
share.partition.max.record.locks INT M-* 100.. 2000
    The maximum number of records of a partition that are acquired at a time.
share.record.lock.duration.ms INT M-* 1000.. 30000
    The time for which a delivered record is locked for its consumer.
share.renew.acknowledge.enable BOOLEAN M-* . true
    Whether a member may extend the lock of a record.
share.session.timeout.ms INT M-* 1.. 45000
    The time without a heartbeat after which a member of a share group is removed.
streams.assignment.interval.ms INT M-* 0.. 1000
    The minimum time between two assignments of a streams group.
streams.heartbeat.interval.ms INT M-* 1.. 5000
    The heartbeat interval of members of streams groups.
streams.initial.rebalance.delay.ms INT M-* 0.. 3000
    The time for which a new streams group waits for more members.
streams.num.standby.replicas INT M-* 0.. 0
    The number of standby replicas of each task of a streams group.
streams.session.timeout.ms INT M-* 1.. 45000
    The time without a heartbeat after which a member of a streams group is removed.
"""
