"""DeleteShareGroupOffsets (92): offsets of a share group are deleted.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int16, Int32, Message, Struct, request, response


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""


class DeleteShareGroupOffsetsRequest(Message):
    INFO = request(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: UUID = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(Message):
    INFO = response(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
