"""Settings of TLS, SASL, authorization and delegation tokens."""

TABLE = """
authorizer.class.name STRING L-* .
    The class name of Kafka's authorizer enables ACLs; if empty, everything is allowed.
audit.log.dir STRING M-*i . null
    The directory of the audit log, audit-<node.id>.jsonl; if not set, there is none.
audit.log.max.bytes LONG L-*i 1048576.. 104857600
    The size at which the audit log is rotated.
audit.log.max.files INT L-*i 1.. 10
    The number of files of the audit log, with the current one; the oldest one is deleted.
principal.builder.class CLASS Mb- . \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    The Java class that derives the principal of a connection.
security.providers STRING L-- . null
    Java classes that provide security algorithms.
ssl.allow.dn.changes BOOLEAN L-* . false
    Whether a new certificate may have another distinguished name.
ssl.allow.san.changes BOOLEAN L-* . false
    Whether a new certificate may drop alternative names.
ssl.cipher.suites LIST Mb* .
    The enabled cipher suites; if empty, the defaults of TLS.
ssl.client.auth STRING Mb* {required,requested,none} none
    Whether clients must, may or need not present a certificate.
ssl.enabled.protocols LIST Mb* . TLSv1.2,TLSv1.3
    The enabled TLS versions.
ssl.endpoint.identification.algorithm STRING Lb* . https
    Whether a broker verifies the host name in another's certificate (https) or not (empty).
ssl.engine.factory.class CLASS Lb- . null
    A Java class that creates TLS engines.
ssl.key.password PASSWORD Mb* . null
    The password of the private key.
ssl.keymanager.algorithm STRING Mb- . SunX509
    The algorithm of Java's key manager.
ssl.keystore.certificate.chain PASSWORD Mb* . null
    The broker's certificate chain, in PEM.
ssl.keystore.key PASSWORD Mb* . null
    The broker's private key, in PEM.
ssl.keystore.location STRING Mb* . null
    The key store file with the broker's private key and certificate.
ssl.keystore.password PASSWORD Mb* . null
    The password of this file.
ssl.keystore.type STRING Mb* . JKS
    The format of this file: PEM, PKCS12 or JKS.
ssl.principal.mapping.rules STRING L-* . DEFAULT
    The rules that map the name in a client's certificate to a user name.
ssl.protocol STRING Mb* . TLSv1.3
    The preferred TLS version.
ssl.provider STRING Mb- . null
    The provider of TLS in Java.
ssl.secure.random.implementation STRING Lb- . null
    The random number generator in Java.
ssl.trustmanager.algorithm STRING Mb- . PKIX
    The algorithm of Java's trust manager.
ssl.truststore.certificates PASSWORD Mb* . null
    The trusted certificates, in PEM.
ssl.truststore.location STRING Mb* . null
    The trust store file with the trusted certificates.
ssl.truststore.password PASSWORD Mb* . null
    The password of this file.
ssl.truststore.type STRING Mb* . JKS
    The format of this file: PEM, PKCS12 or JKS.
sasl.enabled.mechanisms LIST Mb* . GSSAPI
    The SASL mechanisms of clients; Penstock supports PLAIN, SCRAM, OAUTHBEARER and GSSAPI.
sasl.jaas.config PASSWORD Mb* . null
    The users and passwords, or login options, in JAAS syntax, per listener and mechanism.
sasl.mechanism.inter.broker.protocol STRING Mb* . GSSAPI
    The SASL mechanism between brokers.
sasl.mechanism.controller.protocol STRING H-- . GSSAPI
    The SASL mechanism of connections to the KRaft controller.
sasl.server.max.receive.size INT M-* . 524288
    The maximum size of a message before authentication.
sasl.server.callback.handler.class CLASS M-* . null
    The class that verifies credentials; Penstock knows Kafka's own for OAUTHBEARER.
sasl.client.callback.handler.class CLASS M-- . null
    A Java class that handles SASL callbacks of a client.
sasl.login.callback.handler.class CLASS M-* . null
    The class that obtains credentials; Penstock knows Kafka's own for OAUTHBEARER.
sasl.login.class CLASS M-- . null
    A Java class that performs the login.
sasl.login.connect.timeout.ms INT L-* . null
    The timeout of connecting to the token provider.
sasl.login.read.timeout.ms INT L-* . null
    The timeout of reading from the token provider.
sasl.login.refresh.buffer.seconds SHORT Mb* . 300
    The latest time in seconds before a token expires at which it is refreshed.
sasl.login.refresh.min.period.seconds SHORT Mb* . 60
    The minimum time in seconds between two refreshes of a token.
sasl.login.refresh.window.factor DOUBLE Mb* . 0.8
    The fraction of a token's lifetime after which it is refreshed.
sasl.login.refresh.window.jitter DOUBLE Mb* . 0.05
    The random variation of the refresh time, as a fraction of the lifetime.
sasl.login.retry.backoff.max.ms LONG L-* . 10000
    The longest time before a token request is retried.
sasl.login.retry.backoff.ms LONG L-* . 100
    The first time before a token request is retried.
sasl.kerberos.kinit.cmd STRING Mb- . /usr/bin/kinit
    The kinit command of Kerberos.
sasl.kerberos.min.time.before.relogin LONG Mb* . 60000
    The minimum time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules LIST Mb* . DEFAULT
    The rules that map a Kerberos principal to a user name.
sasl.kerberos.service.name STRING Mb* . null
    The Kerberos principal name of the service.
sasl.kerberos.ticket.renew.jitter DOUBLE Mb* . 0.05
    The random variation of the renewal time of a ticket.
sasl.kerberos.ticket.renew.window.factor DOUBLE Mb* . 0.8
    The fraction of a ticket's lifetime after which it is renewed.
sasl.oauthbearer.assertion.algorithm STRING M-- ~{ES256,RS256} RS256
    The algorithm that signs assertions.
sasl.oauthbearer.assertion.claim.aud STRING M-- . null
    The audience claim of an assertion.
sasl.oauthbearer.assertion.claim.exp.seconds INT L-- 0..86400 300
    The number of seconds for which an assertion is valid.
sasl.oauthbearer.assertion.claim.iss STRING M-- . null
    The issuer claim of an assertion.
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN M-- . false
    Whether an assertion has a unique id.
sasl.oauthbearer.assertion.claim.nbf.seconds INT L-- 0..3600 60
    The number of seconds before its creation from which an assertion is valid.
sasl.oauthbearer.assertion.claim.sub STRING M-- . null
    The subject claim of an assertion.
sasl.oauthbearer.assertion.file STRING M-- . null
    A file with a complete assertion.
sasl.oauthbearer.assertion.private.key.file STRING M-- . null
    The file with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD M-- . null
    The password of this file.
sasl.oauthbearer.assertion.template.file STRING M-- . null
    A file with additional claims of an assertion.
sasl.oauthbearer.client.credentials.client.id STRING M-* . null
    The client id of token requests.
sasl.oauthbearer.client.credentials.client.secret PASSWORD M-* . null
    The client secret of token requests.
sasl.oauthbearer.clock.skew.seconds INT L-* . 30
    The maximum difference in seconds between the clocks of broker and issuer.
sasl.oauthbearer.expected.audience LIST H-* .
    The audiences, one of which a token must have.
sasl.oauthbearer.expected.issuer STRING H-* . null
    The issuer that a token must have.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG L-* . 3600000
    The interval at which the issuer's keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG L-* . 10000
    The longest time before fetching the keys is retried.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG L-* . 100
    The first time before fetching the keys is retried.
sasl.oauthbearer.jwks.endpoint.url STRING M-* . null
    The URL of the issuer's keys.
sasl.oauthbearer.jwt.retriever.class CLASS M-- . \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    A Java class that retrieves tokens.
sasl.oauthbearer.jwt.validator.class CLASS M-- . \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    A Java class that validates tokens.
sasl.oauthbearer.scope STRING M-* . null
    The scope of token requests.
sasl.oauthbearer.scope.claim.name STRING L-* . scope
    The name of the scope claim.
sasl.oauthbearer.sub.claim.name STRING L-* . sub
    The name of the subject claim.
sasl.oauthbearer.token.endpoint.url STRING M-* . null
    The URL of the token endpoint.
delegation.token.secret.key PASSWORD M-* . null
    The secret that signs delegation tokens, the same on all brokers; without it they are disabled.
delegation.token.expiry.check.interval.ms LONG L-* 1.. 3600000
    The interval at which expired delegation tokens are removed.
delegation.token.expiry.time.ms LONG M-* 1.. 86400000
    The time after which a delegation token must be renewed.
delegation.token.max.lifetime.ms LONG M-* 1.. 604800000
    The maximum lifetime of a delegation token.
delegation.token.max.tokens.per.owner INT L-*i 1.. 1000
    The number of delegation tokens that a principal may own.
"""
