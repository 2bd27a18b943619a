"""TLS, SASL, authorisation and delegation tokens."""

TABLE = """
authorizer.class.name STRING L-* .
    Kafka's authorizer, by its class name, turns ACLs on; empty: everyone may do everything.
principal.builder.class CLASS Mb- . \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    The Java class that makes a principal from a connection.
security.providers STRING L-- . null
    Java classes that provide algorithms.
ssl.allow.dn.changes BOOLEAN L-- . false
    Whether a new certificate may have another distinguished name.
ssl.allow.san.changes BOOLEAN L-- . false
    Whether a new certificate may drop alternative names.
ssl.cipher.suites LIST Mb* .
    Cipher suites that may be used; empty: those that TLS offers by itself.
ssl.client.auth STRING Mb* {required,requested,none} none
    Whether clients must, may or need not show a certificate.
ssl.enabled.protocols LIST Mb* . TLSv1.2,TLSv1.3
    TLS versions that may be used.
ssl.endpoint.identification.algorithm STRING Lb- . https
    https: a broker checks the host name in another's certificate; empty: it does not.
ssl.engine.factory.class CLASS Lb- . null
    A Java class that makes TLS engines.
ssl.key.password PASSWORD Mb* . null
    Password of the private key.
ssl.keymanager.algorithm STRING Mb- . SunX509
    Java's algorithm for keys.
ssl.keystore.certificate.chain PASSWORD Mb* . null
    The broker's certificate and those that vouch for it, in PEM.
ssl.keystore.key PASSWORD Mb* . null
    The broker's private key, in PEM.
ssl.keystore.location STRING Mb* . null
    The file of the broker's key and certificate.
ssl.keystore.password PASSWORD Mb* . null
    Password of this file.
ssl.keystore.type STRING Mb* . JKS
    Format of this file: PEM, PKCS12 or JKS.
ssl.principal.mapping.rules STRING L-* . DEFAULT
    Rules that turn the name in a client's certificate into a user name.
ssl.protocol STRING Mb* . TLSv1.3
    TLS version to prefer.
ssl.provider STRING Mb- . null
    Java's provider of TLS.
ssl.secure.random.implementation STRING Lb- . null
    Java's source of random numbers.
ssl.trustmanager.algorithm STRING Mb- . PKIX
    Java's algorithm for trust.
ssl.truststore.certificates PASSWORD Mb* . null
    Certificates that are trusted, in PEM.
ssl.truststore.location STRING Mb* . null
    The file of the certificates that are trusted.
ssl.truststore.password PASSWORD Mb* . null
    Password of this file.
ssl.truststore.type STRING Mb* . JKS
    Format of this file: PEM, PKCS12 or JKS.
sasl.enabled.mechanisms LIST Mb* . GSSAPI
    SASL mechanisms that clients may use; PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are served.
sasl.jaas.config PASSWORD Mb* . null
    Users and passwords, or what a login needs, in JAAS syntax; per listener and mechanism.
sasl.mechanism.inter.broker.protocol STRING Mb- . GSSAPI
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol STRING H-- . GSSAPI
    SASL mechanism towards the KRaft controller.
sasl.server.max.receive.size INT M-* . 524288
    Largest message of a SASL exchange.
sasl.server.callback.handler.class CLASS M-- . null
    A Java class that checks logins.
sasl.client.callback.handler.class CLASS M-- . null
    A Java class that answers for a client that logs in.
sasl.login.callback.handler.class CLASS M-- . null
    A Java class that answers for a login.
sasl.login.class CLASS M-- . null
    A Java class that logs in.
sasl.login.connect.timeout.ms INT L-- . null
    How long a connection to the provider of tokens may take.
sasl.login.read.timeout.ms INT L-- . null
    How long the provider of tokens may take to answer.
sasl.login.refresh.buffer.seconds SHORT Mb- . 300
    Seconds before its end at which a token is renewed at the latest.
sasl.login.refresh.min.period.seconds SHORT Mb- . 60
    Shortest time between two renewals of a token.
sasl.login.refresh.window.factor DOUBLE Mb- . 0.8
    Share of a token's life after which it is renewed.
sasl.login.refresh.window.jitter DOUBLE Mb- . 0.05
    Share of a token's life by which this varies.
sasl.login.retry.backoff.max.ms LONG L-- . 10000
    Longest pause before a token is asked for again.
sasl.login.retry.backoff.ms LONG L-- . 100
    First pause before a token is asked for again.
sasl.kerberos.kinit.cmd STRING Mb- . /usr/bin/kinit
    The command that gets Kerberos tickets.
sasl.kerberos.min.time.before.relogin LONG Mb- . 60000
    Shortest time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules LIST Mb- . DEFAULT
    Rules that turn a Kerberos name into a user name.
sasl.kerberos.service.name STRING Mb- . null
    The Kerberos name of the service.
sasl.kerberos.ticket.renew.jitter DOUBLE Mb- . 0.05
    Share of a ticket's life by which its renewal varies.
sasl.kerberos.ticket.renew.window.factor DOUBLE Mb- . 0.8
    Share of a ticket's life after which it is renewed.
sasl.oauthbearer.assertion.algorithm STRING M-- ~{ES256,RS256} RS256
    Algorithm that signs an assertion.
sasl.oauthbearer.assertion.claim.aud STRING M-- . null
    Audience that an assertion names.
sasl.oauthbearer.assertion.claim.exp.seconds INT L-- 0..86400 300
    Seconds for which an assertion is valid.
sasl.oauthbearer.assertion.claim.iss STRING M-- . null
    Issuer that an assertion names.
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN M-- . false
    Whether an assertion has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds INT L-- 0..3600 60
    Seconds before now from which an assertion is valid.
sasl.oauthbearer.assertion.claim.sub STRING M-- . null
    Subject that an assertion names.
sasl.oauthbearer.assertion.file STRING M-- . null
    A file with an assertion that is ready.
sasl.oauthbearer.assertion.private.key.file STRING M-- . null
    The file of the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD M-- . null
    Password of this file.
sasl.oauthbearer.assertion.template.file STRING M-- . null
    A file with further claims of an assertion.
sasl.oauthbearer.client.credentials.client.id STRING M-- . null
    Id with which tokens are asked for.
sasl.oauthbearer.client.credentials.client.secret PASSWORD M-- . null
    Secret with which tokens are asked for.
sasl.oauthbearer.clock.skew.seconds INT L-- . 30
    How far the clocks of broker and issuer may differ.
sasl.oauthbearer.expected.audience LIST H-- .
    Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer STRING H-- . null
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG L-- . 3600000
    How often the issuer's keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG L-- . 10000
    Longest pause before the keys are asked for again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG L-- . 100
    First pause before the keys are asked for again.
sasl.oauthbearer.jwks.endpoint.url STRING M-- . null
    Where the issuer's keys are.
sasl.oauthbearer.jwt.retriever.class CLASS M-- . \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    A Java class that gets tokens.
sasl.oauthbearer.jwt.validator.class CLASS M-- . \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    A Java class that checks tokens.
sasl.oauthbearer.scope STRING M-- . null
    Scope for which a token is asked.
sasl.oauthbearer.scope.claim.name STRING L-- . scope
    The claim that holds the scope.
sasl.oauthbearer.sub.claim.name STRING L-- . sub
    The claim that holds the subject.
sasl.oauthbearer.token.endpoint.url STRING M-- . null
    Where tokens are had.
delegation.token.secret.key PASSWORD M-- . null
    Secret that signs delegation tokens; without it there are none.
delegation.token.expiry.check.interval.ms LONG L-- 1.. 3600000
    How often delegation tokens are looked over for those that expire.
delegation.token.expiry.time.ms LONG M-- 1.. 86400000
    How long a delegation token is valid before it must be renewed.
delegation.token.max.lifetime.ms LONG M-- 1.. 604800000
    How long a delegation token can be renewed.
"""
