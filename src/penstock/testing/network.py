"""The network between a broker and its clients, with faults that tests switch on and off."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from penstock.protocol.api_key import ApiKey
from penstock.testing.addresses import Route
from penstock.testing.child import RESPONSE_SECONDS, Child
from penstock.testing.cuts import Direction
from penstock.testing.errors import BrokerError
from penstock.testing.faults import Faults, LostReplies


class RelayProcess:
    """The process of one or several relays.

    A process of their own keeps them running when tests block, fork, hold the interpreter or
    replace threads.

    relays: the routes of each relay, by its name.
    store: the directory of a cluster's metadata store, which the process serves at a socket there.
    remove: a directory that is removed when the tests have ended without `close`.
    """

    def __init__(
        self,
        relays: Mapping[str, Sequence[Route]],
        log: Path,
        *,
        store: Path | None = None,
        remove: Path | None = None,
    ) -> None:
        command = {
            "routes": relays,
            "store": None if store is None else str(store),
            "remove": None if remove is None else str(remove),
        }
        self._child = Child("penstock.testing.relay_main", log=log)
        self._is_ready = False
        try:
            self._child.send(command)
        except BaseException:
            self._child.kill()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_until_ready(self) -> None:
        if not self._is_ready:
            self._child.receive(RESPONSE_SECONDS)
            self._is_ready = True

    def request(self, command: Mapping[str, object]) -> dict[str, object]:
        self.wait_until_ready()
        return self._child.request(command)

    def set_cuts(self, cuts: Iterable[Direction]) -> None:
        """Replaces the directions in which no bytes pass."""
        self.request({"cuts": list(cuts)})

    def close(self) -> None:
        self._child.kill()


def open_network(routes: Sequence[Route], log: Path) -> "Network":
    """Starts a process with one relay."""
    return Network(RelayProcess({"": routes}, log), "", routes)


class Network:
    """A relay between a broker and its clients, and the faults that are active.

    All connections are refused until `set_up(True)`.
    """

    def __init__(self, relays: RelayProcess, name: str, routes: Sequence[Route]) -> None:
        self.relays = relays
        self._name = name
        self._routes = routes
        self._is_up = False
        self._changes: list[Callable[[Faults], Faults]] = []

    def set_up(self, is_up: bool) -> None:
        """Sets whether the broker is up; if it is not, connections are refused."""
        self._is_up = is_up
        self._apply()

    def heal(self) -> None:
        """Ends all faults."""
        if self._changes:
            self._changes.clear()
            self._apply()

    def close(self) -> None:
        """Ends the process of the relay."""
        self.relays.close()

    def cut(self) -> None:
        self._request({"cut": True})

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        with self._fault(lambda faults: faults._replace(refuses=True)):
            yield

    @contextlib.contextmanager
    def slow(self, latency_ms: float, bytes_per_second: float) -> Iterator[None]:
        if latency_ms < 0 or bytes_per_second < 0 or latency_ms == bytes_per_second == 0:
            raise ValueError("slow() needs latency_ms or bytes_per_second, above 0")
        with self._fault(
            lambda faults: faults._replace(latency_ms=latency_ms, bytes_per_second=bytes_per_second)
        ):
            yield

    @contextlib.contextmanager
    def losing_replies(
        self, *apis: ApiKey, times: int | None = None, silently: bool = False
    ) -> Iterator[LostReplies]:
        if not all(route.readable for route in self._routes):
            raise BrokerError(
                "losing_replies() cannot tell requests apart on a listener with SSL",
                remedy="use cut(), refused() or paused(), or a listener without SSL",
            )
        lost = LostReplies(self._read_lost_count)
        with self._fault(
            lambda faults: faults._replace(
                loses_responses=True,
                lost_apis=tuple(map(int, apis)),
                max_lost=-1 if times is None else times,
                loses_silently=silently,
            )
        ):
            try:
                yield lost
            finally:
                lost.freeze()

    def _read_lost_count(self) -> int:
        return int(str(self._request({})["lost"]))

    @contextlib.contextmanager
    def _fault(self, change: Callable[[Faults], Faults]) -> Iterator[None]:
        self._changes.append(change)
        try:
            self._apply()
            yield
        finally:
            if change in self._changes:  # heal() may have removed it
                self._changes.remove(change)
                self._apply()

    def _apply(self) -> None:
        faults = Faults()
        for change in self._changes:
            faults = change(faults)
        if not self._is_up:
            faults = faults._replace(refuses=True)
        self._request({"set": faults._asdict()})

    def _request(self, command: Mapping[str, object]) -> dict[str, object]:
        return self.relays.request({"relay": self._name, **command})
