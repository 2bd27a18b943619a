"""The memory budget of a broker: what requests in progress may take, over all connections.

Memory is reserved before it is used and released when the work is done. A reservation that does not
fit waits, in the order of its kind, and is granted as soon as others are released::

    reservation = budget.reserve(size, MemoryKind.LARGE, on_granted)
    if reservation.is_granted: ...      # otherwise `on_granted` is called later
    reservation.release()

Each kind may fill the budget only up to its own limit, so that small requests never wait behind
large ones, nor clients that have logged in behind strangers, nor decompression behind requests that
are still being received. Everything but the loss of a reservation happens on the event loop.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final

SMALL: Final = 64 * 1024
MEDIUM: Final = 4 * 1024 * 1024
"""More than an ordinary Produce request has: `message.max.bytes` is 1 MiB."""
_PARTS: Final = 16
_NONE: Final = 2**63


class MemoryKind(IntEnum):
    """What memory is reserved for; in the order in which waiting reservations are granted."""

    LOGIN = 0
    """A request of a client that has not logged in."""
    SMALL = 1
    MEDIUM = 2
    LARGE = 3
    WORK = 4
    """Decompression, recompression and down-conversion on a thread."""
    DECODED = 5
    """The body of a request with many elements, which takes far more than its bytes."""


_LIMITS: Final = (1, 9, 8, 6, 4, 1)
"""Sixteenths of the budget, by kind. Those of medium requests include the large ones, those of
small requests both. One sixteenth is left for responses."""
_RESPONSES: Final = 1

_SHARED: Final = (
    (MemoryKind.LOGIN,),
    (MemoryKind.SMALL, MemoryKind.MEDIUM, MemoryKind.LARGE),
    (MemoryKind.MEDIUM, MemoryKind.LARGE),
    (MemoryKind.LARGE,),
    (MemoryKind.WORK,),
    (MemoryKind.DECODED,),
)
"""The kinds that count against the limit of each kind."""
_FIRST_REQUEST: Final = 1
_SMALL_KIND: Final = 1
_LAST_REQUEST: Final = 3


def kind_of_request(size: int) -> MemoryKind:
    """Returns the kind of a request of a client that has logged in."""
    if size > MEDIUM:
        return MemoryKind.LARGE
    return MemoryKind.MEDIUM if size > SMALL else MemoryKind.SMALL


class Reservation:
    """Memory that is reserved, or a place in the queue for it."""

    __slots__ = ("_budget", "_is_open", "_on_granted", "is_granted", "kind", "size")

    def __init__(
        self, budget: "MemoryBudget", size: int, kind: MemoryKind, on_granted: Callable[[], None]
    ) -> None:
        self._budget = budget
        self._on_granted = on_granted
        self._is_open = True
        self.size = size
        self.kind = kind
        self.is_granted = False

    def release(self) -> None:
        """Releases the memory, or leaves the queue. Does nothing if it was called before."""
        if self._is_open:
            self._is_open = False
            self._budget._release(self)

    def __del__(self) -> None:
        # The garbage collector may call this on any thread.
        if self._is_open:
            self._budget._lost.append((self.kind, self.size if self.is_granted else 0))


class MemoryBudget:
    """Reservations up to `total` bytes, and the queues of those that wait.

    `max_request_bytes` is Kafka's `queued.max.request.bytes`: no request is received while those in
    progress have as many bytes; 0 or less for no limit. `on_pressure` is called with True when most
    of the memory for requests is taken, and with False when it no longer is.
    """

    def __init__(
        self,
        total: int,
        max_request_bytes: int = 0,
        on_pressure: Callable[[bool], None] = lambda is_tight: None,
    ) -> None:
        self.on_pressure = on_pressure
        self._used = [0] * len(MemoryKind)
        self._request_bytes = 0
        """The sum of small, medium and large requests."""
        self._queues: list[OrderedDict[Reservation, None]] = [OrderedDict() for _ in MemoryKind]
        self._lost: deque[tuple[MemoryKind, int]] = deque()
        self._is_tight = False
        self.waiting = 0
        """The number of reservations that wait."""
        self.response_bytes = 0
        """Bytes of responses that clients have not read yet, as counted last."""
        self.resize(total, max_request_bytes)

    def resize(self, total: int, max_request_bytes: int = 0) -> None:
        """Changes the limits; what is reserved already stays."""
        self.total = total
        self._limits = [total * parts // _PARTS for parts in _LIMITS]
        self._tight_limit = self.largest_request // 2
        assert self._tight_limit <= min(self._limits[_FIRST_REQUEST : _LAST_REQUEST + 1])
        self._max_request_bytes = max_request_bytes if max_request_bytes > 0 else _NONE

    @property
    def used(self) -> int:
        """Bytes that are reserved."""
        return sum(self._used)

    def limit(self, kind: MemoryKind) -> int:
        """Returns the limit of a kind. A single large request may exceed that of its kind."""
        return self._limits[kind]

    @property
    def largest_request(self) -> int:
        """The size of the largest request that can be granted at all."""
        return self._limits[MemoryKind.SMALL]

    @property
    def response_limit(self) -> int:
        """Beyond so many bytes of responses, connections whose client does not read are closed."""
        return self.total * _RESPONSES // _PARTS

    def reserve(
        self, size: int, kind: MemoryKind, on_granted: Callable[[], None] = lambda: None
    ) -> Reservation:
        """Reserves memory, or queues the reservation and calls `on_granted` when it is granted.

        The caller checks `largest_request` before; work that may take more than its limit is
        granted when no other work is in progress.
        """
        reservation = Reservation(self, size, kind, on_granted)
        request_bytes = self._request_bytes + size
        if (
            not self.waiting
            and _FIRST_REQUEST <= kind <= _LAST_REQUEST
            and request_bytes <= self._tight_limit
            and request_bytes <= self._max_request_bytes
        ):
            # The usual case: less than any limit of requests.
            reservation.is_granted = True
            self._used[kind] += size
            self._request_bytes = request_bytes
        elif not self._queues[kind] and self._fits(reservation):
            self._grant(reservation)
        else:
            self._queues[kind][reservation] = None
            self.waiting += 1
        return reservation

    def add(self, size: int) -> None:
        """Counts memory of small requests that is in use already."""
        self._used[_SMALL_KIND] += size
        self._add_request(size)

    def subtract(self, size: int) -> None:
        """Undoes `add`."""
        self._used[_SMALL_KIND] -= size
        self._add_request(-size)
        if self.waiting:
            self._grant_waiting()

    def collect(self) -> None:
        """Releases what was reserved by work that ended without a release. Call it regularly."""
        while self._lost:
            kind, size = self._lost.popleft()
            self._count(kind, -size)
        self._grant_waiting()

    def _fits(self, reservation: Reservation) -> bool:
        kind, size = reservation.kind, reservation.size
        shared = sum(self._used[shared_kind] for shared_kind in _SHARED[kind])
        is_within_limit = shared + size <= self._limits[kind]
        if kind in (MemoryKind.WORK, MemoryKind.DECODED):
            return is_within_limit or not shared
        if kind is MemoryKind.LOGIN:
            return is_within_limit
        request_bytes = self._request_bytes
        if request_bytes >= self._max_request_bytes or request_bytes + size > self.largest_request:
            return False
        # Alone, a large request may take what is left of the memory for requests.
        return is_within_limit or (kind is MemoryKind.LARGE and not shared)

    def _grant(self, reservation: Reservation) -> None:
        reservation.is_granted = True
        self._count(reservation.kind, reservation.size)

    def _release(self, reservation: Reservation) -> None:
        if reservation.is_granted:
            self._count(reservation.kind, -reservation.size)
        else:
            del self._queues[reservation.kind][reservation]
            self.waiting -= 1
        if self.waiting:
            self._grant_waiting()

    def _grant_waiting(self) -> None:
        for queue in self._queues:
            while queue and self._fits(reservation := next(iter(queue))):
                del queue[reservation]
                self.waiting -= 1
                self._grant(reservation)
                reservation._on_granted()

    def _count(self, kind: MemoryKind, size: int) -> None:
        self._used[kind] += size
        if _FIRST_REQUEST <= kind <= _LAST_REQUEST:
            self._add_request(size)

    def _add_request(self, size: int) -> None:
        self._request_bytes = request_bytes = self._request_bytes + size
        if (request_bytes > self._tight_limit) is not self._is_tight:
            self._is_tight = not self._is_tight
            self.on_pressure(self._is_tight)
