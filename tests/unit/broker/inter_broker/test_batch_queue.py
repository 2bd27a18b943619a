"""Items for one broker are sent together, one request at a time."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.broker.inter_broker.batch_queue import BatchQueue
from penstock.core.errors import ErrorCode, KafkaError


class _Broker:
    """Receives batches of (key, value) pairs, and returns the values, once it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, int]]] = []
        self.may_respond = asyncio.Event()
        self.error: KafkaError | None = None
        self.queue = BatchQueue[tuple[str, int], int](self._send, key=lambda item: item[0])

    async def _send(self, items: Sequence[tuple[str, int]]) -> list[int]:
        self.batches.append(list(items))
        await self.may_respond.wait()
        if self.error is not None:
            raise self.error
        return [value for _, value in items]


def test_items_that_wait_for_a_response_are_sent_as_one() -> None:
    async def work() -> None:
        broker = _Broker()
        first = asyncio.ensure_future(broker.queue.put(("a", 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(broker.queue.put((k, v))) for k, v in [("b", 2), ("c", 3)]]
        again = asyncio.ensure_future(broker.queue.put(("b", 4)))
        await asyncio.sleep(0)
        broker.may_respond.set()
        assert await asyncio.gather(first, *others, again) == [1, 2, 3, 4]
        assert broker.batches == [[("a", 1)], [("b", 2), ("c", 3)], [("b", 4)]]

    asyncio.run(work())


def test_an_error_is_that_of_every_item_and_later_ones_are_sent() -> None:
    async def work() -> None:
        broker = _Broker()
        broker.may_respond.set()
        broker.error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")
        results = await asyncio.gather(
            broker.queue.put(("a", 1)), broker.queue.put(("b", 2)), return_exceptions=True
        )
        assert [type(result) for result in results] == [KafkaError, KafkaError]
        broker.error = None
        assert await broker.queue.put(("c", 3)) == 3

    asyncio.run(work())


def test_an_item_whose_caller_has_left_is_not_sent() -> None:
    async def work() -> None:
        broker = _Broker()
        first = asyncio.ensure_future(broker.queue.put(("a", 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.ensure_future(broker.queue.put(("b", 2)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        broker.may_respond.set()
        assert await first == 1
        await asyncio.sleep(0)
        assert broker.batches == [[("a", 1)]]

    asyncio.run(work())
