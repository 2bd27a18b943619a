"""AddPartitionsToTxn (24): partitions become part of a transaction.

Versions 0 to 5, flexible from 3.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class AddPartitionsToTxnTopic(Struct):
    name: str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnRequest(Message):
    INFO = request(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")

    transactions: Annotated[list[AddPartitionsToTxnTransaction], wire("4+")] = []
    v3_and_below_transactional_id: Annotated[str, wire("0-3")] = ""
    v3_and_below_producer_id: Annotated[Int64, wire("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[Int16, wire("0-3")] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], wire("0-3")] = []


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnResponse(Message):
    INFO = response(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire("4+", ignorable=True)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], wire("4+")] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], wire("0-3")] = []
