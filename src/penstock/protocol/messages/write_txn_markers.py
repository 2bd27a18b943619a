"""WriteTxnMarkers (27): a coordinator has commit or abort markers written.

Versions 0 to 2, flexible from 1; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
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


class WritableTxnMarkerTopic(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, wire("2+", ignorable=True)] = 0


class WriteTxnMarkersRequest(Message):
    INFO = request(ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+")

    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(Message):
    INFO = response(ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+")

    markers: list[WritableTxnMarkerResult] = []
