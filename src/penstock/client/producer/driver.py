"""The producer's loop: does what `Sender` and `TransactionManager` decide, on a `NetworkClient`.

Everything here runs on one event loop; `wake` alone may be called from any thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.client.errors import AuthenticationError, IllegalStateError
from penstock.client.producer.sender import NEVER_MS, ProduceCall, Sender
from penstock.client.producer.txn_request import Coordinator, TxnRequest, TxnResult
from penstock.client.settings import ProducerOptions
from penstock.core.errors import KafkaError, UnsupportedVersionError
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse

log = logging.getLogger(__name__)

_MAX_SLEEP_MS: Final = 60_000


class ProducerDriver:
    """Turns: after every answer, whenever the accumulator has something, and when time is up."""

    def __init__(
        self,
        settings: ProducerOptions,
        network: NetworkClient,
        sender: Sender,
        *,
        is_threaded: bool,
    ) -> None:
        """`is_threaded`: records are appended on other threads than the loop's."""
        self._network = network
        self._sender = sender
        self._clock = network.clock
        self._retry_backoff_ms = settings["retry_backoff_ms"]
        self._max_in_flight = settings["max_in_flight_requests_per_connection"]
        self._loop = asyncio.get_running_loop()
        self._is_threaded = is_threaded
        self.is_woken = False
        """Whether a turn is due as soon as the loop gets to it."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._transactional: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_closed = False
        self._settled: asyncio.Future[None] | None = None
        # Batches may have waited for a leader.
        network.metadata.listeners.append(lambda old, new: self.wake())

    def wake(self) -> None:
        """There may be something to do. Quick, and free where a turn is due anyway."""
        if self.is_woken:
            return
        self.is_woken = True
        if self._is_threaded:
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise
        else:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.is_woken = False
        if self._is_closed:
            return
        try:
            delay_ms = self._take_turn()
        except Exception:
            log.exception("a turn of the producer failed; it goes on")
            delay_ms = self._retry_backoff_ms
        self._look_again_in(delay_ms)
        self._check_settled()

    def _take_turn(self) -> int:
        sender = self._sender
        if not sender.check_state():
            return self._retry_backoff_ms if sender.accumulator.has_incomplete() else NEVER_MS
        if sender.manager is not None and self._transactional is None:
            request = sender.next_transactional()
            if request is not None:
                sender.manager.in_flight = request
                self._transactional = asyncio.ensure_future(self._ask_coordinator(request))
        while True:
            turn = sender.turn(self._can_send, self._clock.monotonic_ms())
            for node_id in turn.connect:
                self._connect(node_id)
            if not turn.calls:
                return turn.delay_ms
            for call in turn.calls:
                self._send(call)

    def _can_send(self, node_id: int) -> bool:
        network = self._network
        return network.is_ready(node_id) and network.in_flight(node_id) < self._max_in_flight

    def _send(self, call: ProduceCall) -> None:
        build = RequestBuilder(ProduceRequest, call.build)
        try:
            if call.acks == 0:
                self._network.send_without_response_now(call.node_id, build)
                self._sender.answered(call, None, self._clock.monotonic_ms())
                return
            future = self._network.send_now(
                call.node_id,
                build,
                ProduceResponse,
                max_version=call.max_version,
            )
        except KafkaError as error:
            self._sender.lost(call, error, self._clock.monotonic_ms())
            return
        future.add_done_callback(lambda done: self._answered(call, done))

    def _answered(self, call: ProduceCall, done: "asyncio.Future[ProduceResponse]") -> None:
        now_ms = self._clock.monotonic_ms()
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._sender.answered(call, done.result(), now_ms)
        elif isinstance(error, KafkaError):
            self._sender.lost(call, error, now_ms)
        else:
            raise error
        # Directly, not by `wake`: the next request should leave at once.
        self._turn()

    def _connect(self, node_id: int) -> None:
        network = self._network
        if network.is_ready(node_id) or node_id in self._connecting:
            return
        self._connecting[node_id] = asyncio.ensure_future(self._get_ready(node_id))

    async def _get_ready(self, node_id: int) -> None:
        try:
            await self._network.ready(node_id)
        except AuthenticationError as error:
            self._sender.fail_node(node_id, error, self._clock.monotonic_ms())
        except UnsupportedVersionError as error:
            self._sender.fail_node(node_id, error, self._clock.monotonic_ms())
        except KafkaError as error:
            log.info("no connection to broker %s: %s", node_id, error.message)
            self._network.metadata.request_update()
            # What waits for this broker is looked at again when its time to connect comes.
            now_ms = self._clock.monotonic_ms()
            await asyncio.sleep(max(10, self._network.backoff_ms(node_id, now_ms)) / 1000)
        finally:
            self._connecting.pop(node_id, None)
            self.wake()

    def _look_again_in(self, delay_ms: int) -> None:
        due = self._loop.time() + min(delay_ms, _MAX_SLEEP_MS) / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._turn()

    # Coordinators

    async def _ask_coordinator(self, request: TxnRequest[Message]) -> None:
        manager = self._sender.manager
        assert manager is not None
        try:
            await self._try_coordinator(request)
        except asyncio.CancelledError:
            raise
        except (AuthenticationError, UnsupportedVersionError) as error:
            request.fatal(error)
            manager.authentication_failed(error)
        except KafkaError as error:
            log.info("%s: %s", request.result.operation, error.message)
            if error.code.retriable:
                request.disconnected()
            else:
                request.fatal(error)
        finally:
            manager.in_flight = None
            self._transactional = None
            self.wake()

    async def _try_coordinator(self, request: TxnRequest[Message]) -> None:
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
                manager.look_up(*request.coordinator)
                manager.enqueue(request)
                return
            network.add_node(node)
            node_id = node.id
        await network.ready(node_id)
        if request.coordinator is not None and request.coordinator[0] is Coordinator.TRANSACTION:
            manager.coordinator_ready(network.version_of(node_id, ApiKey.INIT_PRODUCER_ID) or 0)
        response = await network.request(
            node_id,
            RequestBuilder(request.request, request.build),
            request.answer,
            max_version=request.max_version,
        )
        request.handle(response)

    def transaction_version(self) -> int | None:
        """The `transaction.version` of the cluster; None while no broker is connected."""
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
        """Wait for a call to coordinators; once its outcome is known, the call is over."""
        self.wake()
        done: asyncio.Future[None] = self._loop.create_future()

        def complete() -> None:
            if not done.done():
                done.set_result(None)

        result.when_completed(complete)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await done
        except TimeoutError:
            raise self._network.timeout_error(
                f"{result.operation} was not done within {timeout_ms} ms: call it again, it goes "
                "on in the background; or check that the brokers can be reached"
            ) from None
        result.acked = True
        if result.error is not None:
            raise result.error

    # The end

    async def close(self, timeout_ms: int | None) -> None:
        """Deliver what is pending, abort an open transaction; give up when the time is over."""
        if self._is_closed:
            return
        sender = self._sender
        sender.accumulator.close()
        self._is_closing = True
        is_done = False
        if timeout_ms is None or timeout_ms > 0:
            is_done = await self._finish(timeout_ms)
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._connecting.values()]
        if self._transactional is not None:
            tasks.append(self._transactional)
        for task in tasks:
            task.cancel()
        if not is_done:
            if sender.manager is not None:
                sender.manager.close()
            sender.accumulator.abort_incomplete(
                IllegalStateError("the producer was closed before this record was delivered")
            )
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._network.close()

    async def _finish(self, timeout_ms: int | None) -> bool:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._until(self._is_delivered)
                manager = self._sender.manager
                if manager is not None and manager.has_ongoing_transaction:
                    if not manager.is_completing:
                        log.info("the open transaction is aborted because the producer closes")
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
            self._settled = self._loop.create_future()
            await self._settled

    def _check_settled(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
