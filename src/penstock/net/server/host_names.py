"""Hosts of `max.connections.per.ip.overrides` that are named: looked up on a thread."""

import asyncio
import socket
from collections.abc import Mapping
from ipaddress import ip_address


def named(overrides: Mapping[str, int]) -> dict[str, int]:
    """Those whose host is no address."""
    return {host: most for host, most in overrides.items() if not _is_address(host)}


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def look_up(overrides: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """The same by address, and the names that nobody knows. Of several addresses one counts.

    As with Java's `InetAddress.getByName` it is the first of IPv4, if there is one.
    """
    loop = asyncio.get_running_loop()
    found: dict[str, int] = {}
    unknown: list[str] = []
    for host, most in overrides.items():
        try:
            answers = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            unknown.append(host)
            continue
        answers.sort(key=lambda answer: answer[0] != socket.AF_INET)
        found[str(answers[0][4][0])] = most
    return found, unknown
