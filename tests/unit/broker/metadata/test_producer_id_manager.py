"""Producer ids: each is used once, in blocks that the controller allocates (P3)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.broker.metadata import producer_id_manager
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import ControllerRecord, Put
from penstock.controller.producer_ids import BLOCK_SIZE
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.system_clock import SystemClock
from penstock.protocol.fields import Message
from penstock.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


class _Controller:
    """Broker 0 is the controller. It responds with `errors` first, and only while it `is_up`."""

    def __init__(self) -> None:
        self.requests: list[AllocateProducerIdsRequest] = []
        self.errors: list[ErrorCode] = []
        self.is_up = asyncio.Event()
        self.is_up.set()
        self._next_start = 0
        image = ClusterImage()
        image.apply([Put(ControllerRecord(0, 0))])
        clock = SystemClock()
        network = InterBrokerClient(BrokerConfig.from_properties({}), image, clock)
        client = ControllerClient(0, image, network, self._handle, clock)
        self.ids = ProducerIdManager(0, client, lambda: 42)

    async def _handle(self, message: Message) -> Message:
        assert isinstance(message, AllocateProducerIdsRequest)
        self.requests.append(message)
        await self.is_up.wait()
        if self.errors:
            return AllocateProducerIdsResponse(error_code=self.errors.pop(0))
        start, self._next_start = self._next_start, self._next_start + BLOCK_SIZE
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)


def run(work: Callable[[_Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        await work(_Controller())

    asyncio.run(main())


def test_without_a_block_no_id_is_assigned() -> None:
    async def work(controller: _Controller) -> None:
        ids = controller.ids
        assert ids.take() is None
        assert await ids.wait() == 0
        assert ids.take() == 1
        assert controller.requests == [AllocateProducerIdsRequest(0, 42)]

    run(work)


def test_concurrent_callers_get_different_ids_of_one_block() -> None:
    async def work(controller: _Controller) -> None:
        ids = await asyncio.gather(*(controller.ids.wait() for _ in range(50)))
        assert sorted(ids) == list(range(50))
        assert len(controller.requests) == 1

    run(work)


def test_the_next_block_is_requested_before_the_first_one_is_used_up() -> None:
    async def work(controller: _Controller) -> None:
        ids = controller.ids
        assert await ids.wait() == 0
        for _ in range(BLOCK_SIZE * 9 // 10 - 1):
            ids.take()
        await asyncio.sleep(0.01)
        assert len(controller.requests) == 1
        ids.take()
        await asyncio.sleep(0.01)
        assert len(controller.requests) == 2
        rest = [ids.take() for _ in range(BLOCK_SIZE)]
        assert rest[0] == BLOCK_SIZE * 9 // 10 + 1
        assert None not in rest, "no producer had to wait"

    run(work)


def test_a_registration_that_the_controller_does_not_know_yet_is_retried() -> None:
    async def work(controller: _Controller) -> None:
        controller.errors = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED]
        assert await controller.ids.wait() == 0
        controller.errors = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        controller.ids._next_id = controller.ids._block.end
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await controller.ids.wait()

    run(work)


def test_without_a_controller_producers_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_id_manager, "_WAIT_S", 0.05)

    async def work(controller: _Controller) -> None:
        controller.is_up.clear()
        with pytest.raises(KafkaError) as error:
            await controller.ids.wait()
        assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        controller.is_up.set()
        assert await controller.ids.wait() == 0
        assert len(controller.requests) == 1, "the first request was still in progress"

    run(work)
