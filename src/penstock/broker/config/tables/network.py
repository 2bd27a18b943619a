"""Listeners, connections, requests and quotas."""

TABLE = """
listeners LIST Hb* + PLAINTEXT://127.0.0.1:9092
    Where the broker listens, as NAME://host:port with commas between; port 0 takes a free one.
advertised.listeners LIST H-* + null
    The addresses that clients are told to connect to; those of listeners when not set.
listener.security.protocol.map STRING Lb* . \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    Which security protocol each listener name stands for, as NAME:PROTOCOL pairs.
inter.broker.listener.name STRING M-* . null
    The listener between brokers; else the one of security.inter.broker.protocol, else the first.
security.inter.broker.protocol STRING M-* {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} PLAINTEXT
    The protocol between brokers; names their listener when inter.broker.listener.name is not set.
early.start.listeners LIST H-- . null
    Listeners opened before the authorizer is ready; here all open at once.
socket.send.buffer.bytes INT H-* . 102400
    Send buffer of a client's socket. Not set, or -1, it is left to the system.
socket.receive.buffer.bytes INT H-* . 102400
    Receive buffer of a client's socket. Not set, or -1, it is left to the system.
socket.request.max.bytes INT H-* 1.. 104857600
    Largest request that is read; a connection that announces more is closed.
socket.listen.backlog.size INT M-* 1.. 50
    Connections that may wait to be accepted.
socket.connection.setup.timeout.ms LONG M-- . 10000
    How long a connection to another broker may take at first.
socket.connection.setup.timeout.max.ms LONG M-- . 30000
    How long a connection to another broker may take after failures.
max.connections INT Mc* 0.. 2147483647
    Connections open at once, on all listeners together or on one with its prefix.
max.connections.per.ip INT Mc* 0.. 2147483647
    Connections open at once from one address.
max.connections.per.ip.overrides STRING Mc* .
    Other limits for single addresses, as host:count pairs.
max.connection.creation.rate INT Mc* 0.. 2147483647
    New connections accepted per second.
connections.max.idle.ms LONG M-* . 600000
    A connection without traffic for so long is closed.
connections.max.reauth.ms LONG M-* . 0
    A SASL session must be renewed within this time; 0: never.
connection.failed.authentication.delay.ms INT L-* 0.. 100
    How long the answer to a failed login is held back.
queued.max.requests INT H-* 1.. 500
    Requests in work before the broker reads no further ones.
queued.max.request.bytes LONG M-- . -1
    Bytes of requests in work before the broker reads no further ones; -1: no limit.
num.network.threads INT Hc- 1.. 3
    Threads for the network; one event loop does this here.
num.io.threads INT Hc- 1.. 8
    Threads for requests; one event loop does this here.
background.threads INT Hc- 1.. 10
    Threads for chores such as deleting files.
request.timeout.ms INT H-* . 30000
    How long a request to another broker waits for its answer.
max.incremental.fetch.session.cache.slots INT M-* 0.. 1000
    Fetch sessions kept at once; the least used makes room.
max.request.partition.size.limit INT M-* 1.. 2000
    Most partitions one request may ask about.
fetch.max.bytes INT M-* 1024.. 57671680
    Most bytes in one answer to a fetch; a first batch that is larger is sent all the same.
fetch.purgatory.purge.interval.requests INT M-- . 1000
    After how many requests finished fetches are swept; here they leave at once.
producer.purgatory.purge.interval.requests INT M-- . 1000
    After how many requests finished produces are swept; here they leave at once.
delete.records.purgatory.purge.interval.requests INT M-- . 1
    After how many requests finished deletions are swept; here they leave at once.
share.fetch.purgatory.purge.interval.requests INT M-- . 1000
    After how many requests finished share fetches are swept.
quota.window.num INT L-* 1.. 11
    Windows in memory over which the rate of a client is taken.
quota.window.size.seconds INT L-* 1.. 1
    Length of one of these windows.
controller.quota.window.num INT L-* 1.. 11
    Windows in memory for the rate of topic changes.
controller.quota.window.size.seconds INT L-* 1.. 1
    Length of one of these windows.
replication.quota.window.num INT L-- 1.. 11
    Windows in memory for the rate of replication.
replication.quota.window.size.seconds INT L-- 1.. 1
    Length of one of these windows.
alter.log.dirs.replication.quota.window.num INT L-- 1.. 11
    Windows in memory for the rate of moves between folders.
alter.log.dirs.replication.quota.window.size.seconds INT L-- 1.. 1
    Length of one of these windows.
client.quota.callback.class CLASS L-- . null
    A Java class that decides on quotas.
leader.replication.throttled.rate LONG Mc- 0.. 9223372036854775807
    Bytes per second sent to throttled followers.
follower.replication.throttled.rate LONG Mc- 0.. 9223372036854775807
    Bytes per second fetched for throttled partitions.
replica.alter.log.dirs.io.max.bytes.per.second LONG Mc- 0.. 9223372036854775807
    Bytes per second that moves between folders may copy.
telemetry.max.bytes INT L-* 1.. 1048576
    Most bytes of metrics one client may push at once.
metric.reporters LIST Lc- . org.apache.kafka.common.metrics.JmxReporter
    Java classes that report metrics.
metrics.num.samples INT L-- 1.. 2
    Samples over which a metric is taken.
metrics.recording.level STRING L-- . INFO
    Which metrics are recorded.
metrics.sample.window.ms LONG L-- 1.. 30000
    Length of a sample of a metric.
kafka.metrics.polling.interval.secs INT L-- 1.. 10
    How often the older reporters are asked.
kafka.metrics.reporters LIST L-- .
    Java classes that report the older metrics.
unstable.api.versions.enable BOOLEAN H--i . false
    Serve API versions that are not final yet.
unstable.feature.versions.enable BOOLEAN H--i . false
    Allow feature versions that are not final yet.
config.providers LIST Lc- .
    Classes that fetch values from elsewhere; values must be written out here.
"""
