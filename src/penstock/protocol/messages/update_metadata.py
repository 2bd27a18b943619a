"""UpdateMetadata (6): the controller sends brokers, topics and partitions to every broker.

Versions 0 to 8, flexible from 6; gone from Kafka 4.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    request,
    response,
    wire,
)


class UpdateMetadataPartitionState(Struct):
    topic_name: Annotated[str, wire("0-4", ignorable=True)] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    zk_version: Int32 = 0
    replicas: list[Int32] = []
    offline_replicas: Annotated[list[Int32], wire("4+", ignorable=True)] = []


class UpdateMetadataTopicState(Struct):
    topic_name: str = ""
    topic_id: Annotated[UUID, wire("7+", ignorable=True)] = ZERO_UUID
    partition_states: list[UpdateMetadataPartitionState] = []


class UpdateMetadataEndpoint(Struct):
    port: Int32 = 0
    host: str = ""
    listener: Annotated[str, wire("3+", ignorable=True)] = ""
    security_protocol: Int16 = 0


class UpdateMetadataBroker(Struct):
    id: Int32 = 0
    v0_host: Annotated[str, wire("0", ignorable=True)] = ""
    v0_port: Annotated[Int32, wire("0", ignorable=True)] = 0
    endpoints: Annotated[list[UpdateMetadataEndpoint], wire("1+", ignorable=True)] = []
    rack: Annotated[str | None, wire("2+", ignorable=True)] = ""


class UpdateMetadataRequest(Message):
    INFO = request(ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+")

    controller_id: Int32 = 0
    is_kraft_controller: Annotated[bool, wire("8+")] = False
    type: Annotated[Int8, wire("8+", tag=0)] = 0
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, wire("5+", ignorable=True)] = -1
    ungrouped_partition_states: Annotated[list[UpdateMetadataPartitionState], wire("0-4")] = []
    topic_states: Annotated[list[UpdateMetadataTopicState], wire("5+")] = []
    live_brokers: list[UpdateMetadataBroker] = []


class UpdateMetadataResponse(Message):
    INFO = response(ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+")

    error_code: Int16 = 0
