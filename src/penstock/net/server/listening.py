"""Opens listening sockets, with errors that name the setting to change."""

import asyncio
import errno
import socket

from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.server.limits import Limits


async def listen(
    host: str, port: int, name: str, limits: Limits, setting: str = "listeners"
) -> socket.socket:
    """Returns a socket that listens on an address; an empty host means all addresses.

    Raises KafkaError, which names what is to be bound and the setting, if that is not possible.
    """
    where = f"{name} on {host or 'all addresses'}:{port}"
    loop = asyncio.get_running_loop()
    try:
        if host:
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, _, _, _, address = addresses[0]
        elif socket.has_dualstack_ipv6():
            family, address = socket.AF_INET6, ("::", port)
        else:
            family, address = socket.AF_INET, ("0.0.0.0", port)
    except socket.gaierror as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{where}: the host cannot be resolved ({error.strerror})",
            remedy=f"change it in `{setting}`",
        ) from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        if limits.receive_buffer >= 0:  # accepted sockets inherit it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer)
        sock.bind(address)
        sock.listen(limits.listen_backlog)
    except OSError as error:
        sock.close()
        advice = _advice(error, setting)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{where}: {advice}") from None
    return sock


def _advice(error: OSError, setting: str) -> str:
    is_advertised = setting == "listeners"
    if error.errno == errno.EADDRINUSE:
        return (
            "the address is already in use: stop the program that uses it, or choose another port "
            f"in `{setting}`" + (" (and in `advertised.listeners`)" if is_advertised else "")
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine does not have that address: name one that it has in `{setting}`" + (
            ", and what clients use in `advertised.listeners`" if is_advertised else ""
        )
    if error.errno == errno.EACCES:
        return f"ports below 1024 are for root: choose a higher one in `{setting}`"
    return f"{error.strerror}: check `{setting}`"
