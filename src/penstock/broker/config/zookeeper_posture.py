"""Connections to ZooKeeper in the security posture of a configuration (X3)."""

from collections.abc import Iterable
from typing import Final

from penstock.broker.config.security_warning import SecurityWarning
from penstock.broker.config.values import BrokerValues

_LOGINS: Final = {
    "java.security.auth.login.config": "SASL, if the JAAS file has a section Client",
    "zookeeper.auth.digest": "digest",
    "zookeeper.ssl.keystore.location": "a client certificate",
}


def describe_zookeeper(values: BrokerValues) -> str | None:
    """Returns how brokers log in, and who may change znodes; None without ZooKeeper."""
    if not values.text("zookeeper.connect"):
        return None
    logins = [login for name, login in _LOGINS.items() if values.text(name)]
    encryption = "TLS" if values.bool("zookeeper.ssl.client.enable") else "no encryption"
    znodes = (
        "new znodes closed to others"
        if values.bool("zookeeper.set.acl")
        else "znodes open: whoever reaches ZooKeeper controls the cluster"
    )
    return f"{encryption}; login: {', '.join(logins) or 'none'}; {znodes}"


def zookeeper_warnings(values: BrokerValues) -> Iterable[SecurityWarning]:
    """Yields settings of connections to ZooKeeper that look safe and are not."""
    if not values.text("zookeeper.connect"):
        return
    login = next((name for name in _LOGINS if values.text(name)), None)
    if login is not None and not values.bool("zookeeper.set.acl"):
        yield SecurityWarning(
            login,
            "the login to ZooKeeper protects nothing: znodes stay open to everybody",
            "set zookeeper.set.acl=true, and run penstock cluster znode-acls --to secure",
        )
    if values.text("zookeeper.auth.digest") and not values.bool("zookeeper.ssl.client.enable"):
        yield SecurityWarning(
            "zookeeper.auth.digest",
            "the password is sent to ZooKeeper without encryption",
            "set zookeeper.ssl.client.enable=true, or use SASL",
        )
    if not values.bool("zookeeper.ssl.client.enable") and any(
        name.startswith("zookeeper.ssl.") and text for name, text in values.texts()
    ):
        yield SecurityWarning(
            "zookeeper.ssl.client.enable",
            "is not set: the other zookeeper.ssl settings have no effect, and connections to "
            "ZooKeeper have no TLS",
            "set zookeeper.ssl.client.enable=true",
        )
