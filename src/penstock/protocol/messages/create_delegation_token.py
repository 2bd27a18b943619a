"""CreateDelegationToken (38): a token with which others authenticate in the owner's name.

Versions 0 to 3, flexible from 2; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class CreatableRenewers(Struct):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(Message):
    INFO = request(ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+")

    owner_principal_type: Annotated[str | None, wire("3+")] = ""
    owner_principal_name: Annotated[str | None, wire("3+")] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message):
    INFO = response(ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+")

    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, wire("3+")] = ""
    token_requester_principal_name: Annotated[str, wire("3+")] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: Int32 = 0
