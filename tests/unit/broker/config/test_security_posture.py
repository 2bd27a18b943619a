"""The security posture of settings: what is refused, warned about and explained (X3)."""

import pytest

from penstock.broker.config.broker_config import BrokerConfig, ConfigError
from penstock.broker.config.component_config import tls_settings
from penstock.broker.config.security_posture import (
    STANDARD_AUTHORIZER,
    describe_security,
    is_public,
)
from penstock.security.sasl.oauthbearer import UNSECURED_VALIDATOR_CLASS
from tests.support.broker.logins import PLAIN_JAAS

PUBLIC = "PLAINTEXT://0.0.0.0:9092"
KEYS = {"ssl.keystore.location": "k", "ssl.keystore.password": "p"}


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {name.replace("_", "."): text for name, text in settings.items()}
    )


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        (
            {
                "listeners": "SASL_SSL://0.0.0.0:9093",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
                    UNSECURED_VALIDATOR_CLASS
                ),
                **KEYS,
            },
            "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class: "
            "SASL_SSL://0.0.0.0:9093 accepts tokens without a signature",
        ),
        (
            {
                "listeners": "SASL_SSL://0.0.0.0:9093",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "http://issuer.test/jwks",
                **KEYS,
            },
            "sasl.oauthbearer.jwks.endpoint.url: http://issuer.test/jwks is not encrypted",
        ),
        (
            {
                "listeners": "SASL_SSL://0.0.0.0:9093",
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1@$0](.*@A)s/@.*//,RULE:[2:$1]",
                **KEYS,
            },
            "sasl.kerberos.principal.to.local.rules: RULE:[2:$1] does not look at the realm",
        ),
        (
            {"zookeeper.connect": "h:1", "java.security.auth.login.config": "/jaas"},
            "java.security.auth.login.config: the login to ZooKeeper protects nothing",
        ),
        (
            {
                "zookeeper.connect": "h:1",
                "zookeeper.auth.digest": "kafka:secret",
                "zookeeper.set.acl": "true",
            },
            "zookeeper.auth.digest: the password is sent to ZooKeeper without encryption",
        ),
        (
            {
                "zookeeper.connect": "h:1",
                "zookeeper.ssl.truststore.location": "ca.pem",
            },
            "zookeeper.ssl.client.enable: is not set",
        ),
        (
            {"delegation.token.secret.key": "a secret of more than 15 characters"},
            "delegation.token.secret.key: nobody can log in with a delegation token",
        ),
        (
            {
                "listeners": "SASL_SSL://0.0.0.0:9093",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "delegation.token.master.key": "short",
                **KEYS,
            },
            "delegation.token.secret.key: has fewer than 16 characters",
        ),
        ({"super.users": "User:admin"}, "super.users: has no effect without an authorizer"),
        (
            {"allow.everyone.if.no.acl.found": "false"},
            "allow.everyone.if.no.acl.found: has no effect without an authorizer",
        ),
        (
            {"ssl.client.auth": "required"},
            "ssl.client.auth: required does not apply to PLAINTEXT, which has no TLS",
        ),
        (
            {"listener.name.plaintext.ssl.client.auth": "required"},
            "listener.name.plaintext.ssl.client.auth: has no effect",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-512"},
            "sasl.enabled.mechanisms: has no effect: clients do not log in at PLAINTEXT",
        ),
        (
            {"listener.name.plaintext.scram-sha-256.sasl.jaas.config": "x required;"},
            "listener.name.plaintext.scram-sha-256.sasl.jaas.config: has no effect",
        ),
        (
            {
                "listeners": PUBLIC,
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:admin;User:ANONYMOUS",
            },
            "super.users: User:ANONYMOUS is everyone who connects to PLAINTEXT://0.0.0.0:9092",
        ),
        (
            {
                "listeners": "SASL_SSL://:9093",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "ssl.client.auth": "required",
            },
            "ssl.client.auth: required does not apply to SASL_SSL, whose clients log in with SASL",
        ),
        (
            {"listeners": "SSL://:9093", "ssl.client.auth": "required"},
            "ssl.truststore.location: is not set: SSL accepts client certificates of every",
        ),
        (
            {
                "listeners": "SSL://:9093",
                "ssl.client.auth": "requested",
                "ssl.truststore.location": "ca.pem",
            },
            "ssl.client.auth: requested lets clients of SSL in without a certificate",
        ),
        (
            {"listeners": "SSL://:9093", "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
            "ssl.enabled.protocols: TLSv1.1 has known weaknesses",
        ),
        (
            {"metrics.port": "9404", "metrics.host": "0.0.0.0"},
            "metrics.host: 0.0.0.0: whoever reaches metrics.port can read the metrics",
        ),
    ],
)
def test_settings_that_look_safe_and_are_not_have_one_warning_with_a_remedy(
    settings: dict[str, str], warning: str
) -> None:
    (line,) = BrokerConfig.from_properties(settings).warnings()
    assert line.startswith(warning)
    assert "; " in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"},
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        },
        {
            "listeners": "SSL://:9093",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "ssl.client.auth": "required",
            "ssl.truststore.location": "ca.pem",
        },
        {"listeners": "SASL_SSL://:9093", "sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        {"allow.everyone.if.no.acl.found": "true"},
        {"metrics.port": "9404"},
        {"metrics.host": "0.0.0.0"},
    ],
)
def test_safe_settings_have_no_warning(settings: dict[str, str]) -> None:
    assert BrokerConfig.from_properties(settings).warnings() == []


