"""Moves leadership back to preferred replicas at intervals, if leaders are unbalanced (R8).

Every broker runs the loop; it does something while its broker is the controller.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from penstock.broker.config.broker_config import BrokerConfig
from penstock.controller.election import balance_leaders
from penstock.controller.image import ClusterImage
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError

logger = logging.getLogger(__name__)

R = TypeVar("R")

_TICK_S: Final = 5.0
"""A new controller balances leaders after this time, as in Apache Kafka."""


class ElectionRunner(Protocol):
    """The part of `ControllerHost` that is needed."""

    @property
    def is_active(self) -> bool: ...

    async def run_election(
        self, decide: Callable[[ClusterImage, ElectionRules], ControllerResult[R]]
    ) -> R: ...


class LeaderRebalancer:
    """The loop of `auto.leader.rebalance.enable`."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: ElectionRunner,
        clock: Clock,
        tick_s: float = _TICK_S,
    ) -> None:
        self._is_enabled = config.bool("auto.leader.rebalance.enable")
        self._interval_ms = config.int("leader.imbalance.check.interval.seconds") * 1000
        self._percentage = config.int("leader.imbalance.per.broker.percentage")
        self._controller = controller
        self._clock = clock
        self._tick_s = tick_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._is_enabled:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        due_ms = 0
        while True:
            await asyncio.sleep(self._tick_s)
            if not self._controller.is_active:
                due_ms = 0
            elif (now_ms := self._clock.monotonic_ms()) >= due_ms:
                due_ms = now_ms + self._interval_ms
                await self._balance()

    async def _balance(self) -> None:
        try:
            moved = await self._controller.run_election(self._decide)
        except KafkaError as error:
            logger.warning("leaders could not be balanced: %s", error.message)
        except Exception:
            logger.exception("leaders could not be balanced")
        else:
            if moved:
                logger.info("%d partitions are led by their preferred replicas again", moved)

    def _decide(self, image: ClusterImage, rules: ElectionRules) -> ControllerResult[int]:
        changes = balance_leaders(image, self._percentage, rules) if len(image.brokers) > 1 else []
        return ControllerResult(changes, len(changes))
