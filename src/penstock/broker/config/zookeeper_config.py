"""The `zookeeper.*` settings as the configuration of the store in ZooKeeper."""

import re
import ssl
from typing import Final

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.settings import ConfigError
from penstock.cluster.zookeeper.config import (
    NO_LOGIN,
    ZooKeeperConfig,
    ZooKeeperLogin,
    parse_connect,
)
from penstock.core.errors import KafkaError
from penstock.net.jaas_file import read_jaas_file
from penstock.net.tls.settings import TlsSettings, load_key, load_trusted, new_client_context
from penstock.security.jaas import ZOOKEEPER_LOGIN_MODULE
from penstock.security.jaas_file import SETTING

_SECTION: Final = "Client"
"""The section of the JAAS file for connections to ZooKeeper."""
_STORE_TYPES: Final = {
    "jks": "JKS",
    "p12": "PKCS12",
    "pfx": "PKCS12",
    "pkcs12": "PKCS12",
    "pem": "PEM",
}
"""By the extension of the file, as ZooKeeper's own client chooses them."""


def zookeeper_config(config: BrokerConfig) -> ZooKeeperConfig | None:
    """Returns None if `zookeeper.connect` is not set. Raises ConfigError that names a setting."""
    connect = config.text("zookeeper.connect")
    if not connect:
        return None
    try:
        hosts, chroot = parse_connect(connect)
    except ValueError as error:
        raise ConfigError(
            str(error),
            "zookeeper.connect",
            remedy="use host1:2181,host2:2181/path, of which /path is optional",
        ) from None
    is_secure = config.bool("zookeeper.set.acl")
    login = _login(config)
    if is_secure and not (zookeeper_shows_certificate(config) or login != NO_LOGIN):
        raise ConfigError(
            "ACLs need a login to ZooKeeper",
            "zookeeper.set.acl",
            remedy="name a file with a section Client in java.security.auth.login.config, or set "
            "zookeeper.auth.digest, or zookeeper.ssl.client.enable and "
            "zookeeper.ssl.keystore.location; or set it to false",
        )
    session_timeout_ms = config.int("zookeeper.session.timeout.ms")
    connection_timeout = config.text("zookeeper.connection.timeout.ms")
    return ZooKeeperConfig(
        hosts=hosts,
        chroot=chroot,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=int(connection_timeout or session_timeout_ms),
        is_secure=is_secure,
        tls=_tls(config) if config.bool("zookeeper.ssl.client.enable") else None,
        login=login,
    )


def zookeeper_shows_certificate(config: BrokerConfig) -> bool:
    """Whether connections to ZooKeeper use TLS with a client certificate."""
    has_key = config.text("zookeeper.ssl.keystore.location") is not None
    return config.bool("zookeeper.ssl.client.enable") and has_key


def _login(config: BrokerConfig) -> ZooKeeperLogin:
    digest = config.text("zookeeper.auth.digest")
    if digest is not None and not all(digest.partition(":")):
        raise ConfigError("is not user:password", "zookeeper.auth.digest")
    return ZooKeeperLogin(_sasl_login(config), digest)


def _sasl_login(config: BrokerConfig) -> tuple[str, str] | None:
    """Returns user name and password of the section `Client`; None if there is none."""
    try:
        modules = read_jaas_file(config.text(SETTING)).get(_SECTION)
    except KafkaError as error:
        raise ConfigError(error.message) from error
    if modules is None:
        return None
    username, password = modules[0].options.get("username"), modules[0].options.get("password")
    if len(modules) > 1 or modules[0].name != ZOOKEEPER_LOGIN_MODULE or not (username and password):
        raise ConfigError(
            f"the section {_SECTION} of the JAAS file is not a login with a password",
            SETTING,
            remedy=f'write {_SECTION} {{ {ZOOKEEPER_LOGIN_MODULE} required username="…" '
            'password="…"; };; Kerberos to ZooKeeper is not supported',
        )
    return username, password


def _tls(config: BrokerConfig) -> ssl.SSLContext:
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config.bool(name):
            raise ConfigError(
                "checks of revocation are not supported", name, remedy="set it to false"
            )
    algorithm = config.str("zookeeper.ssl.endpoint.identification.algorithm").strip().lower()
    if algorithm not in ("", "https"):
        raise ConfigError(
            f"{algorithm!r} is not supported",
            "zookeeper.ssl.endpoint.identification.algorithm",
            remedy="set it to https, or to nothing to accept any host name",
        )
    key_password = config.text("zookeeper.ssl.keystore.password")
    key_is_pem = _store_type(config, "keystore") == "PEM"
    trust_is_pem = _store_type(config, "truststore") == "PEM"
    settings = TlsSettings(
        keystore_type=_store_type(config, "keystore"),
        keystore_location=config.text("zookeeper.ssl.keystore.location"),
        keystore_password=None if key_is_pem else key_password,
        # As in ZooKeeper's own client, which has no setting for the key alone.
        key_password=key_password if key_is_pem else None,
        truststore_type=_store_type(config, "truststore"),
        truststore_location=config.text("zookeeper.ssl.truststore.location"),
        truststore_password=None
        if trust_is_pem
        else config.text("zookeeper.ssl.truststore.password"),
        enabled_protocols=_names(config, "zookeeper.ssl.enabled.protocols")
        or (config.str("zookeeper.ssl.protocol"),),
        cipher_suites=_names(config, "zookeeper.ssl.cipher.suites"),
    )
    try:
        context = new_client_context(settings, check_hostname=bool(algorithm))
        load_trusted(context, settings)
        load_key(context, settings)
    except KafkaError as error:
        cause = re.sub(r"(?<![\w.])ssl\.", "zookeeper.ssl.", error.message)
        raise ConfigError(cause) from error
    return context


def _store_type(config: BrokerConfig, kind: str) -> str:
    location = config.text(f"zookeeper.ssl.{kind}.location") or ""
    extension = location.rpartition(".")[2].lower()
    return config.text(f"zookeeper.ssl.{kind}.type") or _STORE_TYPES.get(extension, "JKS")


def _names(config: BrokerConfig, name: str) -> tuple[str, ...]:
    return tuple(filter(None, (text.strip() for text in (config.text(name) or "").split(","))))
