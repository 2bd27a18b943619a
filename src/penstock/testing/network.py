"""The network between a broker and its clients, which fails as a test wants it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.protocol.api_key import ApiKey
from penstock.testing.addresses import Route
from penstock.testing.child import ANSWER_SECONDS, Child
from penstock.testing.errors import BrokerError
from penstock.testing.faults import Faults, LostReplies


class Network:
    """A relay in a process of its own, and the faults that are on.

    So it goes on whatever the tests do: hold the interpreter, block, fork, replace threads. It is
    down, which refuses all connections, until it is told otherwise.
    """

    def __init__(self, routes: Sequence[Route], log: Path) -> None:
        self._routes = routes
        self._relay = Child("penstock.testing.relay_main", {"routes": routes}, log=log)
        self._is_ready = False
        self._is_up = False
        self._changes: list[Callable[[Faults], Faults]] = []

    def set_up(self, is_up: bool) -> None:
        self._is_up = is_up
        self._apply()

    def heal(self) -> None:
        """Ends all faults."""
        if self._changes:
            self._changes.clear()
            self._apply()

    def close(self) -> None:
        self._relay.kill()

    def cut(self) -> None:
        self._ask({"cut": True})

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        with self._fault(lambda now: now._replace(refused=True)):
            yield

    @contextlib.contextmanager
    def slow(self, latency_ms: float, bytes_per_second: float) -> Iterator[None]:
        if latency_ms < 0 or bytes_per_second < 0 or latency_ms == bytes_per_second == 0:
            raise ValueError("slow() needs latency_ms or bytes_per_second, above 0")
        with self._fault(
            lambda now: now._replace(latency_ms=latency_ms, bytes_per_second=bytes_per_second)
        ):
            yield

    @contextlib.contextmanager
    def losing_replies(
        self, *apis: ApiKey, times: int | None = None, silently: bool = False
    ) -> Iterator[LostReplies]:
        if not all(route.readable for route in self._routes):
            raise BrokerError(
                "losing_replies() cannot tell requests apart on a listener with SSL: use cut(), "
                "refused() or paused(), or a listener without SSL"
            )
        lost = LostReplies(self._lost)
        with self._fault(
            lambda now: now._replace(
                losing=True,
                lost_apis=tuple(map(int, apis)),
                lost_times=-1 if times is None else times,
                lost_silently=silently,
            )
        ):
            try:
                yield lost
            finally:
                lost.settle()

    def _lost(self) -> int:
        return int(str(self._ask({})["lost"]))

    @contextlib.contextmanager
    def _fault(self, change: Callable[[Faults], Faults]) -> Iterator[None]:
        self._changes.append(change)
        try:
            self._apply()
            yield
        finally:
            if change in self._changes:  # heal() may have been quicker
                self._changes.remove(change)
                self._apply()

    def _apply(self) -> None:
        faults = Faults()
        for change in self._changes:
            faults = change(faults)
        if not self._is_up:
            faults = faults._replace(refused=True)
        self._ask({"set": faults._asdict()})

    def _ask(self, order: dict[str, object]) -> dict[str, object]:
        if not self._is_ready:
            self._relay.hear(ANSWER_SECONDS)
            self._is_ready = True
        return self._relay.ask(order)
