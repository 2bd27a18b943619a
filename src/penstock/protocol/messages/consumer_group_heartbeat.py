"""ConsumerGroupHeartbeat (68): a member of a consumer group (KIP-848) joins, lives and leaves.

Versions 0 to 1, flexible.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    Struct,
    request,
    response,
    wire,
)


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Message):
    INFO = request(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, wire("1+")] = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = []


class ConsumerGroupHeartbeatResponse(Message):
    INFO = response(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ConsumerGroupHeartbeatAssignment | None = None
