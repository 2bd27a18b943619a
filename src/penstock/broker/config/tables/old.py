"""Settings that Kafka 4 no longer has, or leaves to plugins, but that files may contain."""

TABLE = """
super.users STRING H-*o .
    The principals that are allowed everything, as User:name separated by semicolons.
allow.everyone.if.no.acl.found BOOLEAN M-*o . false
    Whether all users may access a resource without ACLs.
leader.imbalance.per.broker.percentage INT H-*o . 10
    The percentage of non-preferred leaders of a broker above which leaders are balanced.
auto.include.jmx.reporter BOOLEAN L--o . true
    Whether metrics are always reported over JMX.
broker.id.generation.enable BOOLEAN M--o . true
    Whether ZooKeeper generates broker ids; in Penstock the default id is 0.
reserved.broker.max.id INT M--o 0.. 1000
    The highest broker id that may be configured.
control.plane.listener.name STRING H-*o . null
    The listener of brokers to which the controller sends its requests; clients may use it too.
delegation.token.master.key PASSWORD M-*o . null
    The former name of delegation.token.secret.key.
eligible.leader.replicas.enable BOOLEAN H--o . false
    Whether eligible leader replicas are tracked.
group.coordinator.new.enable BOOLEAN M--io . false
    Whether the new group coordinator is used.
group.share.enable BOOLEAN M--io . false
    Whether share groups are enabled.
group.share.max.groups SHORT M--o 1..100 10
    The maximum number of share groups.
inter.broker.protocol.version STRING M-*o version 3.9-IV0
    The version of the protocol between brokers, always 3.9; if set, Kafka may join a new cluster.
log.message.downconversion.enable BOOLEAN L-*o . true
    Whether batches are converted to older formats for clients that use Fetch below version 4.
log.message.format.version STRING M--o version 3.0-IV1
    The record format on disk; Penstock always uses the newest.
log.message.timestamp.difference.max.ms LONG M--o 0.. 9223372036854775807
    Replaced by log.message.timestamp.before.max.ms and .after.max.ms.
metadata.log.segment.min.bytes INT H--io 12.. 8388608
    The lowest metadata.log.segment.bytes.
offsets.commit.required.acks SHORT H--o . -1
    The acks of an offset commit; always all in-sync replicas.
password.encoder.cipher.algorithm STRING L--o . AES/CBC/PKCS5Padding
    The cipher of passwords that are stored in ZooKeeper.
password.encoder.iterations INT L--o 1024.. 4096
    The number of iterations for their key.
password.encoder.key.length INT L--o 8.. 128
    The length of their key.
password.encoder.keyfactory.algorithm STRING L--o . null
    The algorithm that derives their key.
password.encoder.old.secret PASSWORD M--o . null
    The previous password.encoder.secret.
password.encoder.secret PASSWORD M--o . null
    The secret from which their key is derived.
host.name STRING H--o . null
    The address to listen on; use listeners instead.
port INT H--o 0..65535 9092
    The port to listen on; use listeners instead.
advertised.host.name STRING H--o . null
    The advertised host; use advertised.listeners instead.
advertised.port INT H--o 0..65535 null
    The advertised port; use advertised.listeners instead.
quota.producer.default LONG H--o 1.. 9223372036854775807
    The rate limit of producers; set quotas with kafka-configs instead.
quota.consumer.default LONG H--o 1.. 9223372036854775807
    The rate limit of consumers; set quotas with kafka-configs instead.
replica.lag.max.messages LONG H--o . 4000
    The maximum lag of a follower in records; replaced by replica.lag.time.max.ms.
controller.message.queue.size INT L--o 1.. 2147483647
    The size of the controller's message queue per broker.
"""
