"""TLS to ZooKeeper, and nodes that only brokers may change (`zookeeper.set.acl`)."""

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
from penstock.cluster.zookeeper.config import NO_LOGIN
from penstock.cluster.zookeeper.store import ZooKeeperStore
from penstock.controller.metadata import Put
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.cluster.metadata_changes import config, partition, topic
from tests.support.cluster.zookeeper_server import ZooKeeperServer, free_ports

PASSWORD = "secret"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with key stores of ZooKeeper and of a broker, and the authority of both."""
    directory = tmp_path_factory.mktemp("certificates")
    authority = make_identity(simple_name("authority"))
    (directory / "authority.pem").write_text(authority.certificate_pem)
    for name in ("localhost", "broker"):
        identity = make_identity(simple_name(name), authority)
        (directory / f"{name}.p12").write_bytes(identity.pkcs12(PASSWORD))
        pem = identity.key_pem(PASSWORD) + identity.certificate_pem
        (directory / f"{name}.pem").write_text(pem)
    other = make_identity(simple_name("other authority"))
    (directory / "other.pem").write_text(other.certificate_pem)
    stranger = make_identity(simple_name("stranger"), other)
    (directory / "stranger.pem").write_text(stranger.key_pem(PASSWORD) + stranger.certificate_pem)
    return directory


class SecureServer:
    def __init__(self, certificates: Path, directory: Path) -> None:
        (self.secure_port,) = free_ports(1)
        provider = "org.apache.zookeeper.server.auth.X509AuthenticationProvider"
        self.server = ZooKeeperServer(
            directory,
            {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": str(self.secure_port),
                "secureClientPortAddress": "127.0.0.1",
                "authProvider.x509": provider,
                "ssl.keyStore.location": str(certificates / "localhost.p12"),
                "ssl.keyStore.password": PASSWORD,
                "ssl.trustStore.location": str(certificates / "authority.pem"),
            },
        )
        self.certificates = certificates

    def settings(self, **changes: str | None) -> dict[str, str]:
        settings: dict[str, str | None] = {
            "zookeeper.connect": f"localhost:{self.secure_port}/k",
            "zookeeper.session.timeout.ms": "4000",
            "zookeeper.connection.timeout.ms": "10000",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": str(self.certificates / "broker.p12"),
            "zookeeper.ssl.keystore.password": PASSWORD,
            "zookeeper.ssl.truststore.location": str(self.certificates / "authority.pem"),
        }
        for name, value in changes.items():
            settings[f"zookeeper.{name.replace('_', '.')}"] = value
        return {name: value for name, value in settings.items() if value is not None}


@pytest.fixture(scope="module")
def secure_server(
    certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    secure = SecureServer(certificates, tmp_path_factory.mktemp("zookeeper"))
    with secure.server:
        yield secure


def open_store(settings: dict[str, str]) -> ZooKeeperStore:
    parsed = zookeeper_config(BrokerConfig.from_properties(settings))
    assert parsed is not None
    return ZooKeeperStore(parsed)


def test_only_brokers_may_change_the_nodes_and_read_credentials(
    secure_server: SecureServer,
) -> None:
    store = open_store(secure_server.settings(set_acl="true"))
    stranger: Any = KazooClient(f"{secure_server.server.address}/k")
    try:
        store.commit([Put(topic("t")), Put(partition("t")), Put(config(("users", "ann"), a="1"))])
        store.commit([Put(partition("t", epoch=1))])
        stranger.start()
        assert stranger.get("/brokers/topics/t/partitions/0/state")[1].version == 1
        for path in ("/brokers/topics/t/partitions/0/state", "/config/users/ann", "/controller"):
            with pytest.raises(NoAuthError):
                stranger.create(f"{path}/x", makepath=True)
        with pytest.raises(NoAuthError):
            stranger.get("/config/users/ann")
        stranger.create("/consumers/old")
    finally:
        store.close()
        stranger.stop()
        stranger.close()


def test_a_certificate_of_another_host_is_refused(secure_server: SecureServer) -> None:
    settings = secure_server.settings(
        connect=f"127.0.0.1:{secure_server.secure_port}", connection_timeout_ms="2000"
    )
    with pytest.raises(StoreUnavailableError, match="certificate verify failed"):
        open_store(settings)
    any_host = settings | {
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.connection.timeout.ms": "10000",
    }
    open_store(any_host).close()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ssl_truststore_location": "other.pem"}, "set zookeeper.ssl.truststore.location to"),
        ({"ssl_keystore_location": None}, "set zookeeper.ssl.keystore.location to"),
        ({"ssl_keystore_location": "stranger.pem"}, "set zookeeper.ssl.keystore.location to"),
        ({"ssl_client_enable": "false"}, "set zookeeper.ssl.client.enable=true"),
        ({"connect": "plain port"}, "zookeeper.ssl.client.enable=false"),
    ],
)
def test_a_connection_that_cannot_be_trusted_is_refused(
    secure_server: SecureServer, changes: dict[str, str | None], expected: str
) -> None:
    settings = secure_server.settings(connection_timeout_ms="1000", **changes)
    if "connect" in changes:
        settings["zookeeper.connect"] = f"localhost:{secure_server.server.port}"
    for name, value in settings.items():
        if value in ("other.pem", "stranger.pem"):
            settings[name] = str(secure_server.certificates / value)
    with pytest.raises(StoreUnavailableError) as caught:
        open_store(settings)
    assert expected in str(caught.value)


def test_a_key_in_pem_has_the_password_of_the_key_store(secure_server: SecureServer) -> None:
    path = secure_server.certificates / "broker.pem"
    settings = secure_server.settings(ssl_keystore_location=str(path), connection_timeout_ms="9000")
    open_store(settings).close()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ssl_crl_enable": "true"}, "zookeeper.ssl.crl.enable"),
        ({"ssl_ocsp_enable": "true"}, "zookeeper.ssl.ocsp.enable"),
        ({"ssl_endpoint_identification_algorithm": "x"}, "identification.algorithm"),
        ({"ssl_truststore_location": "/no/such/file.pem"}, "zookeeper.ssl.truststore.location"),
        ({"ssl_keystore_password": "wrong"}, "zookeeper.ssl.keystore"),
        ({"ssl_protocol": "TLSv9"}, "TLSv9"),
        ({"set_acl": "true", "ssl_keystore_location": None}, "zookeeper.set.acl"),
        ({"set_acl": "true", "ssl_client_enable": "false"}, "zookeeper.set.acl"),
        ({"connect": "host:port"}, "zookeeper.connect"),
    ],
)
def test_an_error_names_the_setting(
    certificates: Path, tmp_path: Path, changes: dict[str, str | None], expected: str
) -> None:
    settings = SecureServer(certificates, tmp_path).settings(**changes)
    with pytest.raises(ConfigError) as caught:
        zookeeper_config(BrokerConfig.from_properties(settings))
    assert expected in str(caught.value)


def test_without_zookeeper_connect_there_is_no_configuration() -> None:
    assert zookeeper_config(BrokerConfig.from_properties({})) is None


def test_the_connection_timeout_is_that_of_the_session_by_default() -> None:
    settings = {"zookeeper.connect": "h/k", "zookeeper.session.timeout.ms": "6000"}
    parsed = zookeeper_config(BrokerConfig.from_properties(settings))
    assert parsed is not None
    assert parsed == ("h:2181", "/k", 6000, 6000, False, None, NO_LOGIN)
