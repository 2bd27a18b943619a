"""Heads of HTTP requests are parsed within limits (X5)."""

from http import HTTPStatus

import pytest

from penstock.net.http.messages import (
    MAX_HEAD_BYTES,
    HttpError,
    HttpResponse,
    encode_head,
    find_head,
    parse_head,
)


def test_a_request_has_a_path_without_query_and_headers_in_lower_case() -> None:
    request = parse_head(b"GET /metrics?name=x HTTP/1.1\r\nHost: a\r\nACCEPT:  text/plain \r\n\r\n")
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers == {"host": "a", "accept": "text/plain"}
    assert request.keeps_alive


@pytest.mark.parametrize(
    ("version", "header", "keeps_alive"),
    [
        ("HTTP/1.1", "", True),
        ("HTTP/1.1", "Connection: close\r\n", False),
        ("HTTP/1.0", "", False),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", True),
    ],
)
def test_whether_the_connection_stays_open(version: str, header: str, keeps_alive: bool) -> None:
    head = f"GET / {version}\r\n{header}\r\n".encode()
    assert parse_head(head).keeps_alive is keeps_alive


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET metrics HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/2\r\n\r\n", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED),
        (b"POST / HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (
            b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
        (
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 65 + b"\r\n",
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        ),
    ],
)
def test_what_is_refused(head: bytes, status: HTTPStatus) -> None:
    with pytest.raises(HttpError) as raised:
        parse_head(head)
    assert raised.value.response.status is status


def test_a_head_is_found_when_it_is_complete() -> None:
    head = b"GET / HTTP/1.1\r\n\r\n"
    assert find_head(head[:-1]) == 0
    assert find_head(head + b"GET /next") == len(head)


def test_a_head_without_end_is_refused() -> None:
    with pytest.raises(HttpError, match=str(MAX_HEAD_BYTES)):
        find_head(b"x" * MAX_HEAD_BYTES)


def test_a_response_says_how_long_it_is() -> None:
    head = encode_head(HttpResponse(HTTPStatus.OK, b"four"), keeps_alive=False)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 4\r\n" in head
    assert b"Connection: close\r\n" in head
