"""Who the broker is, replication, elections, and the controller."""

TABLE = """
broker.id INT H-* -1.. 0
    The broker's number in the cluster; the same as node.id.
node.id INT H-* 0.. 0
    The broker's number in the cluster; the same as broker.id.
broker.rack STRING M-* . null
    Where the broker stands; replicas of a partition are spread over racks.
process.roles LIST H-- +{broker,controller} null
    Whether a process is broker or controller; here every broker can be the controller.
server.max.startup.time.ms LONG M--i 0.. 9223372036854775807
    How long the start may take.
broker.heartbeat.interval.ms INT M-- . 2000
    How often a broker reports to the KRaft controller.
broker.session.timeout.ms INT M-- . 9000
    How long a broker may be silent to the KRaft controller.
initial.broker.registration.timeout.ms INT M-- . 60000
    How long the first registration with the KRaft controller may take.
auto.leader.rebalance.enable BOOLEAN H-- . true
    Give partitions back to their preferred leaders from time to time.
leader.imbalance.check.interval.seconds LONG H-- 1.. 300
    How often it is looked whether leaders have strayed.
unclean.leader.election.enable BOOLEAN Hc* . false
    Let a replica that was not in sync lead when no other is left; records may be lost.
unclean.leader.election.interval.ms LONG M--i 1.. 300000
    How often partitions without a leader are looked over for such an election.
controlled.shutdown.enable BOOLEAN M-- . true
    Hand leaderships over before the broker stops.
controller.socket.timeout.ms INT M-- . 30000
    How long the controller waits for a broker's answer.
replica.lag.time.max.ms LONG H-- . 30000
    A follower that has not caught up for so long leaves the ISR.
replica.fetch.max.bytes INT M-- 0.. 1048576
    Bytes a follower asks for per partition.
replica.fetch.response.max.bytes INT M-- 0.. 10485760
    Bytes a follower asks for in one request.
replica.fetch.min.bytes INT H-- . 1
    Bytes a leader waits for before it answers a follower.
replica.fetch.wait.max.ms INT H-- . 500
    How long a leader waits for them.
replica.fetch.backoff.ms INT M-- 0.. 1000
    How long a follower rests after an error.
replica.high.watermark.checkpoint.interval.ms LONG H-- . 5000
    How often the high watermarks are written down.
replica.selector.class STRING M-- . null
    A Java class that picks the replica a consumer reads from.
replica.socket.receive.buffer.bytes INT H-- . 65536
    Receive buffer of a follower's socket.
replica.socket.timeout.ms INT H-- . 30000
    How long a follower waits for an answer.
num.replica.fetchers INT Hc- 1.. 1
    Connections a follower opens to each leader.
num.replica.alter.log.dirs.threads INT H-- . null
    Threads that move partitions between folders.
follower.fetch.last.tiered.offset.enable BOOLEAN Mc- . false
    Let a new follower begin where remote storage ends.
controller.listener.names LIST H-- + null
    Listeners of the KRaft controller; they are dropped from listeners.
controller.performance.always.log.threshold.ms LONG M--i 0.. 2000
    Steps of the KRaft controller that take longer are logged.
controller.performance.sample.period.ms LONG M--i 100.. 60000
    How often the KRaft controller logs how long its steps take.
controller.quorum.append.linger.ms INT M-- 0.. 25
    How long the KRaft quorum gathers records before it writes them.
controller.quorum.auto.join.enable BOOLEAN L-- . false
    Let a controller join the KRaft quorum by itself.
controller.quorum.bootstrap.servers LIST H-- .
    Where the KRaft quorum is found.
controller.quorum.election.backoff.max.ms INT H-- 0.. 1000
    Longest pause between elections in the KRaft quorum.
controller.quorum.election.timeout.ms INT H-- 0.. 1000
    How long an election in the KRaft quorum may take.
controller.quorum.fetch.max.bytes INT L-- 1.. 1048576
    Bytes of one fetch in the KRaft quorum.
controller.quorum.fetch.snapshot.max.bytes INT L-- 1.. 1048576
    Bytes of one fetch of a snapshot in the KRaft quorum.
controller.quorum.fetch.timeout.ms INT H-- 0.. 2000
    How long a voter of the KRaft quorum may hear nothing of its leader.
controller.quorum.request.timeout.ms INT M-- 0.. 2000
    How long a request in the KRaft quorum may take.
controller.quorum.retry.backoff.ms INT L-- 0.. 20
    Pause before a request in the KRaft quorum is repeated.
controller.quorum.voters LIST H-- .
    The members of the KRaft quorum.
metadata.log.dir STRING H-* . null
    The folder of the metadata of the cluster; the first of log.dirs when not set.
metadata.log.max.record.bytes.between.snapshots LONG H-- 1.. 20971520
    Bytes of the KRaft log between two snapshots.
metadata.log.max.snapshot.interval.ms LONG H-- 0.. 3600000
    Time between two snapshots of the KRaft log.
metadata.log.segment.bytes INT H-- 8388608.. 1073741824
    Size of a segment of the KRaft log.
metadata.log.segment.ms LONG H-- . 604800000
    Age of a segment of the KRaft log.
metadata.max.idle.interval.ms INT L-- 0.. 500
    How often the KRaft leader writes when there is nothing to write.
metadata.max.retention.bytes LONG H-- . 104857600
    Bytes of the KRaft log and its snapshots that are kept.
metadata.max.retention.ms LONG H-- . 604800000
    How long the KRaft log and its snapshots are kept.
internal.metadata.delete.delay.millis LONG L--i . 60000
    How long deleted files of the KRaft log stay.
internal.metadata.log.segment.bytes INT L--i . null
    Size of a segment of the KRaft log, without a lower limit.
internal.metadata.max.batch.size.in.bytes INT L--i . 8388608
    Largest batch of the KRaft log.
remote.fetch.max.wait.ms INT Mc- 1.. 500
    How long a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms LONG Mc- 1.. 30000
    How long a look-up of offsets waits for remote storage.
remote.log.index.file.cache.total.size.bytes LONG Lc- 1.. 1073741824
    Room for indexes of remote segments.
remote.log.index.file.cache.ttl.ms LONG L--i -1.. 900000
    How long an index of a remote segment stays in the cache.
remote.log.manager.copier.thread.pool.size INT Mc- 1.. 10
    Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second LONG Mc- 1.. 9223372036854775807
    Bytes per second copied to remote storage.
remote.log.manager.copy.quota.window.num INT M-- 1.. 11
    Windows in memory for the rate of these copies.
remote.log.manager.copy.quota.window.size.seconds INT M-- 1.. 1
    Length of one of these windows.
remote.log.manager.expiration.thread.pool.size INT Mc- 1.. 10
    Threads that delete from remote storage.
remote.log.manager.fetch.max.bytes.per.second LONG Mc- 1.. 9223372036854775807
    Bytes per second read from remote storage.
remote.log.manager.fetch.quota.window.num INT M-- 1.. 11
    Windows in memory for the rate of these reads.
remote.log.manager.fetch.quota.window.size.seconds INT M-- 1.. 1
    Length of one of these windows.
remote.log.manager.follower.thread.pool.size INT Mc- 1.. 2
    Threads that follow what leaders have in remote storage.
remote.log.manager.task.interval.ms LONG L-- 1.. 30000
    How often segments are looked over for remote storage.
remote.log.manager.task.retry.backoff.max.ms LONG L--i 1.. 30000
    Longest pause before work on remote storage is repeated.
remote.log.manager.task.retry.backoff.ms LONG L--i 1.. 500
    First pause before work on remote storage is repeated.
remote.log.manager.task.retry.jitter DOUBLE L--i 0..0.5 0.2
    Share by which these pauses vary.
remote.log.manager.thread.pool.size INT M-- 1.. 2
    Threads for work on remote storage.
remote.log.metadata.custom.metadata.max.bytes INT L-- 0.. 128
    Most bytes a storage plugin may add to a segment's metadata.
remote.log.metadata.manager.class.name STRING M-- + \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    The Java class that keeps the metadata of remote segments.
remote.log.metadata.manager.class.path STRING M-- . null
    Where this class is found.
remote.log.metadata.manager.impl.prefix STRING M-- + rlmm.config.
    How names of its settings begin.
remote.log.metadata.manager.listener.name STRING M-- + null
    The listener it connects to.
remote.log.reader.max.pending.tasks INT M-- 1.. 100
    Reads of remote storage that may wait.
remote.log.reader.threads INT Mc- 1.. 10
    Threads that read from remote storage.
remote.log.storage.manager.class.name STRING M-- + null
    The Java class that stores remote segments.
remote.log.storage.manager.class.path STRING M-- . null
    Where this class is found.
remote.log.storage.manager.impl.prefix STRING M-- + rsm.config.
    How names of its settings begin.
remote.log.storage.system.enable BOOLEAN M-- . false
    Whether remote storage can be used; there is none here.
"""
