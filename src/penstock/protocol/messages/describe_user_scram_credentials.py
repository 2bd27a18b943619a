"""DescribeUserScramCredentials (50): which SCRAM mechanisms users have, without the secrets.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response


class UserName(Struct):
    name: str = ""


class DescribeUserScramCredentialsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")

    users: list[UserName] | None = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []
