"""DescribeTransactions (65): state and partitions of transactional ids.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response


class DescribeTransactionsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")

    transactional_ids: list[str] = []


class DescribeTransactionsTopicData(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeTransactionsTransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribeTransactionsTopicData] = []


class DescribeTransactionsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribeTransactionsTransactionState] = []
