"""ElectLeaders (43): leaders are elected anew, the preferred ones or unclean ones.

Versions 0 to 2, flexible from 2.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class ElectLeadersTopicPartitions(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Message):
    INFO = request(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")

    election_type: Annotated[Int8, wire("1+")] = 0
    topic_partitions: list[ElectLeadersTopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class ElectLeadersPartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class ReplicaElectionResult(Struct):
    topic: str = ""
    partition_result: list[ElectLeadersPartitionResult] = []


class ElectLeadersResponse(Message):
    INFO = response(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    replica_election_results: list[ReplicaElectionResult] = []
