"""A relay in front of a broker that runs an action when a certain request passes."""

import asyncio
import threading
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Self

from penstock.protocol.api_key import ApiKey
from penstock.testing.addresses import Listener, Ports, Route
from penstock.testing.faults import Faults
from penstock.testing.links import Link
from penstock.testing.relay import Relay


class Stage(Enum):
    """The position of a request between client and broker when the action runs."""

    ON_ITS_WAY = 1
    """The broker never receives it."""
    PASSED_ON = 2
    """The broker has received it, or is about to."""
    RESPONDED = 3
    """The broker has handled it; the response never arrives."""


class Moment(NamedTuple):
    """A request of this API at this stage."""

    key: ApiKey
    stage: Stage


class Tap:
    """Passes on everything between clients and a broker, on its own thread.

    While the broker is down, connections are closed at once. The broker must advertise the address
    of the tap as its own.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._ports = Ports()
        self._listener = self._ports.reserve(Listener("TAP", host, 0))
        self._route = Route(host, self._listener.port, host, int(port), readable=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tap")
        self._moment: Moment | None = None
        self._action: Callable[[], None] = lambda: None
        self._failure: BaseException | None = None

    @property
    def bootstrap(self) -> str:
        return self._listener.address

    def at(self, moment: Moment, action: Callable[[], None]) -> None:
        """Calls `action` once, on another thread, at the first such moment."""
        self._action = action
        self._moment = moment

    def check(self) -> bool:
        """Returns whether the action is still pending. Raises the error of a failed action."""
        if self._failure is not None:
            raise self._failure
        return self._moment is not None

    def __enter__(self) -> Self:
        self._thread.start()
        self._relay = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *raised: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._ports.close()

    async def _start(self) -> "_TappedRelay":
        relay = _TappedRelay([self._route], self)
        await relay.set(Faults())
        return relay

    async def _stop(self) -> None:
        await self._relay.close()
        await self._loop.shutdown_default_executor()

    def stage_for(self, key: int) -> Stage | None:
        """Returns the stage at which the action runs, if it is for this kind of request."""
        return self._moment.stage if self._moment is not None and self._moment.key == key else None

    def act(self) -> bool:
        """Starts the action; returns False if another connection was first."""
        if self._moment is None:
            return False
        self._moment = None
        # After the frames that pass were written.
        self._loop.call_soon(self._loop.run_in_executor, None, self._run, self._action)
        return True

    def _run(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the test
            self._failure = error


class _TappedRelay(Relay):
    def __init__(self, routes: list[Route], tap: Tap) -> None:
        super().__init__(routes)
        self._tap = tap

    def passes_request(self, link: Link, api: int, correlation: bytes) -> bool:
        stage = self._tap.stage_for(api)
        if stage is Stage.RESPONDED:
            link.doomed[correlation] = api
        elif stage is not None:
            self._tap.act()
        return stage is not Stage.ON_ITS_WAY

    def passes_response(self, link: Link, correlation: bytes) -> bool:
        return link.doomed.pop(correlation, None) is None or not self._tap.act()
