"""Settings of listeners, connections, requests, quotas and metrics."""

TABLE = """
listeners LIST Hb* + PLAINTEXT://127.0.0.1:9092
    The comma-separated addresses to listen on, as NAME://host:port; port 0 binds a free port.
advertised.listeners LIST H-* + null
    The addresses that are advertised to clients; those of listeners if not set.
listener.security.protocol.map STRING Lb* . \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    The security protocol of each listener name, as NAME:PROTOCOL pairs.
inter.broker.listener.name STRING M-* . null
    The listener for traffic between brokers; by default that of security.inter.broker.protocol.
security.inter.broker.protocol STRING M-* {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} PLAINTEXT
    The protocol between brokers, which selects their listener without inter.broker.listener.name.
early.start.listeners LIST H-- . null
    Listeners that are opened before the authorizer is ready; Penstock opens all at once.
socket.send.buffer.bytes INT H-* . 102400
    The send buffer of a client's socket; if not set, or -1, the system's default.
socket.receive.buffer.bytes INT H-* . 102400
    The receive buffer of a client's socket; if not set, or -1, the system's default.
socket.request.max.bytes INT H-* 1.. 104857600
    The maximum size of a request; a connection with a larger one is closed.
socket.request.max.elements INT H-*i 1000.. 100000
    The maximum number of elements in all arrays of a request; a request with more is refused.
controller.queue.max.requests INT M-*i 1.. 500
    The maximum number of requests that wait for the controller, half of it for one principal.
socket.listen.backlog.size INT M-* 1.. 50
    The number of connections that may wait to be accepted.
socket.connection.setup.timeout.ms LONG M-* . 10000
    The initial timeout of connecting to another broker.
socket.connection.setup.timeout.max.ms LONG M-* . 30000
    The maximum timeout of connecting to another broker after failures.
max.connections INT Mc* 0.. 2147483647
    The maximum number of connections of the broker, or of a listener with its prefix.
max.connections.per.ip INT Mc* 0.. 2147483647
    The maximum number of connections from one IP address.
max.connections.per.ip.overrides STRING Mc* .
    Limits for single addresses or host names, as host:count pairs.
max.connection.creation.rate INT Mc* 0.. 2147483647
    The maximum number of new connections per second.
connections.max.idle.ms LONG M-* . 600000
    A connection that is idle for this time is closed.
connections.max.reauth.ms LONG M-* . 0
    The time after which a SASL client must authenticate again; 0 for never.
connection.failed.authentication.delay.ms INT L-* 0.. 100
    The delay of the response to a failed authentication.
queued.max.requests INT H-* 1.. 500
    The number of requests in progress above which the broker stops reading requests.
queued.max.request.bytes LONG M-* . -1
    The size of requests in progress above which the broker stops reading; -1 for no limit.
request.memory.max.bytes LONG H-*i 16777216..|-1 -1
    The memory of all requests in progress; -1 for a quarter of the machine's, at most 1 GiB.
metrics.port INT M-*i 0..65535|-1 -1
    The port for Prometheus metrics and health over HTTP: 0 for a free one, -1 for none.
metrics.host STRING M-*i . 127.0.0.1
    The address to which metrics.port is bound; whoever reaches it can read the metrics.
metrics.max.topics INT L-*i 0.. 1000
    The number of topics with metrics of their own; those of all others are added up.
metrics.max.group.partitions INT L-*i 0.. 5000
    The number of partitions of consumer groups whose lag is a metric.
num.network.threads INT Hc- 1.. 3
    The number of network threads; Penstock uses one event loop.
num.io.threads INT Hc- 1.. 8
    The number of request threads; Penstock uses one event loop.
background.threads INT Hc- 1.. 10
    The number of threads for background tasks.
request.timeout.ms INT H-* . 30000
    The timeout of requests to other brokers.
max.incremental.fetch.session.cache.slots INT M-* 0.. 1000
    The maximum number of fetch sessions; the least recently used one is evicted.
max.request.partition.size.limit INT M-* 1.. 2000
    The maximum number of partitions in a response of DescribeTopicPartitions.
fetch.max.bytes INT M-* 1024.. 57671680
    The maximum size of a fetch response; a larger first batch is sent nevertheless.
fetch.purgatory.purge.interval.requests INT M-- . 1000
    The interval in requests at which the fetch purgatory is purged; Penstock needs no purge.
producer.purgatory.purge.interval.requests INT M-- . 1000
    The interval in requests at which the produce purgatory is purged; Penstock needs no purge.
delete.records.purgatory.purge.interval.requests INT M-- . 1
    The interval in requests at which the purgatory of DeleteRecords is purged; without effect.
share.fetch.purgatory.purge.interval.requests INT M-- . 1000
    The interval in requests at which the share fetch purgatory is purged.
quota.window.num INT L-* 1.. 11
    The number of windows for measuring the rates of client quotas.
quota.window.size.seconds INT L-* 1.. 1
    The length of one window in seconds.
controller.quota.window.num INT L-* 1.. 11
    The number of windows for measuring the rate of controller mutations.
controller.quota.window.size.seconds INT L-* 1.. 1
    The length of one window in seconds.
replication.quota.window.num INT L-* 1.. 11
    The number of windows for measuring the rate of replication.
replication.quota.window.size.seconds INT L-* 1.. 1
    The length of one window in seconds.
alter.log.dirs.replication.quota.window.num INT L-- 1.. 11
    The number of windows for measuring the rate of moves between log directories.
alter.log.dirs.replication.quota.window.size.seconds INT L-- 1.. 1
    The length of one window in seconds.
client.quota.callback.class CLASS L-- . null
    A Java class that determines quotas.
leader.replication.throttled.rate LONG Mc* 0.. 9223372036854775807
    The rate limit in bytes per second for throttled replicas on the leader.
follower.replication.throttled.rate LONG Mc* 0.. 9223372036854775807
    The rate limit in bytes per second for throttled replicas on the follower.
replica.alter.log.dirs.io.max.bytes.per.second LONG Mc- 0.. 9223372036854775807
    The rate limit in bytes per second for moves between log directories.
telemetry.max.bytes INT L-* 1.. 1048576
    The maximum size of the metrics that a client pushes.
metric.reporters LIST Lc- . org.apache.kafka.common.metrics.JmxReporter
    Java classes that report metrics.
metrics.num.samples INT L-- 1.. 2
    The number of samples of a metric.
metrics.recording.level STRING L-- . INFO
    The level of metrics that are recorded.
metrics.sample.window.ms LONG L-- 1.. 30000
    The length of a metric's sample window.
kafka.metrics.polling.interval.secs INT L-- 1.. 10
    The polling interval of kafka.metrics.reporters.
kafka.metrics.reporters LIST L-- .
    Java classes that report Yammer metrics.
unstable.api.versions.enable BOOLEAN H--i . false
    Whether unstable API versions are served.
unstable.feature.versions.enable BOOLEAN H--i . false
    Whether unstable feature versions are allowed.
config.providers LIST Lc- .
    Java classes that provide values; Penstock needs the values themselves.
"""
