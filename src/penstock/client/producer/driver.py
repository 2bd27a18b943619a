"""The I/O of a producer: sends the requests of `Sender` and `TransactionManager`.

Everything runs on one event loop; only `wake` may be called from any thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.client.coordinators import CoordinatorKind
from penstock.client.errors import AuthenticationError, IllegalStateError
from penstock.client.producer.sender import NEVER_MS, OutgoingProduce, Sender
from penstock.client.producer.transaction_request import TxnRequest, TxnResult
from penstock.client.settings import ProducerOptions
from penstock.core.errors import KafkaError, UnsupportedVersionError
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.produce import ProduceResponse

logger = logging.getLogger(__name__)

_MAX_SLEEP_MS: Final = 60_000


class ProducerDriver:
    """Runs the sender after every response, when batches become ready, and when a timer expires."""

    def __init__(
        self,
        settings: ProducerOptions,
        network: NetworkClient,
        sender: Sender,
        *,
        is_threaded: bool,
    ) -> None:
        """`is_threaded` says that records are appended on other threads than the loop's."""
        self._network = network
        self._sender = sender
        self._clock = network.clock
        self._retry_backoff_ms = settings["retry_backoff_ms"]
        self._max_in_flight = settings["max_in_flight_requests_per_connection"]
        self._loop = asyncio.get_running_loop()
        self._is_threaded = is_threaded
        self.is_woken = False
        """Whether the sender is going to run in the next iteration of the loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._transactional_task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._progress: asyncio.Future[None] | None = None
        # Batches may wait for a leader.
        network.metadata.listeners.append(lambda old, new: self.wake())

    def wake(self) -> None:
        """Runs the sender soon. Inexpensive if that is due anyway."""
        if self.is_woken:
            return
        self.is_woken = True
        if self._is_threaded:
            try:
                self._loop.call_soon_threadsafe(self._run_once)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise
        else:
            self._loop.call_soon(self._run_once)

    def _run_once(self) -> None:
        self.is_woken = False
        if self._is_closed:
            return
        try:
            delay_ms = self._run_sender()
        except Exception:
            logger.exception("the sender failed; it is run again")
            delay_ms = self._retry_backoff_ms
        self._schedule(delay_ms)
        self._notify_progress()

    def _run_sender(self) -> int:
        sender = self._sender
        if not sender.check_state():
            return self._retry_backoff_ms if sender.accumulator.has_incomplete() else NEVER_MS
        if sender.manager is not None and self._transactional_task is None:
            request = sender.next_transactional_request()
            if request is not None:
                sender.manager.in_flight = request
                self._transactional_task = asyncio.ensure_future(self._request_coordinator(request))
        while True:
            plan = sender.run_once(self._can_send, self._clock.monotonic_ms())
            for node_id in plan.connect:
                self._connect(node_id)
            if not plan.requests:
                return plan.delay_ms
            for produce in plan.requests:
                self._send(produce)

    def _can_send(self, node_id: int) -> bool:
        network = self._network
        return network.is_ready(node_id) and network.in_flight(node_id) < self._max_in_flight

    def _send(self, produce: OutgoingProduce) -> None:
        try:
            if produce.acks == 0:
                self._network.send_without_response_now(
                    produce.node_id, produce.build, ProduceResponse
                )
                self._sender.handle_response(produce, None, self._clock.monotonic_ms())
                return
            future = self._network.send_now(
                produce.node_id,
                produce.build,
                ProduceResponse,
                max_version=produce.max_version,
            )
        except KafkaError as error:
            self._sender.handle_failure(produce, error, self._clock.monotonic_ms())
            return
        future.add_done_callback(lambda done: self._on_response(produce, done))

    def _on_response(
        self, produce: OutgoingProduce, future: "asyncio.Future[ProduceResponse]"
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._sender.handle_response(produce, future.result(), now_ms)
        elif isinstance(error, KafkaError):
            self._sender.handle_failure(produce, error, now_ms)
        else:
            raise error
        # Directly instead of through `wake`, so that the next request is sent at once.
        self._run_once()

    def _connect(self, node_id: int) -> None:
        network = self._network
        if network.is_ready(node_id) or node_id in self._connecting:
            return
        self._connecting[node_id] = asyncio.ensure_future(self._wait_ready(node_id))

    async def _wait_ready(self, node_id: int) -> None:
        try:
            await self._network.ready(node_id)
        except (AuthenticationError, UnsupportedVersionError) as error:
            self._sender.fail_node(node_id, error, self._clock.monotonic_ms())
        except KafkaError as error:
            logger.info("no connection to broker %s: %s", node_id, error.message)
            self._network.metadata.request_update()
            # The batches for this broker are checked again when the next attempt is due.
            now_ms = self._clock.monotonic_ms()
            await asyncio.sleep(max(10, self._network.backoff_ms(node_id, now_ms)) / 1000)
        finally:
            self._connecting.pop(node_id, None)
            self.wake()

    def _schedule(self, delay_ms: int) -> None:
        due = self._loop.time() + min(delay_ms, _MAX_SLEEP_MS) / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._run_once()

    # --- coordinators

    async def _request_coordinator(self, request: TxnRequest[Message]) -> None:
        manager = self._sender.manager
        assert manager is not None
        try:
            await self._send_to_coordinator(request)
        except asyncio.CancelledError:
            raise
        except (AuthenticationError, UnsupportedVersionError) as error:
            request.fail_fatally(error)
            manager.fail_authentication(error)
        except KafkaError as error:
            logger.info("%s: %s", request.result.operation, error.message)
            if error.code.retriable:
                request.handle_disconnect()
            else:
                request.fail_fatally(error)
        finally:
            manager.in_flight = None
            self._transactional_task = None
            self.wake()

    async def _send_to_coordinator(self, request: TxnRequest[Message]) -> None:
        network = self._network
        manager = self._sender.manager
        assert manager is not None
        if request.is_retry:
            await asyncio.sleep(request.backoff_ms / 1000)
        if request.coordinator is None:
            node_id = network.least_loaded_node()
        else:
            node = manager.coordinators.get(request.coordinator)
            if node is None:
                manager.look_up_coordinator(*request.coordinator)
                manager.enqueue(request)
                return
            network.add_node(node)
            node_id = node.id
        await network.ready(node_id)
        if (
            request.coordinator is not None
            and request.coordinator[0] is CoordinatorKind.TRANSACTION
        ):
            manager.set_coordinator_version(
                network.version_of(node_id, ApiKey.INIT_PRODUCER_ID) or 0
            )
        response = await network.request(
            node_id,
            request.build,
            request.response_type,
            max_version=request.max_version,
        )
        request.handle(response)

    def transaction_version(self) -> int | None:
        """Returns the `transaction.version` of the cluster; None while no broker is connected."""
        nodes = set(self._network.metadata.cluster.nodes)
        if (manager := self._sender.manager) is not None:
            nodes |= {node.id for node in manager.coordinators.values()}
        levels = [
            self._network.features_of(node_id).get("transaction.version", 0)
            for node_id in nodes
            if self._network.supported_versions(node_id)
        ]
        return max(levels, default=None)

    async def await_result(self, result: TxnResult, timeout_ms: int) -> None:
        """Waits for the result of a user's call, acknowledges it, and raises its error.

        Raises KafkaTimeoutError after `timeout_ms`; the call continues in the background.
        """
        self.wake()
        done: asyncio.Future[None] = self._loop.create_future()

        def complete() -> None:
            if not done.done():
                done.set_result(None)

        result.add_done_callback(complete)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await done
        except TimeoutError:
            raise self._network.timeout_error(
                f"{result.operation} did not complete within {timeout_ms} ms: call it again, it "
                "continues in the background; or check that the brokers can be reached"
            ) from None
        result.is_acknowledged = True
        if result.error is not None:
            raise result.error

    # --- closing

    async def close(self, timeout_ms: int | None) -> None:
        """Delivers pending batches and aborts an open transaction; fails both after the timeout."""
        if self._is_closed:
            return
        sender = self._sender
        sender.accumulator.close()
        is_delivered = False
        if timeout_ms is None or timeout_ms > 0:
            is_delivered = await self._deliver(timeout_ms)
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._connecting.values()]
        if self._transactional_task is not None:
            tasks.append(self._transactional_task)
        for task in tasks:
            task.cancel()
        if not is_delivered:
            if sender.manager is not None:
                sender.manager.close()
            sender.accumulator.abort_incomplete(
                IllegalStateError("the producer was closed before this record was delivered")
            )
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._network.close()

    async def _deliver(self, timeout_ms: int | None) -> bool:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._until(self._is_delivered)
                manager = self._sender.manager
                if manager is not None and manager.has_ongoing_transaction:
                    if not manager.is_completing:
                        logger.info("aborting the open transaction, because the producer is closed")
                        manager.begin_abort(self.transaction_version())
                    await self._until(lambda: not manager.has_ongoing_transaction)
        except (TimeoutError, KafkaError):
            return False
        return True

    def _is_delivered(self) -> bool:
        sender = self._sender
        manager = sender.manager
        if sender.accumulator.has_incomplete():
            return False
        return manager is None or not (
            manager.has_pending_requests and manager.has_ongoing_transaction
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        self.wake()
        while not condition():
            self._progress = self._loop.create_future()
            await self._progress

    def _notify_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)
