"""InitProducerId of a transactional id: the producer id and epoch of its new producer."""

from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.metadata import (
    MAX_EPOCH,
    NO_ID,
    NO_TIMEOUT_MS,
    TransactionMetadata,
    is_exhausted,
    prepare_epoch,
    prepare_fence,
    prepare_producer_id_rotation,
)
from penstock.coordinator.txn.producer_id_required import require_producer_id
from penstock.coordinator.txn.records import NO_EPOCH
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest


def init_producer_id(
    metadata: TransactionMetadata | None,
    request: InitProducerIdRequest,
    config: TransactionConfig,
    new_producer_id: int | None,
    now: int,
) -> TransactionMetadata | ErrorCode:
    """Returns the next state, or an error.

    If the next state ends a transaction, the producer has to retry the request.
    """
    if error := _check_request(request, config):
        return error
    timeout_ms = NO_TIMEOUT_MS if request.enable_2pc else request.transaction_timeout_ms
    if metadata is None:
        metadata = TransactionMetadata(
            request.transactional_id or "", require_producer_id(new_producer_id), timeout_ms, now
        )
    expected = _ExpectedProducer(request)
    if metadata.state.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if not expected.is_for(metadata):
        return ErrorCode.PRODUCER_FENCED
    if metadata.state is TransactionState.ONGOING:
        bumps_epoch = config.transaction_version >= 2
        rotates = bumps_epoch and metadata.is_epoch_exhausted
        next_id = require_producer_id(new_producer_id) if rotates else NO_ID
        return prepare_fence(metadata, config.transaction_version, next_id, now)
    return _next_epoch(metadata, expected, timeout_ms, new_producer_id, now)


def _check_request(request: InitProducerIdRequest, config: TransactionConfig) -> ErrorCode:
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.enable_2pc and not config.two_phase_commit_enable:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION
    timeout = request.transaction_timeout_ms
    if not request.enable_2pc and not 0 < timeout <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


class _ExpectedProducer:
    """The id and epoch that the producer claims to have (KIP-360); a new producer has none."""

    def __init__(self, request: InitProducerIdRequest) -> None:
        self.producer_id = request.producer_id
        self.epoch = request.producer_epoch
        self.is_set = request.producer_id != NO_ID

    def is_for(self, metadata: TransactionMetadata) -> bool:
        """Returns whether the id can be that of the current producer; the epoch is checked later.

        A producer that retries because it missed the response with its new id has the last epoch of
        the previous id.
        """
        return (
            not self.is_set
            or metadata.producer_epoch == NO_EPOCH
            or self.producer_id == metadata.producer_id
            or (self.producer_id == metadata.previous_producer_id and is_exhausted(self.epoch))
        )


def _next_epoch(
    metadata: TransactionMetadata,
    expected: _ExpectedProducer,
    timeout_ms: int,
    new_producer_id: int | None,
    now: int,
) -> TransactionMetadata | ErrorCode:
    current = metadata.producer_epoch
    if expected.is_set and current not in (NO_EPOCH, expected.epoch):
        if expected.epoch != metadata.last_producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        # A retry after a lost response: another producer in between would have removed the last
        # epoch. The highest epoch only fences and is never given to a producer.
        if current < MAX_EPOCH:
            return prepare_epoch(
                metadata, timeout_ms, now, epoch=current, last_epoch=expected.epoch
            )
    last_epoch = NO_EPOCH
    if expected.is_set:
        last_epoch = min(current, MAX_EPOCH - 1)
    if metadata.is_epoch_exhausted:
        return prepare_producer_id_rotation(
            metadata, require_producer_id(new_producer_id), timeout_ms, now, last_epoch=last_epoch
        )
    return prepare_epoch(metadata, timeout_ms, now, epoch=current + 1, last_epoch=last_epoch)