@pytest.mark.parametrize(
    "name",
    [
        "principal.builder.class",
        "listener.name.plaintext.principal.builder.class",
        "sasl.server.callback.handler.class",
        "listener.name.plaintext.plain.sasl.server.callback.handler.class",
        "ssl.engine.factory.class",
    ],
)
def test_java_classes_that_decide_about_clients_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot run com\.example\.Mine.*remove the setting"):
        BrokerConfig.from_properties({name: "com.example.Mine"})


def test_kafkas_own_principal_builder_is_accepted() -> None:
    config(
        principal_builder_class="org.apache.kafka.common.security.authenticator."
        "DefaultKafkaPrincipalBuilder"
    )


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("", True),
        ("0.0.0.0", True),
        ("::", True),
        ("10.1.2.3", True),
        ("kafka.example", True),
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("::1", False),
        ("localhost", False),
    ],
)
def test_an_address_is_public_unless_it_is_loopback(host: str, public: bool) -> None:
    assert is_public(host) is public


def test_the_posture_says_who_gets_in_where_as_whom_with_which_rights() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,CLIENTS://:9093,CERTS://:9094,MAYBE://:9095",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,CERTS:SSL,MAYBE:SSL"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": PLAIN_JAAS,
        "listener.name.certs.ssl.client.auth": "required",
        "listener.name.maybe.ssl.client.auth": "requested",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "delegation.token.secret.key": "0123456789abcdef",
    }
    broker = BrokerConfig.from_properties(settings)
    posture = describe_security(broker, broker.listeners)
    plaintext, clients, certs, maybe = posture.listeners
    assert (plaintext.is_public, plaintext.login, plaintext.principal) == (
        False,
        "none",
        "User:ANONYMOUS",
    )
    assert plaintext.rights == "as ACLs allow; super users everything"
    assert (clients.is_public, clients.encryption) == (True, "TLS")
    assert clients.login == "PLAIN (admin, ann, bob), SCRAM-SHA-512"
    assert clients.principal == "User:<name of the login>"
    assert certs.login == "client certificate"
    assert maybe.principal.endswith("or User:ANONYMOUS")
    assert posture.authorization == "ACLs; what no ACL allows is denied"
    assert posture.super_users == ["User:admin"]
    assert posture.delegation_tokens == (
        "log in as their owners at CLIENTS; valid for 24 h, renewed for up to 168 h"
    )
    assert "secret" not in str(posture)
    assert "0123456789" not in str(posture)


def test_connections_to_zookeeper_are_described() -> None:
    def zookeeper(**settings: str) -> str | None:
        broker = config(**settings)
        return describe_security(broker, broker.listeners).zookeeper

    assert zookeeper() is None
    opened = zookeeper(zookeeper_connect="h:1")
    assert opened is not None
    assert opened.startswith("no encryption; login: none; znodes open")
    closed = zookeeper(
        zookeeper_connect="h:1",
        zookeeper_auth_digest="kafka:secret",
        zookeeper_set_acl="true",
        zookeeper_ssl_client_enable="true",
    )
    assert closed == "TLS; login: digest; new znodes closed to others"


def test_without_an_authorizer_everyone_may_do_everything() -> None:
    broker = config(listeners=PUBLIC)
    (listener,) = describe_security(broker, broker.listeners).listeners
    assert (listener.is_public, listener.rights) == (True, "everything")


def test_only_a_listeners_own_client_auth_applies_to_sasl_ssl() -> None:
    """As in Kafka (KIP-684): a general ssl.client.auth is for SSL listeners."""
    settings = {
        "listeners": "SASL_SSL://:9093",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.client.auth": "required",
        **KEYS,
    }
    broker = BrokerConfig.from_properties(settings)
    assert tls_settings(broker, broker.listeners[0]).client_auth == "none"
    prefixed = {**settings, "listener.name.sasl_ssl.ssl.client.auth": "required"}
    broker = BrokerConfig.from_properties(prefixed)
    assert tls_settings(broker, broker.listeners[0]).client_auth == "required"


def test_a_kerberos_login_is_explained() -> None:
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
        'keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";'
    )
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
    }
    with_keytab = BrokerConfig.from_properties(settings)
    (listener,) = describe_security(with_keytab, with_keytab.listeners).listeners
    assert listener.login == "GSSAPI (Kerberos tickets for kafka/host@REALM; names by DEFAULT)"
    without = config(listeners="SASL_PLAINTEXT://127.0.0.1:0")
    (listener,) = describe_security(without, without.listeners).listeners
    assert listener.login == "GSSAPI (no keytab)"
