"""StreamsGroupDescribe (89): state, members and topology of streams groups.

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


class StreamsGroupDescribeRequest(Message):
    INFO = request(ApiKey.STREAMS_GROUP_DESCRIBE, versions="0-1", flexible="0+")

    group_ids: list[str] = []
    include_authorized_operations: bool = False
    include_topology_description: Annotated[bool, wire("1+")] = False


class StreamsGroupDescribeKeyValue(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupDescribeTopicInfo(Struct):
    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[StreamsGroupDescribeKeyValue] = []


class StreamsGroupDescribeSubtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    repartition_sink_topics: list[str] = []
    state_changelog_topics: list[StreamsGroupDescribeTopicInfo] = []
    repartition_source_topics: list[StreamsGroupDescribeTopicInfo] = []


class StreamsGroupDescribeTopology(Struct):
    epoch: Int32 = 0
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = None


class StreamsGroupDescribeEndpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class StreamsGroupDescribeTaskOffset(Struct):
    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupDescribeTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []


class StreamsGroupDescribeAssignment(Struct):
    active_tasks: list[StreamsGroupDescribeTaskIds] = []
    standby_tasks: list[StreamsGroupDescribeTaskIds] = []
    warmup_tasks: list[StreamsGroupDescribeTaskIds] = []


class StreamsGroupDescribeMember(Struct):
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: StreamsGroupDescribeEndpoint | None = None
    client_tags: list[StreamsGroupDescribeKeyValue] = []
    task_offsets: list[StreamsGroupDescribeTaskOffset] = []
    task_end_offsets: list[StreamsGroupDescribeTaskOffset] = []
    assignment: StreamsGroupDescribeAssignment = field(
        default_factory=StreamsGroupDescribeAssignment
    )
    target_assignment: StreamsGroupDescribeAssignment = field(
        default_factory=StreamsGroupDescribeAssignment
    )
    is_classic: bool = False


class StreamsGroupDescribeTopologyDescriptionNode(Struct):
    name: str = ""
    node_type: Int8 = 0
    source_topics: list[str] = []
    sink_topic: str | None = None
    stores: list[str] = []
    successors: list[str] = []


class StreamsGroupDescribeTopologyDescriptionSubtopology(Struct):
    subtopology_id: str = ""
    nodes: list[StreamsGroupDescribeTopologyDescriptionNode] = []


class StreamsGroupDescribeTopologyDescriptionGlobalStore(Struct):
    source: StreamsGroupDescribeTopologyDescriptionNode = field(
        default_factory=StreamsGroupDescribeTopologyDescriptionNode
    )
    processor: StreamsGroupDescribeTopologyDescriptionNode = field(
        default_factory=StreamsGroupDescribeTopologyDescriptionNode
    )


class StreamsGroupDescribeTopologyDescription(Struct):
    subtopologies: list[StreamsGroupDescribeTopologyDescriptionSubtopology] = []
    global_stores: list[StreamsGroupDescribeTopologyDescriptionGlobalStore] = []


class StreamsGroupDescribeDescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: StreamsGroupDescribeTopology | None = None
    members: list[StreamsGroupDescribeMember] = []
    authorized_operations: Int32 = -2147483648
    topology_description: Annotated[StreamsGroupDescribeTopologyDescription | None, wire("1+")] = (
        None
    )
    topology_description_status: Annotated[Int8, wire("1+")] = 0
    assignor_name: Annotated[str | None, wire("1+", ignorable=True)] = None


class StreamsGroupDescribeResponse(Message):
    INFO = response(ApiKey.STREAMS_GROUP_DESCRIBE, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    groups: list[StreamsGroupDescribeDescribedGroup] = []
