"""ShareGroupHeartbeat (76): a member of a share group joins, lives and leaves.

Version 1, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int16, Int32, Message, Struct, request, response


class ShareGroupHeartbeatRequest(Message):
    INFO = request(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ShareGroupHeartbeatAssignment(Struct):
    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = []


class ShareGroupHeartbeatResponse(Message):
    INFO = response(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ShareGroupHeartbeatAssignment | None = None
