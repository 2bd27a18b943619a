"""SaslAuthenticate (36): one step of a SASL exchange.

Versions 0 to 2, flexible from 2.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int64, Message, request, response, wire


class SaslAuthenticateRequest(Message):
    INFO = request(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message):
    INFO = response(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")

    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, wire("1+", ignorable=True)] = 0
