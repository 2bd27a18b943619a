"""DeleteShareGroupState (86): the share state of partitions ends.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int16, Int32, Message, Struct, request, response


class DeleteShareGroupStatePartitionData(Struct):
    partition: Int32 = 0


class DeleteStateData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[DeleteShareGroupStatePartitionData] = []


class DeleteShareGroupStateRequest(Message):
    INFO = request(ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+")

    group_id: str = ""
    topics: list[DeleteStateData] = []


class DeleteShareGroupStatePartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


class DeleteStateResult(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[DeleteShareGroupStatePartitionResult] = []


class DeleteShareGroupStateResponse(Message):
    INFO = response(ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+")

    results: list[DeleteStateResult] = []
