"""Creation of topics and partitions: for clients, on a Metadata request, and internal topics.

A topic is only registered if its logs could be created; otherwise the response has their error.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request
from penstock.controller.image import ClusterImage
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.net.client.errors import error_code_of
from penstock.net.server.limits import LogRateLimiter
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.storage.manager.log_creation import LogCreationError

logger = logging.getLogger(__name__)


class NamedTopic(Protocol):
    """A topic, or new partitions of one, in a request."""

    @property
    def name(self) -> str: ...


_MAX_ATTEMPTS = 4
"""How often topics that there is no room for are left out; the last time, all of them are."""

_REPLICATION_SETTINGS = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}

R = TypeVar("R")
T = TypeVar("T", bound=NamedTopic)


async def create_if_room(
    controller: ControllerHost,
    request: Request,
    topics: Sequence[T],
    decide: Callable[[ClusterImage, list[T]], ControllerResult[R]],
) -> tuple[R, dict[str, LogCreationError]]:
    """Runs a decision for those topics whose new logs can be created.

    Returns its response, and the errors of the other topics by name.
    """
    errors: dict[str, LogCreationError] = {}

    def decide_on_others(image: ClusterImage) -> ControllerResult[R]:
        return decide(image, [topic for topic in topics if topic.name not in errors])

    for attempt in range(_MAX_ATTEMPTS):
        try:
            return await controller.run(decide_on_others, request), errors
        except LogCreationError as error:
            is_last = attempt == _MAX_ATTEMPTS - 2
            names = {topic.name for topic in topics} if is_last else error.topics
            errors = {**dict.fromkeys(sorted(names), error), **errors}
    raise AssertionError("a decision about no topic creates no logs")


class TopicCreator:
    """Creates topics through the controller, which may be another broker.

    It belongs to the event loop.
    """

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: ControllerClient,
        clock: Clock,
        *,
        is_single_node: bool,
    ) -> None:
        """`is_single_node` says that this broker is the only one its cluster can have."""
        self._config = config
        self._image = image
        self._controller = controller
        self._clock = clock
        self._log_limiter = LogRateLimiter()
        self._is_single_node = is_single_node
        self._in_progress: dict[str, asyncio.Task[None]] = {}
        """The topics that are being created: concurrent callers share one request."""
        self._waiting = 0
        """Callers of `create` that wait."""

    async def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a topic; -1 stands for the broker's default. Raises KafkaError if it cannot.

        If another broker is the controller, the image of this one contains the topic a little
        later. Raises LEADER_NOT_AVAILABLE, which clients retry, if too many requests wait.
        """
        limit = self._config.int("controller.queue.max.requests")
        if self._waiting >= limit:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"controller.queue.max.requests={limit} requests wait for the creation of topics",
                remedy="retry later, or raise the setting in the broker's settings",
            )
        task = self._in_progress.get(name)
        if task is None:
            topic = CreatableTopic(
                name,
                self._config.int("num.partitions") if partitions < 0 else partitions,
                self._config.int("default.replication.factor")
                if replication_factor < 0
                else replication_factor,
                configs=[CreatableTopicConfig(*config) for config in (configs or {}).items()],
            )
            task = asyncio.get_running_loop().create_task(self._create(topic))
            self._in_progress[name] = task
            task.add_done_callback(lambda done: self._created(name, done))
        self._waiting += 1
        try:
            await asyncio.shield(task)
        finally:
            self._waiting -= 1

    def _created(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._in_progress[name]
        if not task.cancelled():
            task.exception()  # callers raise it, unless they were cancelled

    async def _create(self, topic: CreatableTopic) -> None:
        timeout_ms = self._config.int("request.timeout.ms")
        response = await self._controller.send(
            CreateTopicsRequest([topic], timeout_ms), CreateTopicsResponse, timeout_ms=timeout_ms
        )
        result = response.topics[0]
        if result.error_code:
            raise KafkaError(error_code_of(result.error_code), result.error_message or "")

    def _explain(self, name: str, replication_factor: int, error: KafkaError) -> str:
        setting = _REPLICATION_SETTINGS.get(name)
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR or setting is None:
            return error.message
        brokers = len(self._image.brokers)
        return (
            f"{setting} is {replication_factor}, and {brokers} "
            f"{'broker is' if brokers == 1 else 'brokers are'} up; clients get "
            f"COORDINATOR_NOT_AVAILABLE until more brokers are started, or all brokers are "
            f"restarted with {setting}={brokers}"
        )

    async def create_internal(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Creates an internal topic unless it exists.

        A single node has one replica of it. In a cluster, too few brokers are an error, as in
        Kafka: the topic would keep the smaller replication factor when the others have started.
        """
        if self._is_single_node:
            replication_factor = min(replication_factor, len(self._image.brokers))
        try:
            await self.create(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            suppressed = self._log_limiter.allow(name, self._clock.monotonic_ms())
            if suppressed is not None:
                logger.error(
                    "%s cannot be created: %s (%d such lines were left out)",
                    name,
                    self._explain(name, replication_factor, error),
                    suppressed,
                )
            raise
