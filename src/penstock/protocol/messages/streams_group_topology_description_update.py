"""StreamsGroupTopologyDescriptionUpdate (93): a streams group member stores its topology in words.

Version 0, flexible.
"""

from msgspec import field

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response


class StreamsGroupTopologyDescriptionUpdateTopologyDescriptionNode(Struct):
    name: str = ""
    node_type: Int8 = 0
    source_topics: list[str] = []
    sink_topic: str | None = None
    stores: list[str] = []
    successors: list[str] = []


class StreamsGroupTopologyDescriptionUpdateTopologyDescriptionSubtopology(Struct):
    subtopology_id: str = ""
    nodes: list[StreamsGroupTopologyDescriptionUpdateTopologyDescriptionNode] = []


class StreamsGroupTopologyDescriptionUpdateTopologyDescriptionGlobalStore(Struct):
    source: StreamsGroupTopologyDescriptionUpdateTopologyDescriptionNode = field(
        default_factory=StreamsGroupTopologyDescriptionUpdateTopologyDescriptionNode
    )
    processor: StreamsGroupTopologyDescriptionUpdateTopologyDescriptionNode = field(
        default_factory=StreamsGroupTopologyDescriptionUpdateTopologyDescriptionNode
    )


class StreamsGroupTopologyDescriptionUpdateTopologyDescription(Struct):
    subtopologies: list[StreamsGroupTopologyDescriptionUpdateTopologyDescriptionSubtopology] = []
    global_stores: list[StreamsGroupTopologyDescriptionUpdateTopologyDescriptionGlobalStore] = []


class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    INFO = request(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, versions="0", flexible="0+")

    group_id: str = ""
    member_id: str = ""
    topology_epoch: Int32 = 0
    topology_description: StreamsGroupTopologyDescriptionUpdateTopologyDescription = field(
        default_factory=StreamsGroupTopologyDescriptionUpdateTopologyDescription
    )


class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    INFO = response(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
