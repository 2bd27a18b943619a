"""What `penstock doctor` tries on the network: names, connections, TLS, who is there."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from penstock.cli.doctor.steps import (
    Address,
    Kind,
    Trouble,
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
"""How long a stranger may take to say something."""

_QUESTIONS: Final = (b"GET / HTTP/1.0\r\n\r\n", b"srvr\n")
"""What web servers and ZooKeeper answer, one to a connection."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, each once."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise explain_name(host, error) from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def connect(address: Address, timeout_s: float) -> str:
    """Make a connection and close it again; which of the host's addresses it went to."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError as error:
        raise explain_connection(address, _telling(error), timeout_s) from None
    reached = str(writer.get_extra_info("peername")[0])
    await _close(writer)
    return reached


def _telling(error: OSError) -> OSError:
    """Of a host with several addresses, asyncio joins the errors to one without a number."""
    if error.errno is None and "[Errno 111]" in str(error):
        return ConnectionRefusedError(str(error))
    return error


async def tls_session(
    address: Address, context: ssl.SSLContext, name: str | None, timeout_s: float
) -> tuple[dict[str, object], str, str]:
    """Shake hands; the certificate, the version and the cipher. Raises what `ssl` raises."""
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=name
        )
    session = writer.get_extra_info("ssl_object")
    found = session.getpeercert() or {}, session.version(), session.cipher()[0]
    await _close(writer)
    return found


async def identify(address: Address) -> tuple[Kind, bytes]:
    """What is behind a port that does not speak Kafka, and what it said."""
    if await _speaks_tls(address):
        return Kind.TLS, b""
    heard = b""
    for question in _QUESTIONS:
        said = await _ask(address, question)
        kind = recognise(said)
        if kind in (Kind.HTTP, Kind.ZOOKEEPER):
            return kind, said
        heard = heard or said
    return recognise(heard), heard


async def _speaks_tls(address: Address) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await tls_session(address, context, None, _LISTEN_S)
    except ssl.SSLError as error:
        # It refuses us, but in the language of TLS.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


async def _ask(address: Address, question: bytes) -> bytes:
    """What it says to this, or by itself; nothing where it is silent."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_LISTEN_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(question)
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
    """A connection as clients have it, whose versions are known. KafkaError where there is none."""
    protocol = ("SASL_" if logs_in else "") + ("SSL" if tls else "PLAINTEXT")
    connections = connection_settings({**settings, "security_protocol": protocol})
    context = ConnectionContext(connections, SystemClock(), on_disconnect=_ignore)
    connection = NodeConnection(Node(-1, address.host, address.port), context)
    try:
        yield await connection.ready()
    finally:
        await connection.close()


def _ignore(node_id: int, error: KafkaError) -> None:
    """The caller hears of it as well."""


async def reachable(address: Address, timeout_s: float) -> None:
    """Trouble where a name is not known or no connection is made."""
    await resolve(address.host, address.port)
    await connect(address, timeout_s)


__all__ = ["Trouble", "connect", "identify", "linked", "reachable", "resolve", "tls_session"]
