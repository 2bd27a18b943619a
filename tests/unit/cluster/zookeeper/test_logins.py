"""Logins to ZooKeeper with SASL and with its scheme digest, and nodes closed to others (X2, X3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.settings import ConfigError
from penstock.broker.config.zookeeper_config import zookeeper_config
from penstock.cluster.store import StoreUnavailableError
from penstock.cluster.zookeeper.acl_changes import change_acls
from penstock.cluster.zookeeper.store import ZooKeeperStore
from penstock.controller.metadata import Put
from penstock.core.errors import KafkaError
from tests.support.cluster.metadata_changes import config, partition, topic
from tests.support.cluster.zookeeper_server import ZooKeeperServer, new_chroot

USERS = {"kafka": "secret", "ann": 'pä"ss,wörd=', "bob": "пароль"}
DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
SENSITIVE_PATHS = ("/config/users", "/config/users/ann", "/config/brokers")


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    directory = tmp_path_factory.mktemp("zookeeper")
    users = " ".join(f"user_{name}={quoted(word)}" for name, word in USERS.items())
    jaas = directory / "server.jaas"
    jaas.write_text(f"Server {{ {DIGEST_LOGIN} required {users}; }};")
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    with ZooKeeperServer(
        directory,
        {"authProvider.sasl": provider},
        java_options=[
            f"-Djava.security.auth.login.config={jaas}",
            "-Dfile.encoding=UTF-8",
            "-Dzookeeper.allowSaslFailedClients=false",
        ],
    ) as server:
        yield server


@pytest.fixture
def chroot() -> str:
    # Not below /tests: the first broker that makes it closes it to those of other tests.
    return new_chroot().removeprefix("/tests")


class Logins:
    """Settings of brokers that log in to the server in different ways."""

    def __init__(self, server: ZooKeeperServer, chroot: str, directory: Path) -> None:
        self._directory = directory
        self._settings = {
            "zookeeper.connect": f"{server.address}{chroot}",
            "zookeeper.connection.timeout.ms": "10000",
        }

    def none(self) -> dict[str, str]:
        return self._settings

    def sasl(self, name: str = "kafka", password: str | None = None) -> dict[str, str]:
        jaas = self._directory / "client.jaas"
        options = f"username={quoted(name)} password={quoted(password or USERS[name])}"
        jaas.write_text(f"Client {{ {DIGEST_LOGIN} required {options}; }};")
        return self._settings | {"java.security.auth.login.config": str(jaas)}

    def digest(self, credentials: str) -> dict[str, str]:
        return self._settings | {"zookeeper.auth.digest": credentials}


@pytest.fixture
def logins(server: ZooKeeperServer, chroot: str, tmp_path: Path) -> Logins:
    return Logins(server, chroot, tmp_path)


@pytest.fixture
def stranger(server: ZooKeeperServer, chroot: str) -> Iterator[Any]:
    client: Any = KazooClient(server.address)
    client.start()
    client.chroot = chroot  # later: it does not exist yet
    yield client
    client.stop()
    client.close()


def open_store(settings: dict[str, str], *, is_secure: bool = True) -> ZooKeeperStore:
    settings = settings | {"zookeeper.set.acl": str(is_secure).lower()}
    parsed = zookeeper_config(BrokerConfig.from_properties(settings))
    assert parsed is not None
    return ZooKeeperStore(parsed)


def fill(settings: dict[str, str], *, is_secure: bool = True) -> None:
    store = open_store(settings, is_secure=is_secure)
    try:
        store.commit([Put(topic("t")), Put(partition("t")), Put(config(("users", "ann"), a="1"))])
        store.commit([Put(partition("t", epoch=1))])
    finally:
        store.close()


def check_is_closed(stranger: Any, scheme: str) -> None:
    """Checks that others read only what has no credentials, and change nothing."""
    assert stranger.get("/brokers/topics/t/partitions/0/state")[1].version == 1
    for path in ("/brokers", "/brokers/ids", "/brokers/topics/t", "/config/users/ann"):
        with pytest.raises(NoAuthError):
            stranger.create(f"{path}/x")
        with pytest.raises(NoAuthError):
            stranger.set(path, b"")
    for path in SENSITIVE_PATHS:
        with pytest.raises(NoAuthError):
            stranger.get(path)
    acls, _ = stranger.get_acls("/brokers/topics/t")
    assert {(acl.perms, acl.id.scheme) for acl in acls} == {(31, scheme), (1, "world")}
    stranger.create("/consumers/old")


@pytest.mark.parametrize("name", USERS)
def test_a_sasl_login_closes_the_nodes_to_others(logins: Logins, stranger: Any, name: str) -> None:
    fill(logins.sasl(name))
    check_is_closed(stranger, "sasl")
    open_store(logins.sasl(name)).close()


def test_a_digest_login_closes_the_nodes_to_others(logins: Logins, stranger: Any) -> None:
    fill(logins.digest("kafka:pass:word"))
    check_is_closed(stranger, "digest")
    open_store(logins.digest("kafka:pass:word")).close()


def test_a_wrong_password_is_refused_at_once(logins: Logins, stranger: Any) -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        open_store(logins.sasl("kafka", "wrong") | {"zookeeper.connection.timeout.ms": "60000"})
    assert "the SASL login of kafka failed (ZooKeeper refuses the user name or password)" in str(
        caught.value
    )
    assert "wrong" not in str(caught.value)
    assert not stranger.exists("/")


@pytest.mark.parametrize("login", ["none", "other digest", "other user"])
def test_closed_nodes_are_refused_to_other_brokers(
    logins: Logins, stranger: Any, login: str
) -> None:
    fill(logins.sasl())
    before = stranger.get_children("/brokers", include_data=True)
    settings = {
        "none": logins.none(),
        "other digest": logins.digest("kafka:secret"),
        "other user": logins.sasl("bob"),
    }[login]
    with pytest.raises(KafkaError) as caught:
        open_store(settings, is_secure=False)
    assert "have ACLs" in str(caught.value)
    assert "log in as the other brokers do" in str(caught.value)
    assert stranger.get_children("/brokers", include_data=True) == before


def test_an_existing_cluster_is_closed_and_opened(
    server: ZooKeeperServer, logins: Logins, stranger: Any
) -> None:
    fill(logins.none(), is_secure=False)
    stranger.set("/brokers", b"")
    stranger.create("/config/users/ann/clients")
    secure = logins.sasl() | {"zookeeper.set.acl": "true"}
    parsed = zookeeper_config(BrokerConfig.from_properties(secure))
    assert parsed is not None
    assert change_acls(parsed) > 20
    check_is_closed(stranger, "sasl")
    with pytest.raises(NoAuthError):
        stranger.get("/config/users/ann/clients")
    assert change_acls(parsed._replace(is_secure=False)) > 20
    stranger.set("/config/users/ann", b"")
    stranger.set("/brokers", b"")
    fill_again = open_store(logins.none(), is_secure=False)
    fill_again.commit([Put(config(("users", "bob"), a="1"))])
    fill_again.close()


def test_a_connection_logs_in_again_after_it_was_lost(logins: Logins, stranger: Any) -> None:
    store = open_store(logins.sasl())
    try:
        store.commit([Put(config(("users", "ann"), a="1"))])
        store.session.client._connection._socket.shutdown(2)
        store.commit([Put(config(("users", "ann"), a="2"))])
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/ann")
    finally:
        store.close()


def test_a_server_without_sasl_is_reported(logins: Logins, tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "plain") as plain:
        settings = logins.sasl() | {"zookeeper.connect": plain.address}
        with pytest.raises(StoreUnavailableError, match="the SASL login of kafka failed"):
            open_store(settings | {"zookeeper.connection.timeout.ms": "60000"})


@pytest.mark.parametrize(
    ("jaas", "expected"),
    [
        (None, "cannot be read"),
        ("Client {", "does not end"),
        ("Client { };", "is empty"),
        ("Client { a required x=1; } Client", "does not end with '};'"),
        ("a required x=1;", "the name of a section"),
        (f'Client {{ {DIGEST_LOGIN} required username="kafka"; }};', "not a login with a password"),
        ("Client { com.sun.security.auth.module.Krb5LoginModule required; };", "Kerberos"),
        ('KafkaServer { a.B required x="1"; };', "ACLs need a login to ZooKeeper"),
    ],
)
def test_an_unusable_jaas_file_is_refused(tmp_path: Path, jaas: str | None, expected: str) -> None:
    path = tmp_path / "client.jaas"
    if jaas is not None:
        path.write_text(jaas)
    settings = {
        "zookeeper.connect": "h:1",
        "zookeeper.set.acl": "true",
        "java.security.auth.login.config": str(path),
    }
    with pytest.raises(ConfigError) as caught:
        zookeeper_config(BrokerConfig.from_properties(settings))
    assert expected in str(caught.value)


def test_digest_credentials_have_a_user_and_a_password() -> None:
    settings = {"zookeeper.connect": "h:1", "zookeeper.auth.digest": "kafka"}
    with pytest.raises(ConfigError, match="not user:password"):
        zookeeper_config(BrokerConfig.from_properties(settings))


def test_passwords_are_not_shown(logins: Logins) -> None:
    settings = logins.sasl() | {"zookeeper.auth.digest": "kafka:hidden"}
    parsed = zookeeper_config(BrokerConfig.from_properties(settings))
    assert "secret" not in repr(parsed)
    assert "hidden" not in repr(parsed)
