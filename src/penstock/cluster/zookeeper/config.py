"""The settings of the ZooKeeper store, and the syntax of `zookeeper.connect`."""

import re
import ssl
from typing import Final, NamedTuple


class ZooKeeperLogin(NamedTuple):
    """The logins after connecting; the repr has no passwords."""

    sasl: tuple[str, str] | None = None
    """User name and password of SASL DIGEST-MD5."""
    digest: str | None = None
    """`user:password` of ZooKeeper's own scheme `digest`."""

    def __repr__(self) -> str:
        schemes = [name for name, value in self._asdict().items() if value is not None]
        return f"ZooKeeperLogin({', '.join(schemes)})"


NO_LOGIN: Final = ZooKeeperLogin()


class ZooKeeperConfig(NamedTuple):
    """`zookeeper.connect` and the settings beside it."""

    hosts: str
    """`host:port` of each server, separated by commas."""
    chroot: str = ""
    """The node that the cluster's tree is in; empty for the root."""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    is_secure: bool = False
    """`zookeeper.set.acl`: only brokers may change nodes."""
    tls: ssl.SSLContext | None = None
    login: ZooKeeperLogin = NO_LOGIN


def parse_connect(text: str) -> tuple[str, str]:
    """Returns hosts and chroot of `zookeeper.connect`. Raises ValueError if it is not valid."""
    hosts, slash, rest = text.replace(" ", "").partition("/")
    chroot = f"/{rest}".rstrip("/") if slash else ""
    if "//" in chroot or "/./" in f"{chroot}/" or "/../" in f"{chroot}/":
        raise ValueError(f"{chroot} is not a path")
    names = []
    for host in hosts.split(","):
        match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?", host)
        if match is None or not 0 < int(match[2] or 2181) < 65536:
            raise ValueError(f"{host!r} is not host:port")
        names.append(f"{match[1]}:{match[2] or 2181}")
    return ",".join(names), chroot
