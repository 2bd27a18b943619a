"""Groups, transactions and their internal topics."""

TABLE = """
group.min.session.timeout.ms INT M-* . 6000
    Shortest session timeout a classic member may ask for.
group.max.session.timeout.ms INT M-* . 1800000
    Longest session timeout a classic member may ask for.
group.initial.rebalance.delay.ms INT M-* . 3000
    How long a new group waits for more members.
group.max.size INT M-* 1.. 2147483647
    Most members of a classic group.
group.consumer.assignment.interval.ms INT Mc* 0.. 1000
    Shortest time between two assignments of a consumer group.
group.consumer.assignors LIST M-* +{uniform,range} uniform,range
    Assignors of consumer groups; the first is the default.
group.consumer.heartbeat.interval.ms INT M-* 1.. 5000
    How often a member of a consumer group sends heartbeats.
group.consumer.max.assignment.interval.ms INT M-* 0.. 15000
    Highest consumer.assignment.interval.ms of a group.
group.consumer.max.heartbeat.interval.ms INT M-* 1.. 15000
    Highest consumer.heartbeat.interval.ms of a group.
group.consumer.max.session.timeout.ms INT M-* 1.. 60000
    Highest consumer.session.timeout.ms of a group.
group.consumer.max.size INT M-* 1.. 2147483647
    Most members of a consumer group.
group.consumer.migration.policy STRING M-* ~{DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL} bidirectional
    Whether a group may change between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms INT M-* 0.. 0
    Lowest consumer.assignment.interval.ms of a group.
group.consumer.min.heartbeat.interval.ms INT M-* 1.. 5000
    Lowest consumer.heartbeat.interval.ms of a group.
group.consumer.min.session.timeout.ms INT M-* 1.. 45000
    Lowest consumer.session.timeout.ms of a group.
group.consumer.regex.refresh.interval.ms INT M-*i 10000.. 600000
    How often a subscription by pattern is matched anew.
group.consumer.session.timeout.ms INT M-* 1.. 45000
    A member of a consumer group that is silent for so long is removed.
group.coordinator.append.linger.ms INT M-- -1.. -1
    How long the coordinator gathers records before it writes them; -1: as it sees fit.
group.coordinator.background.threads INT H-- 1.. 2
    Threads for the coordinator's assignors.
group.coordinator.cached.buffer.max.bytes INT Mc- 524288.. 1048588
    Largest buffer that the coordinator keeps for the next write.
group.coordinator.rebalance.protocols LIST M-* +{consumer,classic,share,streams} \
classic,consumer,streams
    Protocols that groups may use.
group.coordinator.threads INT H-- 1.. 4
    Threads of the coordinator.
group.share.assignment.interval.ms INT Mc- 0.. 1000
    Shortest time between two assignments of a share group.
group.share.assignors LIST M-- + simple
    Assignors of share groups.
group.share.delivery.count.limit INT M-- 2..10 5
    How often a record is handed out before it is given up.
group.share.heartbeat.interval.ms INT M-- 1.. 5000
    How often a member of a share group sends heartbeats.
group.share.initialize.retry.interval.ms INT L--i 1.. 30000
    Pause before a partition's share state is initialised again.
group.share.max.assignment.interval.ms INT M-- 0.. 15000
    Highest share.assignment.interval.ms of a group.
group.share.max.delivery.count.limit INT M-- 5..25 10
    Highest share.delivery.count.limit of a group.
group.share.max.heartbeat.interval.ms INT M-- 1.. 15000
    Highest share.heartbeat.interval.ms of a group.
group.share.max.partition.max.record.locks INT M-- 2000..10000 4000
    Highest share.partition.max.record.locks of a group.
group.share.max.record.lock.duration.ms INT M-- 30000..3600000 60000
    Highest share.record.lock.duration.ms of a group.
group.share.max.session.timeout.ms INT M-- 1.. 60000
    Highest share.session.timeout.ms of a group.
group.share.max.share.sessions INT M-- 1.. 2000
    Most share sessions open at once.
group.share.max.size INT M-- 1..1000 200
    Most members of a share group.
group.share.min.assignment.interval.ms INT M-- 0.. 0
    Lowest share.assignment.interval.ms of a group.
group.share.min.delivery.count.limit INT M-- 2..5 2
    Lowest share.delivery.count.limit of a group.
group.share.min.heartbeat.interval.ms INT M-- 1.. 5000
    Lowest share.heartbeat.interval.ms of a group.
group.share.min.partition.max.record.locks INT M-- 100..2000 100
    Lowest share.partition.max.record.locks of a group.
group.share.min.record.lock.duration.ms INT M-- 1000..30000 15000
    Lowest share.record.lock.duration.ms of a group.
group.share.min.session.timeout.ms INT M-- 1.. 45000
    Lowest share.session.timeout.ms of a group.
group.share.partition.max.record.locks INT M-- 100..10000 2000
    Most records of a partition that are handed out at once.
group.share.persister.class.name STRING M--i . \
org.apache.kafka.server.share.persister.DefaultStatePersister
    The Java class that keeps the state of share groups.
group.share.record.lock.duration.ms INT M-- 1000..3600000 30000
    How long a record that was handed out is kept from others.
group.share.session.timeout.ms INT M-- 1.. 45000
    A member of a share group that is silent for so long is removed.
group.streams.assignment.interval.ms INT Mc- 0.. 1000
    Shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms INT M-- 1.. 5000
    How often a member of a streams group sends heartbeats.
group.streams.initial.rebalance.delay.ms INT M-- 0.. 3000
    How long a new streams group waits for more members.
group.streams.max.assignment.interval.ms INT M-- 0.. 15000
    Highest streams.assignment.interval.ms of a group.
group.streams.max.heartbeat.interval.ms INT M-- 1.. 15000
    Highest streams.heartbeat.interval.ms of a group.
group.streams.max.session.timeout.ms INT M-- 1.. 60000
    Highest streams.session.timeout.ms of a group.
group.streams.max.size INT M-- 1.. 2147483647
    Most members of a streams group.
group.streams.max.standby.replicas INT M-- 0.. 2
    Highest streams.num.standby.replicas of a group.
group.streams.min.assignment.interval.ms INT M-- 0.. 0
    Lowest streams.assignment.interval.ms of a group.
group.streams.min.heartbeat.interval.ms INT M-- 1.. 5000
    Lowest streams.heartbeat.interval.ms of a group.
group.streams.min.session.timeout.ms INT M-- 1.. 45000
    Lowest streams.session.timeout.ms of a group.
group.streams.num.standby.replicas INT M-- 0.. 0
    Standby tasks of a streams group.
group.streams.session.timeout.ms INT M-- 1.. 45000
    A member of a streams group that is silent for so long is removed.
offset.metadata.max.bytes INT H-* . 4096
    Most bytes of metadata a client may commit beside an offset.
offsets.commit.timeout.ms INT H-- 1.. 5000
    How long a commit of offsets waits for the replicas.
offsets.load.buffer.size INT H-- 1.. 5242880
    Bytes read at once when offsets are loaded.
offsets.retention.check.interval.ms LONG H-* 1.. 600000
    How often offsets are looked over for those that expire.
offsets.retention.minutes INT H-* 1.. 10080
    How long the offsets of an empty group are kept.
offsets.topic.compression.codec INT H-* 0..4 0
    Codec of __consumer_offsets, as its number.
offsets.topic.num.partitions INT H-* 1.. 50
    Partitions of __consumer_offsets.
offsets.topic.replication.factor SHORT H-* 1.. 3
    Replicas of __consumer_offsets; never more than the brokers that are up when it is made.
offsets.topic.segment.bytes INT H-* 1.. 104857600
    Size of a segment of __consumer_offsets.
transaction.abort.timed.out.transaction.cleanup.interval.ms INT L-* 1.. 10000
    How often transactions are looked over for those that took too long.
transaction.max.timeout.ms INT H-* 1.. 900000
    Longest timeout a transactional producer may ask for.
transaction.partition.verification.enable BOOLEAN Lc* . true
    Check with the coordinator that a partition is part of the transaction.
transaction.remove.expired.transaction.cleanup.interval.ms INT L-* 1.. 3600000
    How often transactional ids are looked over for those that expire.
transaction.state.log.load.buffer.size INT H-- 1.. 5242880
    Bytes read at once when transactions are loaded.
transaction.state.log.min.isr INT H-* 1.. 2
    Replicas in sync that a write to __transaction_state needs; capped as its replicas are.
transaction.state.log.num.partitions INT H-* 1.. 50
    Partitions of __transaction_state.
transaction.state.log.replication.factor SHORT H-* 1.. 3
    Replicas of __transaction_state; never more than the brokers that are up when it is made.
transaction.state.log.segment.bytes INT H-* 1.. 104857600
    Size of a segment of __transaction_state.
transaction.two.phase.commit.enable BOOLEAN L-- . false
    Let producers take part in a two-phase commit from outside.
transactional.id.expiration.ms INT H-* 1.. 604800000
    How long a transactional id that is not used is remembered.
add.partitions.to.txn.retry.backoff.ms INT H-* 1.. 20
    Pause before a partition is added to a transaction again.
add.partitions.to.txn.retry.backoff.max.ms INT H-* 0.. 100
    How long such a request is repeated before the client hears of it.
share.coordinator.append.linger.ms INT M-- -1.. -1
    How long the share coordinator gathers records; -1: as it sees fit.
share.coordinator.cached.buffer.max.bytes INT Mc- 524288.. 1048588
    Largest buffer that the share coordinator keeps for the next write.
share.coordinator.cold.partition.snapshot.interval.ms INT L--i 1.. 300000
    How often quiet partitions get a snapshot of their share state.
share.coordinator.load.buffer.size INT H-- 1.. 5242880
    Bytes read at once when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot INT M-- 0..500 500
    Updates of share state between two snapshots.
share.coordinator.state.topic.compression.codec INT H-- . 0
    Codec of __share_group_state, as its number.
share.coordinator.state.topic.min.isr SHORT H-- 1.. 2
    Replicas in sync that a write to __share_group_state needs.
share.coordinator.state.topic.num.partitions INT H-- 1.. 50
    Partitions of __share_group_state.
share.coordinator.state.topic.prune.interval.ms INT L--i 1.. 300000
    How often old records of __share_group_state are deleted.
share.coordinator.state.topic.replication.factor SHORT H-- 1.. 3
    Replicas of __share_group_state.
share.coordinator.state.topic.segment.bytes INT H-- 1.. 104857600
    Size of a segment of __share_group_state.
share.coordinator.threads INT M-- 1.. 1
    Threads of the share coordinator.
share.coordinator.write.timeout.ms INT H-- 1.. 5000
    How long a write of share state may take.
"""
