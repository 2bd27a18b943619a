"""ConsumerGroupDescribe (69): state and members of consumer groups (KIP-848).

Versions 0 to 1, flexible.
"""

from typing import Annotated
from uuid import UUID

from msgspec import field

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Message,
    Struct,
    request,
    response,
    wire,
)


class ConsumerGroupDescribeRequest(Message):
    INFO = request(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ConsumerGroupDescribeTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class ConsumerGroupDescribeAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = []


class ConsumerGroupDescribeMember(Struct):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeAssignment = field(
        default_factory=ConsumerGroupDescribeAssignment
    )
    target_assignment: ConsumerGroupDescribeAssignment = field(
        default_factory=ConsumerGroupDescribeAssignment
    )
    member_type: Annotated[Int8, wire("1+", ignorable=True)] = -1


class ConsumerGroupDescribeDescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[ConsumerGroupDescribeMember] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message):
    INFO = response(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    groups: list[ConsumerGroupDescribeDescribedGroup] = []
