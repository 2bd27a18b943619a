"""The settings of connections between brokers: listener, TLS, SASL and timeouts."""

import ssl
from collections.abc import Mapping

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.connection_settings import inter_broker_settings
from penstock.core.errors import KafkaError
from penstock.net.client.settings import ConnectionSettings
from tests.support.broker.certificates import make_identity, simple_name

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_SASL = {
    "listeners": "PLAINTEXT://:0,IN://:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
}


def settings(properties: Mapping[str, str]) -> ConnectionSettings:
    config = BrokerConfig.from_properties(properties)
    return inter_broker_settings(
        config, config.inter_broker_listener, client_id="7", request_timeout_ms=1234
    )


def refusal(properties: Mapping[str, str]) -> str:
    with pytest.raises(KafkaError) as error:
        settings(properties)
    return str(error.value)


def test_a_plaintext_listener_needs_neither_tls_nor_a_login() -> None:
    plain = settings({"socket.connection.setup.timeout.ms": "777"})
    assert plain.tls is None
    assert plain.login is None
    assert plain.client_id == "7"
    assert plain.request_timeout_ms == 1234
    assert plain.socket_connection_setup_timeout_ms == 777
    assert plain.connections_max_idle_ms == 540_000
    assert settings({"connections.max.idle.ms": "-1"}).connections_max_idle_ms == -1


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", _PLAIN), ("SCRAM-SHA-256", _SCRAM)])
def test_a_broker_logs_in_with_the_user_of_its_own_jaas_entry(mechanism: str, module: str) -> None:
    entry = f'{module} username="broker" password="s3" user_broker="s3";'
    result = settings(
        {
            **_SASL,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"listener.name.in.{mechanism.lower()}.sasl.jaas.config": entry,
        }
    )
    assert result.login is not None
    login = result.login("host")
    assert (login.mechanism, login.user) == (mechanism, "broker")


@pytest.mark.parametrize(
    ("mechanism", "jaas", "message"),
    [
        ("DIGEST-MD5", None, "DIGEST-MD5 is not supported"),
        ("SCRAM-SHA-512", None, "SCRAM-SHA-512 is not in sasl.enabled.mechanisms of listener IN"),
        ("PLAIN", None, "listener.name.in.plain.sasl.jaas.config: is missing"),
        ("PLAIN", f'{_PLAIN} user_a="b";', "has no username"),
        ("PLAIN", f'{_PLAIN} username="b";', "has no password"),
        ("PLAIN", f'{_SCRAM} username="b" password="c";', "the login module must be"),
    ],
)
def test_a_login_that_cannot_work_names_the_setting(
    mechanism: str, jaas: str | None, message: str
) -> None:
    properties = {**_SASL, "sasl.mechanism.inter.broker.protocol": mechanism}
    if jaas is not None:
        properties["listener.name.in.plain.sasl.jaas.config"] = jaas
    assert message in refusal(properties)


_KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.mark.parametrize(
    ("jaas", "service", "message"),
    [
        (None, "kafka", "listener.name.in.gssapi.sasl.jaas.config: it is missing"),
        (f"{_PLAIN};", "kafka", "listener.name.in.gssapi.sasl.jaas.config: the login module must"),
        (
            f'{_KRB5} useKeyTab=true keyTab="/no/keytab" principal="kafka/h";',
            "kafka",
            "listener.name.in.gssapi.sasl.jaas.config: the keytab /no/keytab cannot be read",
        ),
        (
            f'{_KRB5} useKeyTab=true keyTab="/no/keytab" principal="kafka/h";',
            "",
            "listener.name.in.gssapi.sasl.kerberos.service.name: is missing",
        ),
    ],
)
def test_a_kerberos_login_that_cannot_work_names_the_setting(
    jaas: str | None, service: str, message: str
) -> None:
    properties = {
        **_SASL,
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": service,
    }
    if jaas is not None:
        properties["listener.name.in.gssapi.sasl.jaas.config"] = jaas
    assert message in refusal(properties)


def _tls(listener_prefix: str = "") -> dict[str, str]:
    authority = make_identity(simple_name("authority"))
    identity = make_identity(simple_name("broker"), authority)
    prefix = listener_prefix
    return {
        "listeners": "SSL://localhost:0",
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.key": identity.key_pem(),
        f"{prefix}ssl.keystore.certificate.chain": identity.certificate_pem,
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.certificates": authority.certificate_pem,
    }


@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_tls_uses_the_keys_of_the_listener(prefix: str) -> None:
    tls = settings(_tls(prefix)).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname
    assert len(tls.get_ca_certs()) == 1


def test_the_host_name_of_a_certificate_is_checked_unless_switched_off() -> None:
    algorithm = "ssl.endpoint.identification.algorithm"
    relaxed = settings({**_tls(), algorithm: ""}).tls
    assert relaxed is not None
    assert not relaxed.check_hostname
    assert relaxed.verify_mode is ssl.CERT_REQUIRED
    assert "set it to https" in refusal({**_tls(), algorithm: "LDAPS"})
