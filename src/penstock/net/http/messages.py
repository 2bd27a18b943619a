"""HTTP/1.1 requests without a body, and responses: parsing and encoding. No I/O."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

MAX_HEAD_BYTES: Final = 8192
"""Bytes of a request line with its headers."""
_MAX_HEADERS: Final = 64
_END: Final = b"\r\n\r\n"


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    keeps_alive: bool
    """Whether the client may send another request on the connection."""


class HttpResponse(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HttpError(Exception):
    """A request that is refused; the connection is closed after the response."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.response = HttpResponse(status, f"{reason}\n".encode())


def find_head(buffer: bytes | bytearray) -> int:
    """Returns where the body of the first request begins; 0 if its head is incomplete.

    Raises HttpError for a head of more than `MAX_HEAD_BYTES`.
    """
    end = buffer.find(_END, 0, MAX_HEAD_BYTES)
    if end >= 0:
        return end + len(_END)
    if len(buffer) >= MAX_HEAD_BYTES:
        raise HttpError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"the request has more than {MAX_HEAD_BYTES} bytes",
        )
    return 0


def parse_head(head: bytes) -> HttpRequest:
    """Returns the request of a complete head; raises HttpError if it is not served."""
    lines = head.removesuffix(_END).decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "not an HTTP request")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is served")
    if method not in ("GET", "HEAD"):
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
    headers = _parse_headers(lines[1:])
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request must not have a body")
    connection = headers.get("connection", "").lower()
    keeps_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    return HttpRequest(method, target.partition("?")[0], headers, keeps_alive)


def _parse_headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise HttpError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {_MAX_HEADERS} headers"
        )
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(HTTPStatus.BAD_REQUEST, "not a valid header")
        headers[name.lower()] = value.strip()
    return headers


def encode_head(response: HttpResponse, *, keeps_alive: bool) -> bytes:
    """Returns the status line and headers of a response."""
    status = response.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keeps_alive else 'close'}",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
