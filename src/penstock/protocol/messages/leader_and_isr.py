"""LeaderAndIsr (4): the controller notifies a broker of the partitions that it leads and follows.

Versions 0 to 7, flexible from 4; gone from Kafka 4.
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


class LeaderAndIsrPartitionState(Struct):
    topic_name: Annotated[str, wire("0-1", ignorable=True)] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    partition_epoch: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: Annotated[list[Int32], wire("3+", ignorable=True)] = []
    removing_replicas: Annotated[list[Int32], wire("3+", ignorable=True)] = []
    is_new: Annotated[bool, wire("1+", ignorable=True)] = False
    leader_recovery_state: Annotated[Int8, wire("6+")] = 0


class LeaderAndIsrTopicState(Struct):
    topic_name: str = ""
    topic_id: Annotated[UUID, wire("5+", ignorable=True)] = ZERO_UUID
    partition_states: list[LeaderAndIsrPartitionState] = []


class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32 = 0
    host_name: str = ""
    port: Int32 = 0


class LeaderAndIsrRequest(Message):
    INFO = request(ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+")

    controller_id: Int32 = 0
    is_kraft_controller: Annotated[bool, wire("7+")] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, wire("2+", ignorable=True)] = -1
    type: Annotated[Int8, wire("5+")] = 0
    ungrouped_partition_states: Annotated[list[LeaderAndIsrPartitionState], wire("0-1")] = []
    topic_states: Annotated[list[LeaderAndIsrTopicState], wire("2+")] = []
    live_leaders: list[LeaderAndIsrLiveLeader] = []


class LeaderAndIsrPartitionError(Struct):
    topic_name: Annotated[str, wire("0-4", ignorable=True)] = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


class LeaderAndIsrTopicError(Struct):
    topic_id: UUID = ZERO_UUID
    partition_errors: list[LeaderAndIsrPartitionError] = []


class LeaderAndIsrResponse(Message):
    INFO = response(ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+")

    error_code: Int16 = 0
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], wire("0-4")] = []
    topics: Annotated[list[LeaderAndIsrTopicError], wire("5+")] = []
