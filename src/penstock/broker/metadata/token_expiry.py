"""Removes expired delegation tokens at intervals (X2).

Every broker runs the loop; it does something while its broker is the controller.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from penstock.broker.config.broker_config import BrokerConfig
from penstock.controller.delegation_tokens import expired_tokens
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import DelegationTokenRecord, Delete
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError

logger = logging.getLogger(__name__)

R = TypeVar("R")


class DecisionRunner(Protocol):
    """The part of `ControllerHost` that is needed."""

    @property
    def is_active(self) -> bool: ...

    async def run(self, decide: Callable[[ClusterImage], ControllerResult[R]]) -> R: ...


class TokenExpiry:
    """The loop of `delegation.token.expiry.check.interval.ms`."""

    def __init__(self, config: BrokerConfig, controller: DecisionRunner, clock: Clock) -> None:
        self._interval_s = config.int("delegation.token.expiry.check.interval.ms") / 1000
        self._controller = controller
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                while self._controller.is_active and await self._remove_some():
                    pass
            except KafkaError as error:
                logger.warning("expired delegation tokens were not removed: %s", error.message)
            except Exception:
                logger.exception("expired delegation tokens were not removed")

    async def _remove_some(self) -> bool:
        """Returns whether there may be more."""
        tokens = await self._controller.run(self._decide)
        for token in tokens:
            logger.info("delegation token %s of %s has expired", token.token_id, token.owner)
        return bool(tokens)

    def _decide(self, image: ClusterImage) -> ControllerResult[list[DelegationTokenRecord]]:
        tokens = expired_tokens(image, self._clock.now_ms())
        return ControllerResult([Delete(token.key) for token in tokens], tokens)
