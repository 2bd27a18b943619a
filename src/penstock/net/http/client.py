"""Blocking HTTP requests to identity providers: bounded in time and size, without redirects.

For threads only: each call may take as long as its timeouts.
"""

import http.client
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_RESPONSE_BYTES: Final = 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024


class HttpClientError(Exception):
    """No response was received, or it is not acceptable; the message says why."""


class HttpTimeouts(NamedTuple):
    connect_ms: int = 10_000
    read_ms: int = 10_000
    """For the whole response."""


DEFAULT_TIMEOUTS: Final = HttpTimeouts()


class HttpReply(NamedTuple):
    status: int
    body: bytes


def send_request(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeouts: HttpTimeouts = DEFAULT_TIMEOUTS,
) -> HttpReply:
    """Sends a GET request, or POST if there is a body. Raises HttpClientError.

    `tls` is the context for https; by default, the system's certificates are trusted.
    """
    parts = urllib.parse.urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise HttpClientError(f"{url} is not a URL ({error})") from None
    if parts.scheme not in ("http", "https") or not host:
        raise HttpClientError(f"{url} is not a URL with http or https")
    connect_s = timeouts.connect_ms / 1000
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=connect_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=connect_s)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.connect()
        connection.sock.settimeout(timeouts.read_ms / 1000)
        method = "GET" if body is None else "POST"
        connection.request(method, target, body, {"Accept": "application/json", **(headers or {})})
        return _read(connection, url, time.monotonic() + timeouts.read_ms / 1000)
    except (OSError, http.client.HTTPException) as error:
        reason = "it did not respond in time" if isinstance(error, TimeoutError) else str(error)
        raise HttpClientError(f"{url}: {reason or type(error).__name__}") from None
    finally:
        connection.close()


def _read(connection: http.client.HTTPConnection, url: str, deadline: float) -> HttpReply:
    response = connection.getresponse()
    if 300 <= response.status < 400:
        location = response.getheader("Location", "another address")
        raise HttpClientError(f"{url} redirects to {location}, which is not followed: use that URL")
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise HttpClientError(f"{url}: the response has more than {MAX_RESPONSE_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return HttpReply(response.status, bytes(body))


def read_file_url(url: str) -> bytes:
    """Returns the content of a `file://` URL. Raises HttpClientError."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_RESPONSE_BYTES + 1)
    except OSError as error:
        raise HttpClientError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_RESPONSE_BYTES:
        raise HttpClientError(f"{path} has more than {MAX_RESPONSE_BYTES} bytes")
    return data


def issuer_tls(
    options: Mapping[str, str],
) -> ssl.SSLContext | None:
    """Returns the context of the `ssl.…` options of a login module, as in Kafka; None without any.

    Raises KafkaError that names the option.
    """
    from penstock.net.tls.settings import (
        TlsSettings,
        load_key,
        load_trusted,
        new_client_context,
    )

    if not any(name.startswith("ssl.") for name in options):
        return None
    settings = TlsSettings.from_config(options)
    context = new_client_context(settings, check_hostname=True)
    load_trusted(context, settings)
    load_key(context, settings)
    return context
