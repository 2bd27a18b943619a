"""Records of `__consumer_offsets`: share groups, KIP-932 (types 10 to 15)."""

from typing import Annotated
from uuid import UUID

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


class ShareGroupMemberMetadataKey(Message):
    INFO = record_key(10)

    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Message):
    INFO = record_value(10, versions="0", flexible="0+")

    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []


class ShareGroupMetadataKey(Message):
    INFO = record_key(11)

    group_id: str = ""


class ShareGroupMetadataValue(Message):
    INFO = record_value(11, versions="0", flexible="0+")

    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Message):
    INFO = record_key(12)

    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(Message):
    INFO = record_value(12, versions="0", flexible="0+")

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, wire(tag=0)] = 0


class ShareGroupTargetAssignmentMemberKey(Message):
    INFO = record_key(13)

    group_id: str = ""
    member_id: str = ""


class ShareGroupTargetAssignmentMemberTopicPartition(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ShareGroupTargetAssignmentMemberValue(Message):
    INFO = record_value(13, versions="0", flexible="0+")

    topic_partitions: list[ShareGroupTargetAssignmentMemberTopicPartition] = []


class ShareGroupCurrentMemberAssignmentKey(Message):
    INFO = record_key(14)

    group_id: str = ""
    member_id: str = ""


class ShareGroupCurrentMemberAssignmentTopicPartitions(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ShareGroupCurrentMemberAssignmentValue(Message):
    INFO = record_value(14, versions="0", flexible="0+")

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentTopicPartitions] = []


class ShareGroupStatePartitionMetadataKey(Message):
    INFO = record_key(15)

    group_id: str = ""


class TopicPartitionsInfo(Struct):
    topic_id: UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class ShareGroupStatePartitionMetadataTopicInfo(Struct):
    topic_id: UUID = ZERO_UUID
    topic_name: str = ""


class ShareGroupStatePartitionMetadataValue(Message):
    INFO = record_value(15, versions="0", flexible="0+")

    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[ShareGroupStatePartitionMetadataTopicInfo] = []
