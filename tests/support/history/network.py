"""The network of a cluster on one machine: relays between any two of its processes.

No privileges are needed: there are no namespaces and no packet filters. Every process has an
address of its own in 127.0.0.0/8, and every other process reaches it through a relay only:

- a broker advertises the address of its relays, one for clients and one for other brokers;
- each broker has a relay to ZooKeeper.

A connection to a broker's relay for brokers begins with a request whose client id names the broker
that connects ("1", or "broker-1-fetcher-0"), so a cut applies to two brokers and no others. The
relays are those of `penstock.testing`: see `penstock.testing.relay.Cuts` for what a cut does.
"""

import asyncio
import threading
from collections.abc import Coroutine
from itertools import product
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.testing.addresses import Route
from penstock.testing.cuts import CLIENTS, Direction, broker_name
from penstock.testing.faults import Faults
from penstock.testing.relay import Cuts, Relay

T = TypeVar("T")

ZOOKEEPER = "zookeeper"
CLIENT_PORT = 9092
BROKER_PORT = 9093
ZOOKEEPER_PORT = 2181
_RELAYS = 100
"""The relays of broker n have the address 127.x.y.(100 + n), the broker has 127.x.y.n."""

__all__ = [
    "BROKER_PORT",
    "CLIENTS",
    "CLIENT_PORT",
    "ZOOKEEPER",
    "ZOOKEEPER_PORT",
    "Network",
    "broker_name",
]


class Network:
    """The relays of a cluster, on a thread of their own."""

    def __init__(self, broker_ids: tuple[int, ...], zookeeper: tuple[str, int]) -> None:
        self._broker_ids = broker_ids
        self._zookeeper = zookeeper
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._cuts = Cuts()
        self._relays: list[Relay] = []
        self._prefix = ""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._listen())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def address(self, broker_id: int) -> str:
        """The address that a broker binds."""
        return f"{self._prefix}.{broker_id}"

    def relay_address(self, broker_id: int) -> str:
        """The address that a broker advertises, and at which it finds ZooKeeper."""
        return f"{self._prefix}.{_RELAYS + broker_id}"

    @property
    def bootstrap(self) -> str:
        return ",".join(
            f"{self.relay_address(number)}:{CLIENT_PORT}" for number in self._broker_ids
        )

    def cut(self, source: str, target: str, *, one_way: bool = False, resets: bool = False) -> None:
        """Holds back bytes from `source` to `target`, and those of the other direction too unless
        `one_way`. With `resets`, connections are reset first."""
        directions = {Direction(source, target)}
        if not one_way:
            directions.add(Direction(target, source))
        self._run(self._apply_cut(directions, resets=resets))

    def heal(self, source: str, target: str, *, resets: bool = False) -> None:
        """Ends the cuts between two processes, in both directions."""
        self._run(self._apply_heal({source, target}, resets=resets))

    def heal_all(self) -> None:
        for direction in tuple(self._cuts.directions):
            self.heal(direction.source, direction.target)

    # --- on the loop

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> None:
        """Chooses addresses that no other cluster of this machine uses."""
        rng = Random()
        while True:
            self._prefix = f"127.{rng.randint(64, 250)}.{rng.randint(1, 250)}"
            try:
                for number in self._broker_ids:
                    await self._listen_for(number)
            except OSError:
                await self._close()
            else:
                return

    async def _listen_for(self, broker_id: int) -> None:
        name, broker = broker_name(broker_id), self.address(broker_id)
        host = self.relay_address(broker_id)
        routes = [
            Route(host, CLIENT_PORT, broker, CLIENT_PORT, False, CLIENTS, name),
            Route(host, BROKER_PORT, broker, BROKER_PORT, False, None, name),
            Route(host, ZOOKEEPER_PORT, *self._zookeeper, False, name, ZOOKEEPER),
        ]
        relay = Relay(routes, self._cuts)
        self._relays.append(relay)
        await relay.set(Faults())

    async def _close(self) -> None:
        for relay in self._relays:
            await relay.close()
        self._relays.clear()

    async def _apply_cut(self, directions: set[Direction], *, resets: bool) -> None:
        self._cuts.replace(self._cuts.directions | directions)
        if resets:
            await self._reset(*directions)

    async def _apply_heal(self, processes: set[str], *, resets: bool) -> None:
        if resets:
            await self._reset(Direction(*processes))
        ended = set(map(Direction._make, product(processes, processes)))
        self._cuts.replace(self._cuts.directions - ended)
        for relay in self._relays:
            relay.release()

    async def _reset(self, *directions: Direction) -> None:
        for direction in directions:
            for relay in self._relays:
                relay.reset_links(direction)
        await asyncio.sleep(0)  # transports close their sockets in the next iteration of the loop
