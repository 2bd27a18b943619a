"""Many waits that share one timer of the event loop."""

import asyncio

from penstock.broker.expiry_timer import ExpiryTimer


class Wait:
    def __init__(self, timer: ExpiryTimer, timeout_s: float) -> None:
        self.deadline = 0.0
        self.expired_at: float | None = None
        timer.add(self, timeout_s)

    def expire(self) -> None:
        self.expired_at = asyncio.get_running_loop().time()


async def wait_until_empty(timer: ExpiryTimer) -> None:
    async with asyncio.timeout(60):
        while len(timer):
            await asyncio.sleep(0.001)


def test_waits_expire_at_their_deadlines_whatever_their_order() -> None:
    async def run() -> None:
        timer = ExpiryTimer()
        waits = [Wait(timer, seconds) for seconds in (0.05, 0.001, 0.02, 0.0)]
        await wait_until_empty(timer)
        for wait in waits:
            assert wait.expired_at is not None
            assert wait.expired_at >= wait.deadline
        # The timer runs again for waits that are added later.
        later = Wait(timer, 0.01)
        await wait_until_empty(timer)
        assert later.expired_at is not None

    asyncio.run(run())


def test_a_discarded_wait_does_not_expire() -> None:
    async def run() -> None:
        timer = ExpiryTimer()
        completed, overdue = Wait(timer, 0.001), Wait(timer, 0.02)
        timer.discard(completed)
        timer.discard(completed)
        await wait_until_empty(timer)
        assert completed.expired_at is None
        assert overdue.expired_at is not None

    asyncio.run(run())


def test_a_wait_that_another_one_discards_does_not_expire() -> None:
    async def run() -> None:
        timer = ExpiryTimer()

        class Discarding(Wait):
            def expire(self) -> None:
                super().expire()
                timer.discard(second)

        Discarding(timer, 0.0)
        second = Wait(timer, 0.0)
        await wait_until_empty(timer)
        assert second.expired_at is None

    asyncio.run(run())
