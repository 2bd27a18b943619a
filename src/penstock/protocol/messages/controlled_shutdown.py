"""ControlledShutdown (7): a broker that is going down asks the controller to move its leaderships.

Versions 0 to 3, flexible from 3; gone from Kafka 4.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class ControlledShutdownRequest(Message):
    INFO = request(ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+")

    broker_id: Int32 = 0
    broker_epoch: Annotated[Int64, wire("2+", ignorable=True)] = -1


class RemainingPartition(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0


class ControlledShutdownResponse(Message):
    INFO = response(ApiKey.CONTROLLED_SHUTDOWN, versions="0-3", flexible="3+")

    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition] = []
