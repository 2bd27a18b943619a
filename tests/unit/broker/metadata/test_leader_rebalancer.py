"""The controller gives returning brokers their preferred leaderships back (R8)."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.leader_rebalancer import LeaderRebalancer
from penstock.controller.image import ClusterImage
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from tests.support.clock import ManualClock
from tests.support.cluster.images import CLEAN, add_topic, image_of, set_state, state

R = TypeVar("R")


class _Controller:
    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.is_active = True
        self.elections = 0
        self.fails = False

    async def run_election(
        self, decide: Callable[[ClusterImage, ElectionRules], ControllerResult[R]]
    ) -> R:
        self.elections += 1
        if self.fails:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller")
        result = decide(self.image, CLEAN)
        self.image.apply(result.changes)
        return result.response


def moved_leader() -> ClusterImage:
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    set_state(image, "t", 1, (1, 0))
    return image


async def ticks(
    controller: _Controller, clock: ManualClock, advance_ms: list[int], **settings: str
) -> list[int]:
    """Returns the elections so far, some ticks after each advance of the clock."""
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.from_properties(properties)
    rebalancer = LeaderRebalancer(config, controller, clock, tick_s=0.001)
    rebalancer.start()
    counts: list[int] = []
    for milliseconds in advance_ms:
        clock.advance(milliseconds)
        for _ in range(10):
            await asyncio.sleep(0.002)
        counts.append(controller.elections)
    await rebalancer.close()
    return counts


def test_leaders_move_back_and_are_checked_at_intervals() -> None:
    controller = _Controller(moved_leader())
    counts = asyncio.run(ticks(controller, ManualClock(), [0, 299_000, 2_000]))
    assert counts == [1, 1, 2]
    assert state(controller.image, "t").leader == 0


def test_errors_do_not_end_the_checks() -> None:
    controller = _Controller(moved_leader())
    controller.fails = True
    assert asyncio.run(ticks(controller, ManualClock(), [0, 301_000])) == [1, 2]


@pytest.mark.parametrize("is_active", [True, False])
def test_nothing_happens_without_the_setting_or_the_controller(is_active: bool) -> None:
    controller = _Controller(moved_leader())
    controller.is_active = is_active
    settings = {"auto_leader_rebalance_enable": "false"} if is_active else {}
    assert asyncio.run(ticks(controller, ManualClock(), [0, 301_000], **settings)) == [0, 0]


def test_a_small_imbalance_is_left_alone() -> None:
    controller = _Controller(moved_leader())
    settings = {"leader_imbalance_per_broker_percentage": "100"}
    asyncio.run(ticks(controller, ManualClock(), [0], **settings))
    assert state(controller.image, "t").leader == 1
