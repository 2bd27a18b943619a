"""AlterClientQuotas (49): quotas of users, client ids and addresses are changed.

Versions 0 to 1, flexible from 1.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response


class AlterClientQuotasRequestEntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class OpData(Struct):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[AlterClientQuotasRequestEntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(Message):
    INFO = request(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")

    entries: list[AlterClientQuotasRequestEntryData] = []
    validate_only: bool = False


class AlterClientQuotasResponseEntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class AlterClientQuotasResponseEntryData(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[AlterClientQuotasResponseEntityData] = []


class AlterClientQuotasResponse(Message):
    INFO = response(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")

    throttle_time_ms: Int32 = 0
    entries: list[AlterClientQuotasResponseEntryData] = []
