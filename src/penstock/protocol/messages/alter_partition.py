"""AlterPartition (56): a partition leader asks the controller to change the in-sync replicas.

Versions 0 to 3, flexible; Kafka 4 starts at 2.
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


class BrokerState(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AlterPartitionRequestPartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[Int32], wire("0-2")] = []
    new_isr_with_epochs: Annotated[list[BrokerState], wire("3+")] = []
    leader_recovery_state: Annotated[Int8, wire("1+")] = 0
    partition_epoch: Int32 = 0


class AlterPartitionRequestTopicData(Struct):
    topic_name: Annotated[str, wire("0-1", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("2+", ignorable=True)] = ZERO_UUID
    partitions: list[AlterPartitionRequestPartitionData] = []


class AlterPartitionRequest(Message):
    INFO = request(ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopicData] = []


class AlterPartitionResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Annotated[Int8, wire("1+", ignorable=True)] = 0
    partition_epoch: Int32 = 0


class AlterPartitionResponseTopicData(Struct):
    topic_name: Annotated[str, wire("0-1", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("2+", ignorable=True)] = ZERO_UUID
    partitions: list[AlterPartitionResponsePartitionData] = []


class AlterPartitionResponse(Message):
    INFO = response(ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlterPartitionResponseTopicData] = []
