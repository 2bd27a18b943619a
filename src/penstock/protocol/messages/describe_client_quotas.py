"""DescribeClientQuotas (48): quotas of users, client ids and addresses.

Versions 0 to 1, flexible from 1.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response


class ComponentData(Struct):
    entity_type: str = ""
    match_type: Int8 = 0
    match: str | None = ""


class DescribeClientQuotasRequest(Message):
    INFO = request(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")

    components: list[ComponentData] = []
    strict: bool = False


class DescribeClientQuotasEntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Struct):
    key: str = ""
    value: float = 0.0


class DescribeClientQuotasEntryData(Struct):
    entity: list[DescribeClientQuotasEntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Message):
    INFO = response(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[DescribeClientQuotasEntryData] | None = []
