"""ShareGroupDescribe (77): state and members of share groups.

Version 1, flexible.
"""

from uuid import UUID

from msgspec import field

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int16, Int32, Message, Struct, request, response


class ShareGroupDescribeRequest(Message):
    INFO = request(ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+")

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ShareGroupDescribeTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class ShareGroupDescribeAssignment(Struct):
    topic_partitions: list[ShareGroupDescribeTopicPartitions] = []


class ShareGroupDescribeMember(Struct):
    member_id: str = ""
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    assignment: ShareGroupDescribeAssignment = field(default_factory=ShareGroupDescribeAssignment)


class ShareGroupDescribeDescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[ShareGroupDescribeMember] = []
    authorized_operations: Int32 = -2147483648


class ShareGroupDescribeResponse(Message):
    INFO = response(ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+")

    throttle_time_ms: Int32 = 0
    groups: list[ShareGroupDescribeDescribedGroup] = []
