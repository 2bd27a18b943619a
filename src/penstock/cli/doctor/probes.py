"""The network I/O of `penstock doctor`: names, connections, TLS, identifying services."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from penstock.cli.doctor.checks import (
    Address,
    Problem,
    Service,
    explain_connection,
    explain_name,
    recognise,
)
from penstock.client.network import connection_settings
from penstock.client.settings import CommonOptions
from penstock.core.errors import KafkaError
from penstock.core.system_clock import SystemClock
from penstock.net.client.channel import Channel
from penstock.net.client.cluster import Node
from penstock.net.client.context import ConnectionContext
from penstock.net.client.node_connection import NodeConnection

_LISTEN_S: Final = 1.0
"""How long an unknown service may take to respond."""

_PROBES: Final = (b"GET / HTTP/1.0\r\n\r\n", b"srvr\n")
"""Requests that web servers and ZooKeeper respond to, one per connection."""


async def resolve(host: str, port: int) -> list[str]:
    """Returns the addresses of a host, each once."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise explain_name(host, error) from None
    return list(dict.fromkeys(str(info[4][0]) for info in addresses))


async def connect(address: Address, timeout_s: float) -> str:
    """Connects and closes the connection; returns the address that was reached."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError as error:
        raise explain_connection(address, _specific_error(error), timeout_s) from None
    reached = str(writer.get_extra_info("peername")[0])
    await _close(writer)
    return reached


def _specific_error(error: OSError) -> OSError:
    """Restores the type of an error that asyncio merged from several addresses."""
    if error.errno is None and "[Errno 111]" in str(error):
        return ConnectionRefusedError(str(error))
    return error


async def tls_session(
    address: Address, context: ssl.SSLContext, name: str | None, timeout_s: float
) -> tuple[dict[str, object], str, str]:
    """Returns certificate, TLS version and cipher of a handshake. Raises the errors of `ssl`."""
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=name
        )
    session = writer.get_extra_info("ssl_object")
    details = session.getpeercert() or {}, session.version(), session.cipher()[0]
    await _close(writer)
    return details


async def identify(address: Address) -> tuple[Service, bytes]:
    """Returns what listens on a port that does not speak Kafka, and its first bytes."""
    if await _speaks_tls(address):
        return Service.TLS, b""
    first_greeting = b""
    for probe in _PROBES:
        greeting = await _send(address, probe)
        service = recognise(greeting)
        if service in (Service.HTTP, Service.ZOOKEEPER):
            return service, greeting
        first_greeting = first_greeting or greeting
    return recognise(first_greeting), first_greeting


async def _speaks_tls(address: Address) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await tls_session(address, context, None, _LISTEN_S)
    except ssl.SSLError as error:
        # An alert is part of the TLS protocol.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


async def _send(address: Address, probe: bytes) -> bytes:
    """Returns the first bytes that the service sends; none if it is silent."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_LISTEN_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(probe)
            return await reader.read(1024)
    except OSError:
        return b""
    finally:
        if writer is not None:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def linked(
    address: Address, settings: CommonOptions, *, logs_in: bool, tls: bool
) -> AsyncIterator[Channel]:
    """Opens a client connection with known API versions. Raises KafkaError if it fails."""
    protocol = ("SASL_" if logs_in else "") + ("SSL" if tls else "PLAINTEXT")
    connections = connection_settings({**settings, "security_protocol": protocol})
    context = ConnectionContext(connections, SystemClock(), on_disconnect=_ignore)
    connection = NodeConnection(Node(-1, address.host, address.port), context)
    try:
        yield await connection.ready()
    finally:
        await connection.close()


def _ignore(node_id: int, error: KafkaError) -> None:
    """Does nothing: the error is also raised to the caller."""


async def reachable(address: Address, timeout_s: float) -> None:
    """Raises Problem if the host cannot be resolved or connected to."""
    await resolve(address.host, address.port)
    await connect(address, timeout_s)


__all__ = ["Problem", "connect", "identify", "linked", "reachable", "resolve", "tls_session"]
