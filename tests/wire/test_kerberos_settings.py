"""GSSAPI settings that cannot work: one line says what to do when a process starts (X2)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Admin
from penstock.client.errors import ConfigError
from penstock.core.errors import KafkaError
from tests.support.broker.in_process import running_broker
from tests.support.kerberos.kdc import (
    BROKER,
    Realm,
    broker_settings,
    krb5_login_module,
    realm_of_this_process,
)

JAAS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    with realm_of_this_process() as running:
        yield running


def start_error(directory: Path, settings: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as caught, running_broker(directory, settings):
        pass
    message = caught.value.message
    assert "\n" not in message
    return message


def test_a_broker_needs_its_keytab(realm: Realm, tmp_path: Path) -> None:
    settings = broker_settings(realm)

    def error(keytab: Path, principal: str) -> str:
        return start_error(tmp_path, settings | {JAAS: krb5_login_module(keytab, principal)})

    missing = tmp_path / "missing.keytab"
    assert f"the keytab {missing} cannot be read (No such file or directory)" in error(
        missing, BROKER
    )
    assert "cannot be read (Is a directory)" in error(tmp_path, BROKER)
    (tmp_path / "garbage").write_text("garbage")
    assert "has no keys of kafka/localhost" in error(tmp_path / "garbage", BROKER)
    assert "compare principal with klist -k" in error(realm.keytab(BROKER), "kafka/other")


def test_a_broker_needs_a_login_and_a_service_name(realm: Realm, tmp_path: Path) -> None:
    settings = broker_settings(realm)
    jaas_config = settings.pop(JAAS)
    assert "sasl.jaas.config: it is missing, and names the keytab" in start_error(
        tmp_path, settings
    )
    cache = "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"
    assert "a broker needs a keytab" in start_error(tmp_path, settings | {JAAS: cache})
    del settings["sasl.kerberos.service.name"]
    message = start_error(tmp_path, settings | {JAAS: jaas_config})
    assert message.startswith("sasl.kerberos.service.name: is missing")
    named = jaas_config.replace(" required", " required serviceName=kafka")
    with running_broker(tmp_path, settings | {JAAS: named}):
        pass
    rules = {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1"}
    assert "neither DEFAULT nor RULE" in start_error(tmp_path, settings | {JAAS: named} | rules)


def test_any_principal_of_a_keytab(realm: Realm, tmp_path: Path) -> None:
    settings = broker_settings(realm) | {JAAS: krb5_login_module(realm.keytab(BROKER), "*")}
    with running_broker(tmp_path, settings) as broker:
        assert broker.addresses


def test_without_the_library_one_line_says_what_to_install(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    remedy = 'run pip install "penstock[kerberos]"'
    assert remedy in start_error(tmp_path, broker_settings(realm))
    with pytest.raises(ConfigError) as caught:
        Admin(bootstrap_servers="localhost:1", security_protocol="SASL_PLAINTEXT")
    assert remedy in caught.value.message
    assert "\n" not in caught.value.message
