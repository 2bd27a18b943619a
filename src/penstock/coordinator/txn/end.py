"""EndTxn: a producer commits or aborts its transaction.

Up to version 4 of the request only the state shows that a request is a retry after a lost response:
a retry with the same epoch succeeds. From version 5 on (KIP-890) each end bumps the producer's
epoch, or gives it a new id after the last epoch. So a retry, which has the previous epoch, differs
from the end of the next transaction. A producer may also abort a transaction that the coordinator
does not know, because it cannot always tell whether its requests arrived.
"""

from penstock.coordinator.txn.metadata import (
    MAX_EPOCH,
    NO_ID,
    TransactionMetadata,
    prepare_end,
)
from penstock.coordinator.txn.producer_id_required import require_producer_id
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest

_S = TransactionState
_COMPLETE = {True: _S.COMPLETE_COMMIT, False: _S.COMPLETE_ABORT}
_PREPARE = {True: _S.PREPARE_COMMIT, False: _S.PREPARE_ABORT}
FIRST_EPOCH_BUMP = 5
"""The first version of the request that bumps the epoch."""


def end_transaction(
    metadata: TransactionMetadata | None,
    request: EndTxnRequest,
    version: int,
    new_producer_id: int | None,
    now: int,
) -> TransactionMetadata | ErrorCode:
    """Returns the next state, or an error; NONE if the transaction has ended this way already."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if version < FIRST_EPOCH_BUMP:
        return _end_at_same_epoch(metadata, request, now)
    return _end_with_epoch_bump(metadata, request, new_producer_id, now)


def _end_at_same_epoch(
    metadata: TransactionMetadata, request: EndTxnRequest, now: int
) -> TransactionMetadata | ErrorCode:
    if metadata.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.state is _S.ONGOING:
        return prepare_end(metadata, _PREPARE[request.committed], 0, now)
    if metadata.state is _COMPLETE[request.committed]:
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE


def _end_with_epoch_bump(
    metadata: TransactionMetadata,
    request: EndTxnRequest,
    new_producer_id: int | None,
    now: int,
) -> TransactionMetadata | ErrorCode:
    if metadata.state.is_ending:
        # Checked first: the producer may have the id already that it gets when the transaction
        # ends.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    id_was_replaced = (
        metadata.previous_producer_id == request.producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != request.producer_id and not id_was_replaced:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # Only an end that bumped the epoch can be retried. If a producer of version 1 has taken over
    # since and ended a transaction, the previous one is fenced; Kafka would report the other
    # producer's commit to it.
    is_retry = metadata.bumps_epoch and (
        id_was_replaced or metadata.producer_epoch == request.producer_epoch + 1
    )
    complete = metadata.state in _COMPLETE.values()
    if request.producer_epoch != metadata.producer_epoch and not (complete and is_retry):
        return ErrorCode.PRODUCER_FENCED
    if is_retry:
        if metadata.state is not _COMPLETE[request.committed]:
            return ErrorCode.INVALID_TXN_STATE
        if request.committed or metadata.producer_epoch < MAX_EPOCH:
            return ErrorCode.NONE
        # Aborted by a timeout, without a new id. The highest epoch only fences and is never given
        # to a producer: the abort is repeated to give the producer a new id.
    elif request.committed and metadata.state is not _S.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    next_id = require_producer_id(new_producer_id) if metadata.is_epoch_exhausted else NO_ID
    return prepare_end(metadata, _PREPARE[request.committed], 2, now, next_producer_id=next_id)
