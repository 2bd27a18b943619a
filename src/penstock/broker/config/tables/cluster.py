"""Settings of the broker's identity, replication, elections and the controller."""

TABLE = """
broker.id INT H-* -1.. 0
    The id of the broker in the cluster; a synonym of node.id.
node.id INT H-* 0.. 0
    The id of the broker in the cluster; a synonym of broker.id.
broker.rack STRING M-* . null
    The rack of the broker; the replicas of a partition are spread over racks.
process.roles LIST H-- +{broker,controller} null
    The KRaft roles of the process; in Penstock every broker can be the controller.
server.max.startup.time.ms LONG M--i 0.. 9223372036854775807
    The time within which the broker must have started.
broker.heartbeat.interval.ms INT M-- . 2000
    The interval of heartbeats to the KRaft controller.
broker.session.timeout.ms INT M-- . 9000
    The time without a heartbeat after which the KRaft controller fences a broker.
initial.broker.registration.timeout.ms INT M-- . 60000
    The timeout of the first registration with the KRaft controller.
auto.leader.rebalance.enable BOOLEAN H-* . true
    Whether leadership is moved back to preferred replicas periodically.
leader.imbalance.check.interval.seconds LONG H-* 1.. 300
    The interval at which the balance of leaders is checked.
unclean.leader.election.enable BOOLEAN Hc* . false
    Whether a replica outside the ISR may become leader if no other can; this may lose records.
unclean.leader.election.interval.ms LONG M--i 1.. 300000
    The interval at which unclean elections are attempted for partitions without a leader.
controlled.shutdown.enable BOOLEAN M-* . true
    Whether the broker moves its leaderships to other brokers before it stops.
controlled.shutdown.max.retries INT M-*o . 3
    How often a stopping broker waits controlled.shutdown.retry.backoff.ms for other leaders.
controlled.shutdown.retry.backoff.ms LONG M-*o . 5000
    How long a stopping broker waits, controlled.shutdown.max.retries times, for other leaders.
controller.socket.timeout.ms INT M-* . 30000
    The timeout of requests from the controller to brokers.
replica.lag.time.max.ms LONG H-* . 30000
    A follower that has not caught up with the leader for this time is removed from the ISR.
replica.fetch.max.bytes INT M-* 0.. 1048576
    The number of bytes that a follower fetches per partition.
replica.fetch.response.max.bytes INT M-* 0.. 10485760
    The number of bytes that a follower fetches in one request.
replica.fetch.min.bytes INT H-* . 1
    The number of bytes that a leader waits for before it responds to a follower's fetch.
replica.fetch.wait.max.ms INT H-* . 500
    The longest time that a leader waits for them.
replica.fetch.backoff.ms INT M-* 0.. 1000
    The time that a follower waits after a failed fetch.
replica.high.watermark.checkpoint.interval.ms LONG H-* . 5000
    The interval at which high watermarks are written to disk.
replica.selector.class STRING M-* . null
    The replica that consumers read from: null for the leader, or RackAwareReplicaSelector.
replica.socket.receive.buffer.bytes INT H-* . 65536
    The receive buffer of a follower's socket.
replica.socket.timeout.ms INT H-* . 30000
    The timeout of a follower's requests.
num.replica.fetchers INT Hc* 1.. 1
    The number of fetchers, each with a connection, per leader broker.
num.replica.alter.log.dirs.threads INT H-- . null
    The number of threads that move replicas between log directories.
follower.fetch.last.tiered.offset.enable BOOLEAN Mc- . false
    Whether a new follower starts fetching at the end of remote storage.
controller.listener.names LIST H-- + null
    The listeners of the KRaft controller; Penstock does not open them.
controller.performance.always.log.threshold.ms LONG M--i 0.. 2000
    Events of the KRaft controller that take longer are logged.
controller.performance.sample.period.ms LONG M--i 100.. 60000
    The interval at which the KRaft controller logs the duration of its events.
controller.quorum.append.linger.ms INT M-- 0.. 25
    The time for which the KRaft quorum collects records before it writes them.
controller.quorum.auto.join.enable BOOLEAN L-- . false
    Whether a controller joins the KRaft quorum automatically.
controller.quorum.bootstrap.servers LIST H-- .
    The addresses with which the KRaft quorum is found.
controller.quorum.election.backoff.max.ms INT H-- 0.. 1000
    The longest time between elections in the KRaft quorum.
controller.quorum.election.timeout.ms INT H-- 0.. 1000
    The timeout of an election in the KRaft quorum.
controller.quorum.fetch.max.bytes INT L-- 1.. 1048576
    The maximum size of a fetch in the KRaft quorum.
controller.quorum.fetch.snapshot.max.bytes INT L-- 1.. 1048576
    The maximum size of a snapshot fetch in the KRaft quorum.
controller.quorum.fetch.timeout.ms INT H-- 0.. 2000
    The time without a successful fetch after which a KRaft voter starts an election.
controller.quorum.request.timeout.ms INT M-- 0.. 2000
    The timeout of requests in the KRaft quorum.
controller.quorum.retry.backoff.ms INT L-- 0.. 20
    The time before a request in the KRaft quorum is retried.
controller.quorum.voters LIST H-- .
    The voters of the KRaft quorum.
metadata.log.dir STRING H-* . null
    The directory of the cluster metadata; the first of log.dirs if not set.
metadata.store.socket STRING H-*i . null
    The Unix socket of the supervisor's metadata store; penstock serve --brokers sets it.
metadata.log.max.record.bytes.between.snapshots LONG H-- 1.. 20971520
    The size of the KRaft log between two snapshots.
metadata.log.max.snapshot.interval.ms LONG H-- 0.. 3600000
    The longest time between two snapshots of the KRaft log.
metadata.log.segment.bytes INT H-- 8388608.. 1073741824
    The size of a segment of the KRaft log.
metadata.log.segment.ms LONG H-- . 604800000
    The age at which a segment of the KRaft log is rolled.
metadata.max.idle.interval.ms INT L-- 0.. 500
    The interval at which an idle KRaft leader writes no-op records.
metadata.max.retention.bytes LONG H-- . 104857600
    The size of the KRaft log and its snapshots that is retained.
metadata.max.retention.ms LONG H-- . 604800000
    The time for which the KRaft log and its snapshots are retained.
internal.metadata.delete.delay.millis LONG L--i . 60000
    The time after which deleted files of the KRaft log are removed.
internal.metadata.log.segment.bytes INT L--i . null
    The size of a segment of the KRaft log, without a lower limit.
internal.metadata.max.batch.size.in.bytes INT L--i . 8388608
    The maximum size of a batch in the KRaft log.
remote.fetch.max.wait.ms INT Mc- 1.. 500
    The longest time that a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms LONG Mc- 1.. 30000
    The timeout of an offset lookup in remote storage.
remote.log.index.file.cache.total.size.bytes LONG Lc- 1.. 1073741824
    The size of the cache for indexes of remote segments.
remote.log.index.file.cache.ttl.ms LONG L--i -1.. 900000
    The time for which an index of a remote segment is cached.
remote.log.manager.copier.thread.pool.size INT Mc- 1.. 10
    The number of threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second LONG Mc- 1.. 9223372036854775807
    The rate limit in bytes per second for copies to remote storage.
remote.log.manager.copy.quota.window.num INT M-- 1.. 11
    The number of windows for measuring the rate of copies to remote storage.
remote.log.manager.copy.quota.window.size.seconds INT M-- 1.. 1
    The length of one window in seconds.
remote.log.manager.expiration.thread.pool.size INT Mc- 1.. 10
    The number of threads that delete expired segments from remote storage.
remote.log.manager.fetch.max.bytes.per.second LONG Mc- 1.. 9223372036854775807
    The rate limit in bytes per second for reads from remote storage.
remote.log.manager.fetch.quota.window.num INT M-- 1.. 11
    The number of windows for measuring the rate of reads from remote storage.
remote.log.manager.fetch.quota.window.size.seconds INT M-- 1.. 1
    The length of one window in seconds.
remote.log.manager.follower.thread.pool.size INT Mc- 1.. 2
    The number of threads with which followers process remote segments.
remote.log.manager.task.interval.ms LONG L-- 1.. 30000
    The interval at which segments are checked for remote storage.
remote.log.manager.task.retry.backoff.max.ms LONG L--i 1.. 30000
    The longest time before a failed remote storage task is retried.
remote.log.manager.task.retry.backoff.ms LONG L--i 1.. 500
    The first time before a failed remote storage task is retried.
remote.log.manager.task.retry.jitter DOUBLE L--i 0..0.5 0.2
    The random variation of the time before a retry, as a fraction.
remote.log.manager.thread.pool.size INT M-- 1.. 2
    The number of threads for remote storage tasks.
remote.log.metadata.custom.metadata.max.bytes INT L-- 0.. 128
    The maximum size of a plugin's metadata of a remote segment.
remote.log.metadata.manager.class.name STRING M-- + \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    The Java class that manages the metadata of remote segments.
remote.log.metadata.manager.class.path STRING M-- . null
    The class path of this class.
remote.log.metadata.manager.impl.prefix STRING M-- + rlmm.config.
    The prefix of its settings.
remote.log.metadata.manager.listener.name STRING M-- + null
    The listener that it connects to.
remote.log.reader.max.pending.tasks INT M-- 1.. 100
    The maximum number of waiting reads from remote storage.
remote.log.reader.threads INT Mc- 1.. 10
    The number of threads that read from remote storage.
remote.log.storage.manager.class.name STRING M-- + null
    The Java class that stores remote segments.
remote.log.storage.manager.class.path STRING M-- . null
    The class path of this class.
remote.log.storage.manager.impl.prefix STRING M-- + rsm.config.
    The prefix of its settings.
remote.log.storage.system.enable BOOLEAN M-- . false
    Whether remote storage is enabled; Penstock has none.
"""
