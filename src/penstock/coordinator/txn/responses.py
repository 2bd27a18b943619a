"""Error responses of the transaction coordinator."""

from penstock.coordinator.txn.add_partitions import result_for_all, topic_results
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def error_response(request: Message, version: int, error: ErrorCode) -> Message:
    """Returns the response to a request with this error, or with NONE.

    The response to AddPartitionsToTxn has the form of the request. PRODUCER_FENCED is replaced for
    clients that do not know it.
    """
    match request:
        case InitProducerIdRequest():
            error = _fenced_error(error, version, 4)
            return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
        case AddPartitionsToTxnRequest():
            error = _fenced_error(error, version, 2)
            return AddPartitionsToTxnResponse(
                results_by_transaction=[result_for_all(t, error) for t in request.transactions],
                results_by_topic_v3_and_below=topic_results(request.v3_and_below_topics, error),
            )
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=_fenced_error(error, version, 2))
        case EndTxnRequest():
            return EndTxnResponse(error_code=_fenced_error(error, version, 2))
        case DescribeTransactionsRequest():
            states = [
                DescribeTransactionsTransactionState(error, name)
                for name in request.transactional_ids
            ]
            return DescribeTransactionsResponse(transaction_states=states)
        case ListTransactionsRequest():
            return ListTransactionsResponse(error_code=error)
        case _:
            raise TypeError(f"{type(request).__name__} is not for a transaction coordinator")


def _fenced_error(error: ErrorCode, version: int, since: int) -> ErrorCode:
    """Returns INVALID_PRODUCER_EPOCH for PRODUCER_FENCED in requests before version `since`."""
    if error is ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
