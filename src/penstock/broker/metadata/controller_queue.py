"""The requests of clients that wait for a decision of the controller.

Decisions are made one after the other, and one that creates many logs may take seconds. Until then
each waiting request has its connection and its memory, so that their number is limited
(`controller.queue.max.requests`), and a request whose client has left is dropped. Once its decision
has started, a request is completed, whatever the client does.

Brokers are not clients: their requests, and the controller's own decisions, are not counted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.broker.errors import ClientLeftError
from penstock.broker.request import Request
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api_key import ApiKey
from penstock.security.principal import Principal

DEFAULT_MAX_REQUESTS: Final = 500
_CHECK_S: Final = 1.0
"""How often it is checked whether clients have left."""
_THROTTLE_MS: Final = 1000

_FIRST_WITH_QUOTA_ERROR: Final[Mapping[ApiKey, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
_RETRIED_IF_NOT_CONTROLLER: Final = frozenset(
    (
        *_FIRST_WITH_QUOTA_ERROR,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    )
)


def busy_code(api_key: ApiKey, version: int) -> ErrorCode:
    """Returns the error after which Kafka's admin client sends a request again.

    For the other APIs there is none, and it passes REQUEST_TIMED_OUT on as an error that its
    caller may retry.
    """
    first_version = _FIRST_WITH_QUOTA_ERROR.get(api_key)
    if first_version is not None and version >= first_version:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if api_key in _RETRIED_IF_NOT_CONTROLLER:
        return ErrorCode.NOT_CONTROLLER
    return ErrorCode.REQUEST_TIMED_OUT


def throttle_ms(error: KafkaError) -> int:
    """Returns how long a client with this error waits before it sends the request again."""
    return _THROTTLE_MS if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED else 0


class WaitingRequest:
    """A request in the queue, until `start` or `drop`."""

    def __init__(self, queue: "ControllerQueue", request: Request) -> None:
        self.principal = request.session.principal
        self.session = request.session
        self.is_dropped = False
        self.task: asyncio.Task[Any] | None = None
        """Waits for its turn; cancelled if the request is dropped."""
        self._queue = queue

    def start(self) -> None:
        """Notes that the decision starts; the request is not dropped any more."""
        self._queue.remove(self)

    def drop(self) -> None:
        """Drops the request, because its client has left."""
        self.is_dropped = True
        self._queue.remove(self)
        if self.task is not None:
            self.task.cancel()


class ControllerQueue:
    """See the module. It belongs to the event loop."""

    def __init__(self, max_requests: Callable[[], int] = lambda: DEFAULT_MAX_REQUESTS) -> None:
        self._max_requests = max_requests
        self._waiting: dict[WaitingRequest, None] = {}
        self._by_principal: Counter[Principal] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, request: Request) -> WaitingRequest:
        """Adds a request; raises KafkaError if too many wait, ClientLeftError if its client left.

        One principal may have half of the places.
        """
        if request.session.has_left():
            raise ClientLeftError
        limit = self._max_requests()
        principal = request.session.principal
        is_principal_over = self._by_principal[principal] >= max(1, limit // 2)
        if is_principal_over or len(self._waiting) >= limit:
            whose = f"requests of {principal}" if is_principal_over else "requests"
            raise KafkaError(
                busy_code(request.api_key, request.version),
                f"too many {whose} wait for the controller: "
                f"controller.queue.max.requests={limit}, half of it for one principal",
                remedy="retry later, or raise the setting in the broker's settings",
            )
        waiting = WaitingRequest(self, request)
        self._waiting[waiting] = None
        self._by_principal[principal] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_S, self._drop_left)
        return waiting

    def remove(self, waiting: WaitingRequest) -> None:
        """Removes a request, if it has not been removed yet."""
        if waiting not in self._waiting:
            return
        del self._waiting[waiting]
        self._by_principal[waiting.principal] -= 1
        if not self._by_principal[waiting.principal]:
            del self._by_principal[waiting.principal]
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_left(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_CHECK_S, self._drop_left)
        for waiting in tuple(self._waiting):
            if waiting.session.has_left():
                waiting.drop()
