"""The HTTP endpoint of a broker: `/metrics`, `/healthz` and `/readyz`.

A scrape is collected in slices of the pacer, so that no number of partitions holds the event loop,
and rendered on a thread. Its result is used again for `REUSE_S`, and requests that arrive while one
is collected share it: however many clients ask, there is one scrape in that time.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from time import monotonic
from typing import Final, Generic, TypeVar

from penstock.broker.assembly import BrokerAssembly
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metrics.controller import collect_controller
from penstock.broker.metrics.coordinators import collect_groups, collect_transactions
from penstock.broker.metrics.exposition import Exposition, accepted_format
from penstock.broker.metrics.health import BrokerState, Readiness, check_readiness, disk_states
from penstock.broker.metrics.loop_monitor import LoopMonitor
from penstock.broker.metrics.network import collect_network
from penstock.broker.metrics.process import collect_process, read_process
from penstock.broker.metrics.replicas import collect_replicas
from penstock.broker.metrics.requests import collect_requests
from penstock.broker.pacer import Pacer, Steps
from penstock.broker.workers import Workers
from penstock.net.http.messages import HttpRequest, HttpResponse
from penstock.net.http.server import HttpServer
from penstock.net.server.limits import Limits
from penstock.net.server.listening import listen
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

REUSE_S: Final = 1.0
T = TypeVar("T")
_JSON: Final = "application/json"
_BACKLOG: Final = 64


class _Shared(Generic[T]):
    """The result of an operation, which all callers of `REUSE_S` share."""

    def __init__(self, compute: Callable[[], Awaitable[T]]) -> None:
        self._compute = compute
        self._task: asyncio.Task[T] | None = None
        self._time = 0.0

    def expire(self) -> None:
        """The next caller gets a new result."""
        self._task = None

    async def get(self) -> T:
        task = self._task
        if task is None or (task.done() and monotonic() - self._time > REUSE_S):
            task = self._task = asyncio.get_running_loop().create_task(self._run())
        return await asyncio.shield(task)

    async def _run(self) -> T:
        try:
            return await self._compute()
        finally:
            self._time = monotonic()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class MetricsEndpoint:
    """Serves metrics and health from before the broker's start until after its stop."""

    def __init__(
        self, config: BrokerConfig, workers: Workers, pacer: Pacer, logs: LogManager
    ) -> None:
        self._state = BrokerState.STARTING
        self._config = config
        self._broker_id = config.int("node.id")
        self._workers = workers
        self._pacer = pacer
        self._logs = logs
        self._parts: BrokerAssembly | None = None
        self._server = HttpServer(self._respond, "METRICS")
        self._monitor = LoopMonitor(self._on_tick)
        self._exposition = _Shared(self.collect)
        self._readiness = _Shared(self._check_readiness)
        self._failed_collectors = 0

    async def start(self) -> tuple[str, int]:
        """Binds `metrics.port`; returns the address. Raises KafkaError if it cannot."""
        sock = await listen(
            self._config.text("metrics.host") or "",
            self._config.int("metrics.port"),
            "metrics",
            Limits(listen_backlog=_BACKLOG),
            "metrics.port",
        )
        address: tuple[str, int] = sock.getsockname()[:2]
        self._server.start(sock)
        self._monitor.start()
        logger.info("metrics are served on http://%s:%d/metrics", *address)
        return address

    def set_state(self, state: BrokerState) -> None:
        self._state = state
        self._readiness.expire()

    def set_parts(self, parts: BrokerAssembly) -> None:
        """Adds the components, once they are created."""
        self._parts = parts

    async def close(self) -> None:
        self._monitor.stop()
        await self._server.close()
        await self._exposition.close()
        await self._readiness.close()

    def _on_tick(self, seconds: float) -> None:
        if self._parts is not None:
            self._parts.request_metrics.adapt(seconds)

    # --- HTTP

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        match request.path:
            case "/metrics":
                return await self._respond_metrics(request.headers)
            case "/healthz":
                health = {"status": "ok", "log.dirs": disk_states(self._logs.dirs)}
                return _json(HTTPStatus.OK, health)
            case "/readyz":
                readiness = await self._readiness.get()
                status = HTTPStatus.OK if readiness.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
                return _json(status, {"ready": readiness.is_ready, "reasons": readiness.reasons})
        return HttpResponse(HTTPStatus.NOT_FOUND, b"there are /metrics, /healthz and /readyz\n")

    async def _respond_metrics(self, headers: Mapping[str, str]) -> HttpResponse:
        text_format = accepted_format(headers.get("accept", ""))
        exposition = await self._exposition.get()
        body = await self._workers.run(self._workers.codec, lambda: exposition.text(text_format))
        return HttpResponse(HTTPStatus.OK, body, text_format.value)

    async def _check_readiness(self) -> Readiness:
        return await self._pacer.complete(
            check_readiness(self._state, self._logs.dirs, self._parts)
        )

    # --- collecting

    async def collect(self) -> Exposition:
        """Returns all metrics as they are now."""
        exposition = Exposition()
        process = await self._workers.run(self._workers.codec, read_process)
        collect_process(exposition, process, self._broker_id)
        parts = self._parts
        if parts is not None:
            for steps in self._collectors(exposition, parts):
                try:
                    await self._pacer.complete(steps)
                except Exception:  # the other metrics are needed all the more
                    self._failed_collectors += 1
                    logger.exception("metrics could not be collected")
        self._collect_own(exposition)
        return exposition

    def _collectors(self, exposition: Exposition, parts: BrokerAssembly) -> list[Steps[None]]:
        broker = parts.broker
        return [
            collect_controller(exposition, broker, self._state),
            collect_replicas(exposition, broker),
            collect_requests(exposition, parts.request_metrics),
            collect_network(exposition, parts),
            collect_groups(exposition, broker),
            collect_transactions(exposition, broker),
        ]

    def _collect_own(self, exposition: Exposition) -> None:
        exposition.histogram(
            "penstock_event_loop_lag_seconds", "How late timers of the event loop are."
        ).add_histogram(self._monitor.lags)
        exposition.counter("penstock_metrics_http_requests_total", "Requests to metrics.port.").add(
            self._server.requests
        )
        exposition.counter(
            "penstock_metrics_http_refused_total",
            "Connections and requests to metrics.port beyond its limits.",
        ).add(self._server.refused)
        exposition.counter(
            "penstock_metrics_failed_collectors_total", "Errors while metrics were collected."
        ).add(self._failed_collectors)


def _json(status: HTTPStatus, value: object) -> HttpResponse:
    return HttpResponse(status, json.dumps(value).encode() + b"\n", _JSON)
