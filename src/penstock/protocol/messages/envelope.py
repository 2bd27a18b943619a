"""Envelope (58): a broker forwards a client's request to the controller, principal included.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Message, request, response


class EnvelopeRequest(Message):
    INFO = request(ApiKey.ENVELOPE, versions="0", flexible="0+")

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


class EnvelopeResponse(Message):
    INFO = response(ApiKey.ENVELOPE, versions="0", flexible="0+")

    response_data: bytes | None = None
    error_code: Int16 = 0
