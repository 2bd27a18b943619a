"""Names that Kafka 4 no longer has, or leaves to its plugins, but which files contain."""

TABLE = """
super.users STRING H-*o .
    Principals that may do everything, as User:name with semicolons between.
allow.everyone.if.no.acl.found BOOLEAN M-*o . false
    Whether everyone may use a resource that no ACL is about.
leader.imbalance.per.broker.percentage INT H--o . 10
    Share of strayed leaders of a broker, in percent, that sets off their return.
controlled.shutdown.max.retries INT M--o . 3
    How often the broker asks the controller again to hand its leaderships over.
controlled.shutdown.retry.backoff.ms LONG M--o . 5000
    How long it rests between two such requests.
auto.include.jmx.reporter BOOLEAN L--o . true
    Whether metrics are reported over JMX in any case.
broker.id.generation.enable BOOLEAN M--o . true
    Let ZooKeeper number brokers without an id; here such a broker is 0.
reserved.broker.max.id INT M--o 0.. 1000
    Highest number a broker may be given by hand.
control.plane.listener.name STRING H--o . null
    A listener for the controller's requests alone; it is a listener like any other here.
delegation.token.master.key PASSWORD M--o . null
    The older name of delegation.token.secret.key.
eligible.leader.replicas.enable BOOLEAN H--o . false
    Keep account of replicas that are fit to lead although not in sync.
group.coordinator.new.enable BOOLEAN M--io . false
    Use the newer group coordinator.
group.share.enable BOOLEAN M--io . false
    Allow share groups.
group.share.max.groups SHORT M--o 1..100 10
    Most share groups.
inter.broker.protocol.version STRING M--o version 3.9-IV0
    Version that brokers speak among themselves; the newest is spoken here.
log.message.downconversion.enable BOOLEAN L-*o . true
    Turn batches into older formats for clients whose Fetch is older than version 4.
log.message.format.version STRING M--o version 3.0-IV1
    Record format on disk; always the newest here.
log.message.timestamp.difference.max.ms LONG M--o 0.. 9223372036854775807
    Replaced by log.message.timestamp.before.max.ms and .after.max.ms.
metadata.log.segment.min.bytes INT H--io 12.. 8388608
    Lowest metadata.log.segment.bytes.
offsets.commit.required.acks SHORT H--o . -1
    Replicas that a commit of offsets waits for; always all in sync.
password.encoder.cipher.algorithm STRING L--o . AES/CBC/PKCS5Padding
    Cipher of passwords that are kept in ZooKeeper.
password.encoder.iterations INT L--o 1024.. 4096
    Iterations of their key.
password.encoder.key.length INT L--o 8.. 128
    Length of their key.
password.encoder.keyfactory.algorithm STRING L--o . null
    Algorithm that makes their key.
password.encoder.old.secret PASSWORD M--o . null
    The secret before it was changed.
password.encoder.secret PASSWORD M--o . null
    The secret from which their key is made.
zookeeper.clientCnxnSocket STRING M--o . null
    The Java class of ZooKeeper's connection.
zookeeper.connect STRING H--o . null
    Where ZooKeeper is, as host:port/path.
zookeeper.connection.timeout.ms INT H--o . null
    How long the connection to ZooKeeper may take.
zookeeper.max.in.flight.requests INT H--o 1.. 10
    Requests that ZooKeeper may have to answer at once.
zookeeper.metadata.migration.enable BOOLEAN H--o . false
    Move the metadata from ZooKeeper to KRaft.
zookeeper.metadata.migration.min.batch.size INT M--io 1.. 200
    Records of this move in one batch.
zookeeper.session.timeout.ms INT H--o . 18000
    A broker that ZooKeeper has not heard of for so long is taken for dead.
zookeeper.set.acl BOOLEAN H--o . false
    Let nobody else change what the brokers keep in ZooKeeper.
zookeeper.ssl.cipher.suites LIST L--o . null
    Cipher suites towards ZooKeeper.
zookeeper.ssl.client.enable BOOLEAN M--o . false
    Use TLS towards ZooKeeper.
zookeeper.ssl.crl.enable BOOLEAN L--o . false
    Check for revoked certificates by list.
zookeeper.ssl.enabled.protocols LIST L--o . null
    TLS versions towards ZooKeeper.
zookeeper.ssl.endpoint.identification.algorithm STRING L--o . HTTPS
    Whether the host name in ZooKeeper's certificate is checked.
zookeeper.ssl.keystore.location STRING M--o . null
    The file of the key towards ZooKeeper.
zookeeper.ssl.keystore.password PASSWORD M--o . null
    Password of this file.
zookeeper.ssl.keystore.type STRING M--o . null
    Format of this file.
zookeeper.ssl.ocsp.enable BOOLEAN L--o . false
    Check for revoked certificates by asking.
zookeeper.ssl.protocol STRING L--o . TLSv1.2
    TLS version towards ZooKeeper.
zookeeper.ssl.truststore.location STRING M--o . null
    The file of certificates trusted towards ZooKeeper.
zookeeper.ssl.truststore.password PASSWORD M--o . null
    Password of this file.
zookeeper.ssl.truststore.type STRING M--o . null
    Format of this file.
zookeeper.sync.time.ms INT L--o . 2000
    How far a ZooKeeper follower may lag.
host.name STRING H--o . null
    The address to listen on; listeners is used instead.
port INT H--o 0..65535 9092
    The port to listen on; listeners is used instead.
advertised.host.name STRING H--o . null
    The host that clients are told; advertised.listeners is used instead.
advertised.port INT H--o 0..65535 null
    The port that clients are told; advertised.listeners is used instead.
quota.producer.default LONG H--o 1.. 9223372036854775807
    Bytes per second of a producer; quotas are set with kafka-configs instead.
quota.consumer.default LONG H--o 1.. 9223372036854775807
    Bytes per second of a consumer; quotas are set with kafka-configs instead.
replica.lag.max.messages LONG H--o . 4000
    Records a follower may lag behind; time alone counts.
controller.message.queue.size INT L--o 1.. 2147483647
    Messages that may wait for a broker at the controller.
"""
