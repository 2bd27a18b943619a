"""CreateTopics (19): new topics, with partitions, replicas and configuration.

Versions 0 to 7, flexible from 5; Kafka 4 starts at 2.
"""

from typing import Annotated
from uuid import UUID

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


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: str = ""
    value: str | None = ""


class CreatableTopic(Struct):
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message):
    INFO = request(ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+")

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Annotated[bool, wire("1+")] = False


class CreatableTopicConfigs(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


class CreatableTopicResult(Struct):
    name: str = ""
    topic_id: Annotated[UUID, wire("7+", ignorable=True)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, wire("1+", ignorable=True)] = ""
    topic_config_error_code: Annotated[Int16, wire("5+", tag=0, ignorable=True)] = 0
    num_partitions: Annotated[Int32, wire("5+", ignorable=True)] = -1
    replication_factor: Annotated[Int16, wire("5+", ignorable=True)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, wire("5+", ignorable=True)] = []


class CreateTopicsResponse(Message):
    INFO = response(ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+")

    throttle_time_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    topics: list[CreatableTopicResult] = []
