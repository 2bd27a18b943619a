"""Settings of the metadata store in ZooKeeper."""

TABLE = """
zookeeper.connect STRING H-*o . null
    The servers of ZooKeeper and the node of this cluster, as host:port,host:port/path.
zookeeper.session.timeout.ms INT H-*o . 18000
    The time without a sign of life after which a broker counts as failed.
zookeeper.connection.timeout.ms INT H-*o . null
    The time for connecting to ZooKeeper; by default zookeeper.session.timeout.ms.
zookeeper.set.acl BOOLEAN H-*o . false
    Whether only brokers may change the nodes; needs a login to ZooKeeper.
zookeeper.auth.digest PASSWORD M-*i . null
    The login to ZooKeeper with its scheme digest, as user:password.
java.security.auth.login.config STRING M-*i . null
    A JAAS file; its section Client has the SASL login to ZooKeeper.
zookeeper.max.in.flight.requests INT H--o 1.. 10
    The maximum number of in-flight requests to ZooKeeper.
zookeeper.clientCnxnSocket STRING M--o . null
    The Java class of ZooKeeper's connection.
zookeeper.ssl.client.enable BOOLEAN M-*o . false
    Whether connections to ZooKeeper use TLS.
zookeeper.ssl.keystore.location STRING M-*o . null
    The key and the certificate that the broker shows to ZooKeeper.
zookeeper.ssl.keystore.password PASSWORD M-*o . null
    The password of this file.
zookeeper.ssl.keystore.type STRING M-*o . null
    The format of this file, JKS, PKCS12 or PEM; by default that of its extension.
zookeeper.ssl.truststore.location STRING M-*o . null
    The certificates of ZooKeeper's servers or of their authorities.
zookeeper.ssl.truststore.password PASSWORD M-*o . null
    The password of this file.
zookeeper.ssl.truststore.type STRING M-*o . null
    The format of this file, JKS, PKCS12 or PEM; by default that of its extension.
zookeeper.ssl.protocol STRING L-*o . TLSv1.2
    The TLS version of connections to ZooKeeper.
zookeeper.ssl.enabled.protocols LIST L-*o . null
    The TLS versions of connections to ZooKeeper; zookeeper.ssl.protocol if it is not set.
zookeeper.ssl.cipher.suites LIST L-*o . null
    The cipher suites of connections to ZooKeeper.
zookeeper.ssl.endpoint.identification.algorithm STRING L-*o . HTTPS
    HTTPS to check the host name in ZooKeeper's certificate, empty to accept any.
zookeeper.ssl.crl.enable BOOLEAN L-*o . false
    Whether revocation of ZooKeeper's certificates is checked with CRLs; not supported.
zookeeper.ssl.ocsp.enable BOOLEAN L-*o . false
    Whether revocation of ZooKeeper's certificates is checked with OCSP; not supported.
zookeeper.metadata.migration.enable BOOLEAN H--o . false
    Whether the metadata is migrated from ZooKeeper to KRaft.
zookeeper.metadata.migration.min.batch.size INT M--io 1.. 200
    The minimum number of records in a batch of this migration.
zookeeper.sync.time.ms INT L--o . 2000
    The maximum lag of a ZooKeeper follower.
"""
