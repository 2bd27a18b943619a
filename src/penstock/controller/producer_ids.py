"""Allocation of producer ids to brokers, in blocks; the cluster never reuses an id (P3)."""

from typing import Final

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import ProducerIdsRecord, Put
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = 2**63 - 1


def next_block(image: ClusterImage, broker_id: int) -> ControllerResult[ProducerIdsRecord]:
    """Allocates the block that follows the last one."""
    start = 0 if image.producer_ids is None else image.producer_ids.block_end + 1
    end = start + BLOCK_SIZE - 1
    if end > _LAST_ID:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"all {_LAST_ID} producer ids of this cluster are used up",
        )
    block = ProducerIdsRecord(broker_id, start, end)
    return ControllerResult([Put(block)], block)


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """Allocates a block for a broker, whose epoch must be that of its current registration."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        return ControllerResult([], AllocateProducerIdsResponse(error_code=code))
    if request.broker_epoch != broker.epoch:
        code = ErrorCode.STALE_BROKER_EPOCH
        return ControllerResult([], AllocateProducerIdsResponse(error_code=code))
    changes, block, _ = next_block(image, request.broker_id)
    return ControllerResult(
        changes,
        AllocateProducerIdsResponse(
            producer_id_start=block.block_start, producer_id_len=BLOCK_SIZE
        ),
    )
