"""Records of `__consumer_offsets`: streams groups, KIP-1071 (types 17 and 19 to 23)."""

from typing import Annotated

from penstock.protocol.fields import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    UInt16,
    record_key,
    record_value,
    wire,
)


class StreamsGroupMetadataKey(Message):
    INFO = record_key(17)

    group_id: str = ""


class LastAssignmentConfig(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupMetadataValue(Message):
    INFO = record_value(17, versions="0", flexible="0+")

    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Annotated[Int32, wire(tag=0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, wire(tag=1)] = []


class StreamsGroupMemberMetadataKey(Message):
    INFO = record_key(19)

    group_id: str = ""
    member_id: str = ""


class StreamsGroupMemberMetadataEndpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class StreamsGroupMemberMetadataKeyValue(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupMemberMetadataValue(Message):
    INFO = record_value(19, versions="0", flexible="0+")

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: StreamsGroupMemberMetadataEndpoint | None = None
    client_tags: list[StreamsGroupMemberMetadataKeyValue] = []


class StreamsGroupTargetAssignmentMetadataKey(Message):
    INFO = record_key(20)

    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(Message):
    INFO = record_value(20, versions="0", flexible="0+")

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, wire(tag=0)] = 0


class StreamsGroupTargetAssignmentMemberKey(Message):
    INFO = record_key(21)

    group_id: str = ""
    member_id: str = ""


class StreamsGroupTargetAssignmentMemberTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []


class StreamsGroupTargetAssignmentMemberValue(Message):
    INFO = record_value(21, versions="0", flexible="0+")

    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = []
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = []
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds] = []


class StreamsGroupCurrentMemberAssignmentKey(Message):
    INFO = record_key(22)

    group_id: str = ""
    member_id: str = ""


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, wire(tag=0)] = []


class StreamsGroupCurrentMemberAssignmentValue(Message):
    INFO = record_value(22, versions="0", flexible="0+")

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = []
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = []
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = []
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = []
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = []
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = []


class StreamsGroupTopologyKey(Message):
    INFO = record_key(23)

    group_id: str = ""


class TopicConfig(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupTopologyTopicInfo(Struct):
    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[TopicConfig] = []


class StreamsGroupTopologyCopartitionGroup(Struct):
    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class StreamsGroupTopologySubtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[StreamsGroupTopologyTopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[StreamsGroupTopologyTopicInfo] = []
    copartition_groups: list[StreamsGroupTopologyCopartitionGroup] = []


class StreamsGroupTopologyValue(Message):
    INFO = record_value(23, versions="0", flexible="0+")

    epoch: Int32 = 0
    subtopologies: list[StreamsGroupTopologySubtopology] = []
