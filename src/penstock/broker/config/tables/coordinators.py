"""Settings of groups, transactions and their internal topics."""

TABLE = """
group.min.session.timeout.ms INT M-* . 6000
    The minimum session timeout of members of classic groups.
group.max.session.timeout.ms INT M-* . 1800000
    The maximum session timeout of members of classic groups.
group.initial.rebalance.delay.ms INT M-* . 3000
    The time for which a new group waits for more members before its first rebalance.
group.max.size INT M-* 1.. 2147483647
    The maximum number of members of a classic group.
group.consumer.assignment.interval.ms INT Mc* 0.. 1000
    The minimum time between two assignments of a consumer group.
group.consumer.assignors LIST M-* +{uniform,range} uniform,range
    The assignors of consumer groups; the first one is the default.
group.consumer.heartbeat.interval.ms INT M-* 1.. 5000
    The heartbeat interval of members of consumer groups.
group.consumer.max.assignment.interval.ms INT M-* 0.. 15000
    The highest consumer.assignment.interval.ms of a group.
group.consumer.max.heartbeat.interval.ms INT M-* 1.. 15000
    The highest consumer.heartbeat.interval.ms of a group.
group.consumer.max.session.timeout.ms INT M-* 1.. 60000
    The highest consumer.session.timeout.ms of a group.
group.consumer.max.size INT M-* 1.. 2147483647
    The maximum number of members of a consumer group.
group.consumer.migration.policy STRING M-* ~{DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL} bidirectional
    Whether groups may migrate between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms INT M-* 0.. 0
    The lowest consumer.assignment.interval.ms of a group.
group.consumer.min.heartbeat.interval.ms INT M-* 1.. 5000
    The lowest consumer.heartbeat.interval.ms of a group.
group.consumer.min.session.timeout.ms INT M-* 1.. 45000
    The lowest consumer.session.timeout.ms of a group.
group.consumer.regex.refresh.interval.ms INT M-*i 10000.. 600000
    The interval at which regular expressions of subscriptions are evaluated again.
group.consumer.session.timeout.ms INT M-* 1.. 45000
    The time without a heartbeat after which a member of a consumer group is removed.
group.coordinator.append.linger.ms INT M-- -1.. -1
    The time for which the coordinator collects records before it writes them; -1 for adaptive.
group.coordinator.background.threads INT H-- 1.. 2
    The number of threads for the assignors of the coordinator.
group.coordinator.cached.buffer.max.bytes INT Mc- 524288.. 1048588
    The maximum size of a buffer that the coordinator keeps for the next write.
group.coordinator.rebalance.protocols LIST M-* +{consumer,classic,share,streams} \
classic,consumer,streams
    The group protocols that are enabled.
group.coordinator.threads INT H-- 1.. 4
    The number of threads of the coordinator.
group.share.assignment.interval.ms INT Mc- 0.. 1000
    The minimum time between two assignments of a share group.
group.share.assignors LIST M-- + simple
    The assignors of share groups.
group.share.delivery.count.limit INT M-- 2..10 5
    The maximum number of deliveries of a record.
group.share.heartbeat.interval.ms INT M-- 1.. 5000
    The heartbeat interval of members of share groups.
group.share.initialize.retry.interval.ms INT L--i 1.. 30000
    The time before the initialization of a share partition is retried.
group.share.max.assignment.interval.ms INT M-- 0.. 15000
    The highest share.assignment.interval.ms of a group.
group.share.max.delivery.count.limit INT M-- 5..25 10
    The highest share.delivery.count.limit of a group.
group.share.max.heartbeat.interval.ms INT M-- 1.. 15000
    The highest share.heartbeat.interval.ms of a group.
group.share.max.partition.max.record.locks INT M-- 2000..10000 4000
    The highest share.partition.max.record.locks of a group.
group.share.max.record.lock.duration.ms INT M-- 30000..3600000 60000
    The highest share.record.lock.duration.ms of a group.
group.share.max.session.timeout.ms INT M-- 1.. 60000
    The highest share.session.timeout.ms of a group.
group.share.max.share.sessions INT M-- 1.. 2000
    The maximum number of share sessions.
group.share.max.size INT M-- 1..1000 200
    The maximum number of members of a share group.
group.share.min.assignment.interval.ms INT M-- 0.. 0
    The lowest share.assignment.interval.ms of a group.
group.share.min.delivery.count.limit INT M-- 2..5 2
    The lowest share.delivery.count.limit of a group.
group.share.min.heartbeat.interval.ms INT M-- 1.. 5000
    The lowest share.heartbeat.interval.ms of a group.
group.share.min.partition.max.record.locks INT M-- 100..2000 100
    The lowest share.partition.max.record.locks of a group.
group.share.min.record.lock.duration.ms INT M-- 1000..30000 15000
    The lowest share.record.lock.duration.ms of a group.
group.share.min.session.timeout.ms INT M-- 1.. 45000
    The lowest share.session.timeout.ms of a group.
group.share.partition.max.record.locks INT M-- 100..10000 2000
    The maximum number of records of a partition that are acquired at a time.
group.share.persister.class.name STRING M--i . \
org.apache.kafka.server.share.persister.DefaultStatePersister
    The Java class that stores the state of share groups.
group.share.record.lock.duration.ms INT M-- 1000..3600000 30000
    The time for which a delivered record is locked for its consumer.
group.share.session.timeout.ms INT M-- 1.. 45000
    The time without a heartbeat after which a member of a share group is removed.
group.streams.assignment.interval.ms INT Mc- 0.. 1000
    The minimum time between two assignments of a streams group.
group.streams.heartbeat.interval.ms INT M-- 1.. 5000
    The heartbeat interval of members of streams groups.
group.streams.initial.rebalance.delay.ms INT M-- 0.. 3000
    The time for which a new streams group waits for more members.
group.streams.max.assignment.interval.ms INT M-- 0.. 15000
    The highest streams.assignment.interval.ms of a group.
group.streams.max.heartbeat.interval.ms INT M-- 1.. 15000
    The highest streams.heartbeat.interval.ms of a group.
group.streams.max.session.timeout.ms INT M-- 1.. 60000
    The highest streams.session.timeout.ms of a group.
group.streams.max.size INT M-- 1.. 2147483647
    The maximum number of members of a streams group.
group.streams.max.standby.replicas INT M-- 0.. 2
    The highest streams.num.standby.replicas of a group.
group.streams.min.assignment.interval.ms INT M-- 0.. 0
    The lowest streams.assignment.interval.ms of a group.
group.streams.min.heartbeat.interval.ms INT M-- 1.. 5000
    The lowest streams.heartbeat.interval.ms of a group.
group.streams.min.session.timeout.ms INT M-- 1.. 45000
    The lowest streams.session.timeout.ms of a group.
group.streams.num.standby.replicas INT M-- 0.. 0
    The number of standby replicas of each task of a streams group.
group.streams.session.timeout.ms INT M-- 1.. 45000
    The time without a heartbeat after which a member of a streams group is removed.
offset.metadata.max.bytes INT H-* . 4096
    The maximum size of the metadata of a committed offset.
offsets.commit.timeout.ms INT H-* 1.. 5000
    The timeout of an offset commit.
offsets.load.buffer.size INT H-- 1.. 5242880
    The size of reads when offsets are loaded.
offsets.retention.check.interval.ms LONG H-* 1.. 600000
    The interval at which expired offsets are removed.
offsets.retention.minutes INT H-* 1.. 10080
    The time in minutes for which the offsets of an empty group are retained.
offsets.topic.compression.codec INT H-* 0..4 0
    The number of the compression type of __consumer_offsets.
offsets.topic.num.partitions INT H-* 1.. 50
    The number of partitions of __consumer_offsets.
offsets.topic.replication.factor SHORT H-* 1.. 3
    The replication factor of __consumer_offsets; never more than the live brokers at creation.
offsets.topic.segment.bytes INT H-* 1.. 104857600
    The size of a segment of __consumer_offsets.
transaction.abort.timed.out.transaction.cleanup.interval.ms INT L-* 1.. 10000
    The interval at which timed-out transactions are aborted.
transaction.max.timeout.ms INT H-* 1.. 900000
    The maximum transaction timeout of a producer.
transaction.partition.verification.enable BOOLEAN Lc* . true
    Whether the broker verifies with the coordinator that a partition is in the transaction.
transaction.remove.expired.transaction.cleanup.interval.ms INT L-* 1.. 3600000
    The interval at which expired transactional ids are removed.
transaction.state.log.load.buffer.size INT H-- 1.. 5242880
    The size of reads when transactions are loaded.
transaction.state.log.min.isr INT H-* 1.. 2
    The min.insync.replicas of __transaction_state; capped like its replication factor.
transaction.state.log.num.partitions INT H-* 1.. 50
    The number of partitions of __transaction_state.
transaction.state.log.replication.factor SHORT H-* 1.. 3
    The replication factor of __transaction_state; never more than the live brokers at creation.
transaction.state.log.segment.bytes INT H-* 1.. 104857600
    The size of a segment of __transaction_state.
transaction.two.phase.commit.enable BOOLEAN L-- . false
    Whether producers may take part in an external two-phase commit.
transactional.id.expiration.ms INT H-* 1.. 604800000
    The time after which an unused transactional id expires.
add.partitions.to.txn.retry.backoff.ms INT H-* 1.. 20
    The time before the addition of a partition to a transaction is retried.
add.partitions.to.txn.retry.backoff.max.ms INT H-* 0.. 100
    The longest time for which it is retried before the client gets an error.
share.coordinator.append.linger.ms INT M-- -1.. -1
    The time for which the share coordinator collects records; -1 for adaptive.
share.coordinator.cached.buffer.max.bytes INT Mc- 524288.. 1048588
    The maximum size of a buffer that the share coordinator keeps for the next write.
share.coordinator.cold.partition.snapshot.interval.ms INT L--i 1.. 300000
    The interval at which the share state of inactive partitions is written as a snapshot.
share.coordinator.load.buffer.size INT H-- 1.. 5242880
    The size of reads when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot INT M-- 0..500 500
    The number of updates of share state between two snapshots.
share.coordinator.state.topic.compression.codec INT H-- . 0
    The number of the compression type of __share_group_state.
share.coordinator.state.topic.min.isr SHORT H-- 1.. 2
    The min.insync.replicas of __share_group_state.
share.coordinator.state.topic.num.partitions INT H-- 1.. 50
    The number of partitions of __share_group_state.
share.coordinator.state.topic.prune.interval.ms INT L--i 1.. 300000
    The interval at which old records of __share_group_state are deleted.
share.coordinator.state.topic.replication.factor SHORT H-- 1.. 3
    The replication factor of __share_group_state.
share.coordinator.state.topic.segment.bytes INT H-- 1.. 104857600
    The size of a segment of __share_group_state.
share.coordinator.threads INT M-- 1.. 1
    The number of threads of the share coordinator.
share.coordinator.write.timeout.ms INT H-- 1.. 5000
    The timeout of a write of share state.
"""
