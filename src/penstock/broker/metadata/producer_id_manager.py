"""Producer ids for idempotent producers, in blocks that the controller allocates (P3)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.client.errors import error_code_of
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

logger = logging.getLogger(__name__)

_PREFETCH_PERCENT: Final = 90
"""When so much of a block is used, the next one is requested."""
_WAIT_S: Final = 5.0
"""How long a producer waits for a block before it must retry."""
_RETRY_DELAY_S: Final = 0.05
_RETRIED: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Errors of a broker whose registration the controller does not know yet."""


class _Block(NamedTuple):
    start: int
    end: int
    """The first id after the block."""


_EMPTY: Final = _Block(0, 0)


class ProducerIdManager:
    """Generates ids that were never used: a block is committed before its first id is used.

    It belongs to the event loop. `broker_epoch` returns that of this broker's registration.
    """

    def __init__(
        self, broker_id: int, controller: ControllerClient, broker_epoch: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._block = _EMPTY
        self._next_id = 0
        self._next_block: _Block | None = None
        self._prefetch_at = -1
        self._request: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """Returns the next id, or None if a block must be allocated first."""
        if self._next_id == self._block.end:
            if self._next_block is None:
                return None
            self._use(self._next_block)
        producer_id = self._next_id
        self._next_id += 1
        if producer_id == self._prefetch_at:
            self._request_block()
        return producer_id

    async def wait(self) -> int:
        """Returns the next id, from a new block if needed.

        Raises COORDINATOR_LOAD_IN_PROGRESS, which producers retry, if the controller does not
        allocate one in time, and the controller's error if it cannot.
        """
        while (producer_id := self.take()) is None:
            try:
                async with asyncio.timeout(_WAIT_S):
                    await asyncio.shield(self._request_block())
            except TimeoutError:
                raise KafkaError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    "the controller has not allocated producer ids yet",
                    remedy="retry",
                ) from None
        return producer_id

    def close(self) -> None:
        """Stops waiting for the controller."""
        if self._request is not None:
            self._request.cancel()

    def _use(self, block: _Block) -> None:
        self._block = block
        self._next_id = block.start
        self._next_block = None
        self._prefetch_at = block.start + (block.end - block.start) * _PREFETCH_PERCENT // 100

    def _request_block(self) -> "asyncio.Task[None]":
        """Requests the next block, unless that is in progress."""
        if self._request is None:
            self._request = asyncio.get_running_loop().create_task(self._allocate())
            self._request.add_done_callback(self._requested)
        return self._request

    def _requested(self, task: "asyncio.Task[None]") -> None:
        self._request = None
        if not task.cancelled() and (error := task.exception()) is not None:
            # A caller that waits raises it; a prefetch is repeated by the first one that does.
            logger.debug("no producer ids were allocated: %s", error)

    async def _allocate(self) -> None:
        while True:
            response = await self._controller.send(
                AllocateProducerIdsRequest(self._broker_id, self._broker_epoch()),
                AllocateProducerIdsResponse,
            )
            code = error_code_of(response.error_code)
            if code is ErrorCode.NONE:
                start = response.producer_id_start
                self._next_block = _Block(start, start + response.producer_id_len)
                return
            if code not in _RETRIED:
                raise KafkaError(code, f"the controller allocated no producer ids: {code.name}")
            logger.warning("the controller allocates no producer ids yet: %s", code.name)
            await asyncio.sleep(_RETRY_DELAY_S)
