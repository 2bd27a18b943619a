"""DescribeDelegationToken (41): delegation tokens by their owners.

Versions 0 to 3, flexible from 2; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenRequest(Message):
    INFO = request(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+")

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = ""
    principal_name: str = ""


class DescribedDelegationToken(Struct):
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, wire("3+")] = ""
    token_requester_principal_name: Annotated[str, wire("3+")] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribeDelegationTokenResponse(Message):
    INFO = response(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+")

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0
