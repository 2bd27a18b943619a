"""SaslHandshake (17): client and broker agree on a SASL mechanism.

Versions 0 to 1, not flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Message, request, response


class SaslHandshakeRequest(Message):
    INFO = request(ApiKey.SASL_HANDSHAKE, versions="0-1")

    mechanism: str = ""


class SaslHandshakeResponse(Message):
    INFO = response(ApiKey.SASL_HANDSHAKE, versions="0-1")

    error_code: Int16 = 0
    mechanisms: list[str] = []
