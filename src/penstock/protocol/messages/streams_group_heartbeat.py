"""StreamsGroupHeartbeat (88): a member of a streams group joins, lives and leaves.

Versions 0 to 1, flexible.
"""

from typing import Annotated

from msgspec import field

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    UInt16,
    request,
    response,
    wire,
)


class StreamsGroupHeartbeatKeyValue(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupHeartbeatTopicInfo(Struct):
    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[StreamsGroupHeartbeatKeyValue] = []


class StreamsGroupHeartbeatCopartitionGroup(Struct):
    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class StreamsGroupHeartbeatSubtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[StreamsGroupHeartbeatTopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[StreamsGroupHeartbeatTopicInfo] = []
    copartition_groups: list[StreamsGroupHeartbeatCopartitionGroup] = []


class StreamsGroupHeartbeatTopology(Struct):
    epoch: Int32 = 0
    subtopologies: list[StreamsGroupHeartbeatSubtopology] = []


class StreamsGroupHeartbeatRequestTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []


class StreamsGroupHeartbeatRequestEndpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class StreamsGroupHeartbeatTaskOffset(Struct):
    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(Message):
    INFO = request(ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0-1", flexible="0+")

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: StreamsGroupHeartbeatTopology | None = None
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = None
    client_tags: list[StreamsGroupHeartbeatKeyValue] | None = None
    task_offsets: list[StreamsGroupHeartbeatTaskOffset] | None = None
    task_end_offsets: list[StreamsGroupHeartbeatTaskOffset] | None = None
    shutdown_application: bool = False


class Status(Struct):
    status_code: Int8 = 0
    status_detail: str = ""


class StreamsGroupHeartbeatResponseTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []


class StreamsGroupHeartbeatResponseEndpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class StreamsGroupHeartbeatTopicPartition(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class EndpointToPartitions(Struct):
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = field(
        default_factory=StreamsGroupHeartbeatResponseEndpoint
    )
    active_partitions: list[StreamsGroupHeartbeatTopicPartition] = []
    standby_partitions: list[StreamsGroupHeartbeatTopicPartition] = []


class StreamsGroupHeartbeatResponse(Message):
    INFO = response(ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag_legacy: Annotated[Int32, wire("0")] = 0
    task_offset_interval_ms: Int32 = 0
    acceptable_recovery_lag: Annotated[Int64, wire("1+", ignorable=True)] = -1
    status: list[Status] | None = []
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    topology_description_required: Annotated[bool, wire("1+")] = False
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
