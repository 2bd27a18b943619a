"""EndTxn: a producer commits or aborts its transaction.

Until version 4 of the request an answer that was lost leaves no trace but the state: whoever asks
again with the same epoch is told that it is done. From version 5 on (KIP-890) each end takes the
producer to the next epoch, or to a new id after the last one, so that asking again, with the epoch
before, is told apart from ending the next transaction. That one may be aborted although the
coordinator has not heard of it: its producer does not always know how far it came.
"""

from penstock.coordinator.txn.metadata import (
    MAX_EPOCH,
    NO_ID,
    TransactionMetadata,
    prepare_end,
)
from penstock.coordinator.txn.producer_ids import given
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest

_S = TransactionState
_COMPLETE = {True: _S.COMPLETE_COMMIT, False: _S.COMPLETE_ABORT}
_PREPARE = {True: _S.PREPARE_COMMIT, False: _S.PREPARE_ABORT}
FIRST_EPOCH_BUMP = 5
"""The version of the request with which the epoch is bumped."""


def end_transaction(
    metadata: TransactionMetadata | None,
    request: EndTxnRequest,
    version: int,
    new_producer_id: int | None,
    now: int,
) -> TransactionMetadata | ErrorCode:
    """The state that follows; NONE where the transaction has ended in this way already."""
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
        # First: the producer may have the id already that the end of its transaction brings.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    over_the_last_epoch = (
        metadata.previous_producer_id == request.producer_id
        and request.producer_epoch == MAX_EPOCH - 1
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != request.producer_id and not over_the_last_epoch:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # Only an end that raised the epoch can be asked for again. Where a producer of version 1 has
    # taken over since and ended a transaction, the one before is fenced; Kafka would tell it of a
    # commit that was never its own.
    asked_again = metadata.bumps_epoch and (
        over_the_last_epoch or metadata.producer_epoch == request.producer_epoch + 1
    )
    complete = metadata.state in _COMPLETE.values()
    if request.producer_epoch != metadata.producer_epoch and not (complete and asked_again):
        return ErrorCode.PRODUCER_FENCED
    if asked_again:
        if metadata.state is not _COMPLETE[request.committed]:
            return ErrorCode.INVALID_TXN_STATE
        if request.committed or metadata.producer_epoch < MAX_EPOCH:
            return ErrorCode.NONE
        # Aborted by a timeout, when no new id was at hand. The last epoch of all is there to fence
        # with, and nobody gets it: to give the producer a new id the abort is done once more.
    elif request.committed and metadata.state is not _S.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    next_id = given(new_producer_id) if metadata.is_epoch_exhausted else NO_ID
    return prepare_end(metadata, _PREPARE[request.committed], 2, now, next_producer_id=next_id)
