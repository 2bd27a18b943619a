"""DescribeTransactions and ListTransactions: transactions as administrators see them."""

from collections.abc import Iterable

from penstock.coordinator.txn.java_order import by_topic
from penstock.coordinator.txn.metadata import TransactionMetadata
from penstock.coordinator.txn.state import STATES_BY_NAME
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
)
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)


def describe(
    transactional_id: str, metadata: TransactionMetadata | None
) -> DescribeTransactionsTransactionState:
    if metadata is None:
        not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        error = not_found if transactional_id else ErrorCode.INVALID_REQUEST
        return DescribeTransactionsTransactionState(error, transactional_id)
    return DescribeTransactionsTransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.state_name,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            DescribeTransactionsTopicData(topic, partitions)
            for topic, partitions in by_topic(metadata.partitions).items()
        ],
    )


def list_transactions(
    transactions: Iterable[TransactionMetadata], request: ListTransactionsRequest, now: int
) -> ListTransactionsResponse:
    """Returns the transactions that pass the filters; the host applies the pattern of ids."""
    names = dict.fromkeys(request.state_filters)
    states = {STATES_BY_NAME[name] for name in names if name in STATES_BY_NAME}
    producer_ids = set(request.producer_id_filters)

    def is_listed(metadata: TransactionMetadata) -> bool:
        return (
            (not producer_ids or metadata.producer_id in producer_ids)
            and (not names or metadata.state in states)
            and (request.duration_filter < 0 or now - metadata.start_ms > request.duration_filter)
        )

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in names if name not in STATES_BY_NAME],
        transaction_states=[
            ListTransactionsTransactionState(
                metadata.transactional_id, metadata.producer_id, metadata.state.state_name
            )
            for metadata in transactions
            if is_listed(metadata)
        ],
    )
