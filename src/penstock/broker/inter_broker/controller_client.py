"""Requests of this broker to the controller, whichever broker that is at present.

    response = await client.send(AllocateProducerIdsRequest(…), AllocateProducerIdsResponse)

If this broker is the controller itself, the request is handled in process, without
encoding it (`ControllerApi`). Otherwise it is sent over the inter-broker listener.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.net.client.errors import AuthenticationError
from penstock.protocol.fields import Message

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

RETRY_DELAY_S: Final = 0.05
"""How long a request waits before it looks for the controller again."""
_CHECK_S: Final = 0.1
"""How often a request without a response checks whether another broker is the controller."""

_RETRIED: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)


class ControllerDirectory(Protocol):
    """Where the controller is, such as a `ClusterImage`; -1 if there is none at present."""

    @property
    def controller_id(self) -> int: ...


LocalController = Callable[[Message], Awaitable[Message]]
"""Handles a request if this broker is the controller; raises KafkaError NOT_CONTROLLER if not."""


class ControllerClient:
    """Sends requests to the current controller. It belongs to the event loop."""

    def __init__(
        self,
        broker_id: int,
        directory: ControllerDirectory,
        client: InterBrokerClient,
        local: LocalController,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._directory = directory
        self._client = client
        self._local = local
        self._clock = clock

    async def send(
        self, message: Message, response_type: type[R], *, timeout_ms: int | None = None
    ) -> R:
        """Returns the controller's response, which may have any error except NOT_CONTROLLER.

        While there is no controller, or it cannot be reached, or it has resigned, the request is
        sent again, so it may take effect more than once. Raises the last KafkaError when
        `timeout_ms` has passed; None retries until the caller cancels.
        """
        start_ms = self._clock.monotonic_ms()
        while True:
            try:
                return await self._send_once(message, response_type)
            except UnsupportedVersionError:
                raise
            except KafkaError as error:
                if error.code not in _RETRIED and not isinstance(error, AuthenticationError):
                    raise
                elapsed_ms = self._clock.monotonic_ms() - start_ms
                if timeout_ms is not None and elapsed_ms >= timeout_ms:
                    raise
                _log_retry(message, error)
            await asyncio.sleep(RETRY_DELAY_S)

    async def _send_once(self, message: Message, response_type: type[R]) -> R:
        controller_id = self._directory.controller_id
        if controller_id == self._broker_id:
            local_response = await self._local(message)
            assert isinstance(local_response, response_type)
            response = local_response
        elif controller_id < 0:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, "the cluster has no controller at present", remedy="wait"
            )
        else:
            response = await self._request(controller_id, message, response_type)
        if ErrorCode.NOT_CONTROLLER in _error_codes(response):
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"broker {controller_id} is not the controller any more"
            )
        return response

    async def _request(self, controller_id: int, message: Message, response_type: type[R]) -> R:
        """Sends a request to another broker; raises NOT_CONTROLLER when it is replaced first.

        A controller that is paused or cut off would otherwise hold the request back until it
        times out, long after the next one was elected.
        """
        request = asyncio.ensure_future(self._client.request(controller_id, message, response_type))
        try:
            while not (await asyncio.wait([request], timeout=_CHECK_S))[0]:
                if self._directory.controller_id != controller_id:
                    raise KafkaError(
                        ErrorCode.NOT_CONTROLLER,
                        f"broker {controller_id} is not the controller any more, and is silent",
                    )
            return request.result()
        finally:
            request.cancel()


def _error_codes(element: Any) -> Iterator[int]:
    """Yields the error codes of a response and of its topics.

    Not those of partitions: AlterPartition must not wait until all partitions are accepted.
    """
    yield getattr(element, "error_code", 0)
    for topic in getattr(element, "topics", ()):
        yield getattr(topic, "error_code", 0)


def _log_retry(message: Message, error: KafkaError) -> None:
    name = type(message).__name__
    if isinstance(error, AuthenticationError):
        logger.error("%s is sent again, the controller refused the login: %s", name, error.message)
    else:
        logger.debug("%s is sent again: %s", name, error.message)
