"""What stands before every request and response.

A request header names the API, its version and the correlation id that the response repeats. The
client id keeps its old two-byte length in version 2, so that a broker can read the header of an
ApiVersions request of a version it does not know.
"""

from typing import Annotated

from penstock.protocol.fields import Int16, Int32, Message, header, wire


class RequestHeader(Message):
    INFO = header(versions="0-2", flexible="2+")

    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: Annotated[str | None, wire("1+", ignorable=True, flexible=False)] = ""


class ResponseHeader(Message):
    INFO = header(versions="0-1", flexible="1+")

    correlation_id: Int32 = 0
