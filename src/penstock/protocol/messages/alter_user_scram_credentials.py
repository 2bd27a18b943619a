"""AlterUserScramCredentials (51): SCRAM credentials are set or deleted.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response


class ScramCredentialDeletion(Struct):
    name: str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsRequest(Message):
    INFO = request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(Message):
    INFO = response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
