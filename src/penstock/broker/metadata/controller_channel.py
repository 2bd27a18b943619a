"""The controller's requests to the other brokers: one queue per broker (R6).

A broker gets LeaderAndIsr, UpdateMetadata and StopReplica strictly in the order of the events. A
request that fails, or that the broker cannot apply at present, is repeated until the broker has
applied it or refused it as outdated, leaves the cluster, or the controller resigns. What waits in
the queue of a slow broker is merged (`control_merging`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.workers import Workers
from penstock.controller.broker_updates import BrokerUpdate, OfflineReplicas, deletion_errors
from penstock.controller.control_merging import merge
from penstock.controller.control_requests import (
    ControlRequest,
    ControlRequests,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Change
from penstock.controller.received_updates import (
    update_of_stop_replica,
)
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.errors import error_code_of
from penstock.net.client.network_client import Encoder
from penstock.protocol.api import api
from penstock.protocol.fields import Message
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from penstock.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

logger = logging.getLogger(__name__)

_RETRY_DELAY_S: Final = 0.1
_ATTEMPTS_BEFORE_WARNING: Final = 20
"""Failed attempts that are not worth a warning: a broker that stops closes its listeners first."""
_ATTEMPTS_PER_WARNING: Final = 100
"""While a broker cannot be reached, every so many attempts the log says so."""
_FINAL_ERRORS: Final = frozenset(
    (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
)
"""A request with another error is sent again: the broker may be without the store, for example."""
_LARGE: Final = 1000
"""Requests with more partitions are encoded on a thread."""


class ControlResult(NamedTuple):
    """The responses of a broker to the requests of an event."""

    broker_id: int
    broker_epoch: int
    error: ErrorCode
    """Why the broker refused a request as a whole, such as STALE_CONTROLLER_EPOCH."""
    partition_errors: Mapping[TopicPartition, ErrorCode]
    """Errors of replicas that could not be made leader or follower; KAFKA_STORAGE_ERROR: offline.
    NONE for the others."""
    stop_errors: Mapping[TopicPartition, ErrorCode]
    """The replicas that were deleted, with NONE, and those that could not be."""


ResultListener = Callable[[ControlResult], None]


class ControllerChannelManager:
    """The queues of all other brokers, while this broker is the controller.

    `image` is that of the controller; `prepare` and `send` read it at once. `on_result` is called
    on the event loop with each response. `offline_replicas` are the replicas in failed log
    directories of live brokers, always the current ones. Large requests are encoded on a thread of
    `workers`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        clock: Clock,
        on_result: ResultListener,
        workers: Workers,
        offline_replicas: OfflineReplicas = MappingProxyType({}),
    ) -> None:
        self._encode_with: Encoder = partial(workers.run, workers.codec)
        self._image = image
        self._listener = config.inter_broker_listener
        self._on_result = on_result
        self._offline_replicas = offline_replicas
        self._client = InterBrokerClient(
            config, image, clock, listener=config.control_plane_listener
        )
        self._queues: dict[int, _BrokerQueue] = {}
        self._event: tuple[Sequence[Change], ControlRequests] | None = None
        """The last event and its requests, which are built once for all brokers."""
        self._prepared: dict[int, tuple[BrokerUpdate, list[ControlRequest]]] = {}

    def prepare(self, updates: Mapping[int, BrokerUpdate]) -> None:
        """Builds the requests of updates that are sent next, before the image changes again.

        It may run on another thread: an event may concern all partitions of the cluster.
        """
        self._prepared = {
            broker_id: (update, self._requests_of_event(update).of(update))
            for broker_id, update in updates.items()
        }

    def send(self, broker: BrokerRecord, update: BrokerUpdate) -> None:
        """Queues the requests of an update after all earlier ones of this broker."""
        queue = self._queues.get(broker.broker_id)
        if queue is None or queue.broker_epoch != broker.epoch:
            self.remove(broker.broker_id)
            queue = _BrokerQueue(broker, self._client, self._on_result, self._encode_with)
            self._queues[broker.broker_id] = queue
        prepared_update, requests = self._prepared.pop(broker.broker_id, (None, []))
        if prepared_update is not update:
            requests = self._requests_of_event(update).of(update)
        queue.put(requests)

    def remove(self, broker_id: int) -> None:
        """Drops the queue of a broker that is down, and closes the connection to it."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            queue.close()
            self._client.disconnect(broker_id, f"broker {broker_id} has left the cluster")

    async def close(self) -> None:
        """Sends nothing more; what is queued is dropped."""
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()
        await self._client.close()

    def _requests_of_event(self, update: BrokerUpdate) -> ControlRequests:
        if self._event is None or self._event[0] is not update.metadata:
            requests = ControlRequests(self._image, self._listener, self._offline_replicas)
            self._event = update.metadata, requests
        return self._event[1]


class _BrokerQueue:
    """The requests that one registration of a broker has not received yet."""

    def __init__(
        self,
        broker: BrokerRecord,
        client: InterBrokerClient,
        on_result: ResultListener,
        encode_with: Encoder,
    ) -> None:
        self.broker_epoch = broker.epoch
        self._broker_id = broker.broker_id
        self._client = client
        self._on_result = on_result
        self._encode_with = encode_with
        self._waiting: deque[list[ControlRequest]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, requests: list[ControlRequest]) -> None:
        if not requests:
            return
        merged = merge(self._waiting[-1], requests) if self._waiting else None
        if merged is None:
            self._waiting.append(requests)
        else:
            self._waiting[-1] = merged
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                requests = self._waiting.popleft()
                responses = [(request, await self._send(request)) for request in requests]
                self._notify(responses)
        finally:
            self._task = None

    async def _send(self, request: ControlRequest) -> Message:
        """Returns the response of a broker that has the request, or a newer controller or epoch."""
        key = type(request).INFO.key
        assert key is not None
        response_type = api(key).response
        attempts = 0
        while True:
            try:
                response = await self._attempt(request, response_type)
                code = error_code_of(getattr(response, "error_code", 0))
                if code in _FINAL_ERRORS:
                    return response
                problem = f"it responded {code.name}"
            except KafkaError as error:
                problem = error.message
            attempts += 1
            if attempts % _ATTEMPTS_PER_WARNING == _ATTEMPTS_BEFORE_WARNING:
                logger.warning(
                    "broker %d did not apply %s of the controller, which is sent again: %s",
                    self._broker_id,
                    type(request).__name__,
                    problem,
                )
            await asyncio.sleep(_RETRY_DELAY_S)

    async def _attempt(self, request: ControlRequest, response_type: type[Message]) -> Message:
        client = self._client
        if sum(len(topic.partition_states) for topic in request.topic_states) > _LARGE:
            return await client.request_large(
                self._broker_id, request, response_type, self._encode_with
            )
        return await client.request(self._broker_id, request, response_type)

    def _notify(self, responses: Sequence[tuple[ControlRequest, Message]]) -> None:
        result = control_result(self._broker_id, self.broker_epoch, responses)
        if result.error is not ErrorCode.NONE:
            logger.warning(
                "broker %d refused a request of the controller: %s",
                self._broker_id,
                result.error.name,
            )
        try:
            self._on_result(result)
        except Exception:
            logger.exception("the response of broker %d could not be handled", self._broker_id)


def control_result(
    broker_id: int, broker_epoch: int, responses: Sequence[tuple[ControlRequest, Message]]
) -> ControlResult:
    """Returns what the responses to the requests of an event say."""
    error = ErrorCode.NONE
    partition_errors: dict[TopicPartition, ErrorCode] = {}
    stop_errors: dict[TopicPartition, ErrorCode] = {}
    for request, response in responses:
        code = error_code_of(getattr(response, "error_code", 0))
        if code is not ErrorCode.NONE:
            error = code
        match request, response:
            case LeaderAndIsrRequest(), LeaderAndIsrResponse():
                partition_errors.update(_partition_errors(request, response))
            case StopReplicaRequest(), StopReplicaResponse():
                errors = {
                    TopicPartition(state.topic_name, state.partition_index): error_code_of(
                        state.error_code
                    )
                    for state in response.partition_errors
                }
                stop_errors.update(deletion_errors(update_of_stop_replica(request).stops, errors))
    return ControlResult(broker_id, broker_epoch, error, partition_errors, stop_errors)


def _partition_errors(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> Iterator[tuple[TopicPartition, ErrorCode]]:
    names: dict[UUID, str] = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    for topic in response.topics:
        for state in topic.partition_errors:
            if topic.topic_id in names:
                key = TopicPartition(names[topic.topic_id], state.partition_index)
                yield key, error_code_of(state.error_code)
    for state in response.partition_errors:
        yield (
            TopicPartition(state.topic_name, state.partition_index),
            error_code_of(state.error_code),
        )
