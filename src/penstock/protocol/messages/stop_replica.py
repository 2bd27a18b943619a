"""StopReplica (5): the controller has a broker stop replicas, or delete them.

Versions 0 to 4, flexible from 2; gone from Kafka 4.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class StopReplicaPartitionV0(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0


class StopReplicaTopicV1(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class StopReplicaPartitionState(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = -1
    delete_partition: bool = False


class StopReplicaTopicState(Struct):
    topic_name: str = ""
    partition_states: list[StopReplicaPartitionState] = []


class StopReplicaRequest(Message):
    INFO = request(ApiKey.STOP_REPLICA, versions="0-4", flexible="2+")

    controller_id: Int32 = 0
    is_kraft_controller: Annotated[bool, wire("4+")] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, wire("1+", ignorable=True)] = -1
    delete_partitions: Annotated[bool, wire("0-2")] = False
    ungrouped_partitions: Annotated[list[StopReplicaPartitionV0], wire("0")] = []
    topics: Annotated[list[StopReplicaTopicV1], wire("1-2")] = []
    topic_states: Annotated[list[StopReplicaTopicState], wire("3+")] = []


class StopReplicaPartitionError(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


class StopReplicaResponse(Message):
    INFO = response(ApiKey.STOP_REPLICA, versions="0-4", flexible="2+")

    error_code: Int16 = 0
    partition_errors: list[StopReplicaPartitionError] = []
