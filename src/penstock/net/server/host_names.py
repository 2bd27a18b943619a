"""Resolves the host names in `max.connections.per.ip.overrides` on a thread."""

import asyncio
import socket
from collections.abc import Mapping
from ipaddress import ip_address


def overrides_by_name(overrides: Mapping[str, int]) -> dict[str, int]:
    """Returns the overrides whose host is a name, not an address."""
    return {host: most for host, most in overrides.items() if not _is_address(host)}


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def resolve_overrides(overrides: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Returns the overrides by address, and the names that cannot be resolved.

    Of several addresses one counts: as with Java's `InetAddress.getByName` it is the first IPv4
    address, if there is one.
    """
    loop = asyncio.get_running_loop()
    by_address: dict[str, int] = {}
    unknown: list[str] = []
    for host, most in overrides.items():
        try:
            addresses = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            unknown.append(host)
            continue
        addresses.sort(key=lambda address: address[0] != socket.AF_INET)
        by_address[str(addresses[0][4][0])] = most
    return by_address, unknown
