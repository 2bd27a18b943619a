"""Records of `__consumer_offsets`: consumer groups, KIP-848 (types 3 to 8 and 16)."""

from typing import Annotated
from uuid import UUID

from msgspec import field

from penstock.protocol.fields import (
    ZERO_UUID,
    Int8,
    Int32,
    Int64,
    Message,
    Struct,
    record_key,
    record_value,
    wire,
)


class ConsumerGroupMetadataKey(Message):
    INFO = record_key(3)

    group_id: str = ""


class ConsumerGroupMetadataValue(Message):
    INFO = record_value(3, versions="0", flexible="0+")

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, wire(tag=0)] = 0


class ConsumerGroupPartitionMetadataKey(Message):
    INFO = record_key(4)

    group_id: str = ""


class PartitionMetadata(Struct):
    partition: Int32 = 0
    racks: list[str] = []


class TopicMetadata(Struct):
    topic_id: UUID = ZERO_UUID
    topic_name: str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = []


class ConsumerGroupPartitionMetadataValue(Message):
    INFO = record_value(4, versions="0", flexible="0+")

    topics: list[TopicMetadata] = []


class ConsumerGroupMemberMetadataKey(Message):
    INFO = record_key(5)

    group_id: str = ""
    member_id: str = ""


class ClassicProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ConsumerGroupMemberMetadataValue(Message):
    INFO = record_value(5, versions="0", flexible="0+")

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, wire(tag=0)] = field(
        default_factory=ClassicMemberMetadata
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    INFO = record_key(6)

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    INFO = record_value(6, versions="0", flexible="0+")

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, wire(tag=0)] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message):
    INFO = record_key(7)

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberTopicPartition(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupTargetAssignmentMemberValue(Message):
    INFO = record_value(7, versions="0", flexible="0+")

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberTopicPartition] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    INFO = record_key(8)

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, wire(tag=0)] = []


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    INFO = record_value(8, versions="0", flexible="0+")

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions] = []
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions] = []


class ConsumerGroupRegularExpressionKey(Message):
    INFO = record_key(16)

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message):
    INFO = record_value(16, versions="0", flexible="0+")

    topics: list[str] = []
    version: Int64 = 0
    timestamp: Int64 = 0
