"""Metadata (3): brokers, topics, partitions and who leads them.

Versions 0 to 13, flexible from 9.
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


class MetadataRequestTopic(Struct):
    topic_id: Annotated[UUID, wire("10+", ignorable=True)] = ZERO_UUID
    name: Annotated[str | None, wire(nullable="10+")] = ""


class MetadataRequest(Message):
    INFO = request(ApiKey.METADATA, versions="0-13", flexible="9+")

    topics: Annotated[list[MetadataRequestTopic] | None, wire(nullable="1+")] = []
    allow_auto_topic_creation: Annotated[bool, wire("4+")] = True
    include_cluster_authorized_operations: Annotated[bool, wire("8-10")] = False
    include_topic_authorized_operations: Annotated[bool, wire("8+")] = False


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, wire("1+", ignorable=True)] = None


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, wire("7+", ignorable=True)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], wire("5+", ignorable=True)] = []


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: Annotated[str | None, wire(nullable="12+")] = ""
    topic_id: Annotated[UUID, wire("10+", ignorable=True)] = ZERO_UUID
    is_internal: Annotated[bool, wire("1+", ignorable=True)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, wire("8+")] = -2147483648


class MetadataResponse(Message):
    INFO = response(ApiKey.METADATA, versions="0-13", flexible="9+")

    throttle_time_ms: Annotated[Int32, wire("3+", ignorable=True)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, wire("2+", ignorable=True)] = None
    controller_id: Annotated[Int32, wire("1+", ignorable=True)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, wire("8-10")] = -2147483648
    error_code: Annotated[Int16, wire("13+", ignorable=True)] = 0
