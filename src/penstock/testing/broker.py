"""`Broker`: a broker for tests, usable with any test runner."""

import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.protocol.api_key import ApiKey
from penstock.testing.addresses import (
    Listener,
    Ports,
    Route,
    is_readable,
    parse_listeners,
    protocol_of,
)
from penstock.testing.child import Child
from penstock.testing.errors import BrokerError
from penstock.testing.faults import LostReplies
from penstock.testing.network import Network, open_network

SETTINGS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # Shorter waits than a production cluster needs.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Created with the first group and the first transaction: 50 directories each take longer.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Differences from Kafka's defaults. The caller's settings override them."""

START_SECONDS = 30.0
STOP_SECONDS = 30.0
_START = "call start(), or use `with Broker()`"


class Broker:
    """The broker of `penstock serve`, in its own process, on free ports.

    As a context manager it runs during the block; otherwise call `start` and `close`. In any case
    it ends with this process. Its addresses stay the same over restarts.

    settings: the broker's settings, by Kafka's names; they override SETTINGS. A listener with port
        0 gets a free port, which it keeps.
    folder: the directory for the data and the log, which is kept. The default is a temporary
        directory, which `close` removes.
    faults: False leaves out the relay between clients and broker, and with it `refused`, `slow`,
        `cut` and `losing_replies`; throughput is higher then.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        folder: Path | str | None = None,
        faults: bool = True,
    ) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._user_directory = None if folder is None else Path(folder)
        self._directory: Path | None = None
        self._has_faults = faults
        self._ports = Ports()
        self._public: list[Listener] = []
        self._internal: list[Listener] = []
        self._broker: Child | None = None
        self._network: Network | None = None
        self._is_paused = False
        self._name = "the broker"

    def __enter__(self) -> Self:
        if self._broker is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.check()
        finally:
            self.close()

    # --- properties

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener; available after the first start."""
        return self.address()

    def address(self, listener: str | None = None) -> str:
        """Returns `host:port` of the listener with this name in `listeners`, or of the first."""
        for public in self._public:
            if listener in (None, public.name):
                return public.address
        if not self._public:
            raise BrokerError("this broker has no address yet", remedy=_START)
        names = ", ".join(public.name for public in self._public)
        raise BrokerError(f"there is no listener {listener}: `listeners` has {names}")

    @property
    def folder(self) -> Path:
        """The directory with `data`, which is the broker's `log.dirs`, and `broker.log`."""
        if self._directory is None:
            raise BrokerError("this broker has no directory yet", remedy=_START)
        return self._directory

    @property
    def log(self) -> Path:
        """The file with the broker's log."""
        return self.folder / "broker.log"

    @property
    def is_running(self) -> bool:
        return self._broker is not None and self._broker.is_running()

    @property
    def pid(self) -> int:
        return self._running().pid

    def check(self) -> None:
        """Raises `BrokerError` if the broker has ended without being stopped."""
        if self._broker is not None and not self._broker.is_running():
            code = self._broker.wait(0)
            end = self._broker.log_end()
            self._broker = None
            raise BrokerError(
                f"{self._name} ended unexpectedly, with {code}; its log ends with:\n{end}"
            )

    # --- start and stop

    def start(self) -> None:
        """Starts the broker, and returns when it serves clients.

        Raises `BrokerError` if it does not start; a failed first start removes its files.
        """
        self.check()
        if self._broker is not None:
            raise BrokerError(f"{self._name} is running already")
        is_first = self._directory is None
        try:
            self._prepare()
            self._spawn()
            self._configure()
            self._wait_until_ready()
        except BaseException as error:
            if is_first:
                self.close()
            elif self._broker is not None:
                self._kill()
            if isinstance(error, BrokerError):
                raise BrokerError(f"{self._name} did not start: {error}") from None
            raise

    def stop(self) -> None:
        """Stops the broker in an orderly way (SIGTERM). Raises `BrokerError` if that fails."""
        broker = self._running()
        self.resume()
        broker.signal(signal.SIGTERM)
        code = broker.wait(STOP_SECONDS)
        if code is None:
            self._kill()
            raise BrokerError(f"{self._name} did not stop; its log ends with:\n{broker.log_end()}")
        self._broker = None
        self._update_network()
        if code != 0:
            raise BrokerError(
                f"{self._name} ended with {code}; its log ends with:\n{broker.log_end()}"
            )

    def kill(self) -> None:
        """Kills the broker, like kill -9."""
        self._running()
        self._kill()
        self._update_network()

    def restart(self) -> None:
        """Stops the broker and starts it again."""
        self.stop()
        self.start()

    def heal(self) -> None:
        """Starts or resumes a broker that a test has left stopped or paused, and ends all faults.

        Raises `BrokerError`, after it runs again, if it had ended without being stopped.
        """
        unexpected_end: BrokerError | None = None
        try:
            self.check()
        except BrokerError as error:
            unexpected_end = error
        self.resume()
        if self._network is not None:
            self._network.heal()
        if self._broker is None:
            self.start()
        if unexpected_end is not None:
            raise unexpected_end

    def close(self) -> None:
        """Ends the broker and frees its ports. The contents of `folder` are as after `stop`."""
        try:
            if self._user_directory is not None and self.is_running:
                self.stop()
        finally:
            if self._broker is not None:
                self._kill()
            self._close_network()
            self._ports.close()
            self._public, self._internal = [], []
            if self._directory is not None and self._user_directory is None:
                shutil.rmtree(self._directory)
            self._directory = None

    # --- faults

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def pause(self) -> None:
        """Pauses the broker's process: it accepts connections, but does not respond."""
        if self._is_paused:
            return
        broker = self._running()
        broker.request({"pause": True})
        broker.signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Ends a pause; it does nothing if there is none."""
        if self._is_paused and self._broker is not None:
            self._broker.signal(signal.SIGCONT)
            self._broker.request({"pause": False})
        self._is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses the broker's process during the block: see `pause`."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def cut(self) -> None:
        """Resets every connection. Clients may connect again at once."""
        self._require_network("cut").cut()

    def refused(self) -> AbstractContextManager[None]:
        """Resets every connection and refuses new ones. The broker itself keeps running."""
        return self._require_network("refused").refused()

    def slow(
        self, *, latency_ms: float = 0, bytes_per_second: float = 0
    ) -> AbstractContextManager[None]:
        """Adds `latency_ms` to each round trip, one half in each direction.

        `bytes_per_second` limits each direction, for all connections together; 0: no limit.
        """
        return self._require_network("slow").slow(latency_ms, bytes_per_second)

    def losing_replies(
        self, *apis: ApiKey, times: int | None = None, silently: bool = False
    ) -> AbstractContextManager[LostReplies]:
        """Loses responses: requests are handled, but their responses never arrive.

        apis: the requests whose responses are lost; without any, all that are sent from now on.
        times: how many responses of each API are lost; the default is all.
        silently: the connection stays open, and the client waits until its own timeout or the end
            of the block. Otherwise the connection is reset instead of the response.
        """
        network = self._require_network("losing_replies")
        return network.losing_replies(*apis, times=times, silently=silently)

    # --- topics

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic, and returns when it can be used. `config` has Kafka's names."""
        from penstock.testing.topics import create_topic

        create_topic(self._plain_address(), name, partitions, config or {})

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        from penstock.testing.topics import delete_topic

        delete_topic(self._plain_address(), name, missing_ok=missing_ok)

    # --- implementation

    def _prepare(self) -> None:
        """Chooses the directory and the ports, which stay the same after the first start."""
        if self._directory is not None:
            return
        listeners = parse_listeners(self._settings["listeners"])
        if self._user_directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="penstock-"))
        else:
            self._user_directory.mkdir(parents=True, exist_ok=True)
            self._directory = self._user_directory.resolve()
        self._public = [self._ports.reserve(listener) for listener in listeners]
        self._internal = self._public
        if self._has_faults:
            self._internal = [
                self._ports.reserve(Listener(listener.name, "127.0.0.1", 0))
                for listener in listeners
            ]

    def _spawn(self) -> None:
        """Starts the broker's and the relay's process at the same time."""
        self._broker = Child("penstock.testing.child_main", log=self.log)
        if self._has_faults and self._network is None:
            self._network = self._open_network()

    def _configure(self) -> None:
        """Sends the settings to the broker's process, which serves clients then."""
        assert self._broker is not None
        removed = self._removed_directory()
        self._broker.send(
            {
                "settings": self._broker_settings(),
                "remove": None if removed is None else str(removed),
            }
        )
        # Imported while it starts: a test is likely to create a topic next.
        from penstock.testing import topics as topics

    def _wait_until_ready(self) -> None:
        assert self._broker is not None
        self._broker.receive(START_SECONDS)
        self._update_network()

    def _open_network(self) -> Network:
        return open_network(self._routes(), self.folder / "relay.log")

    def _close_network(self) -> None:
        if self._network is not None:
            self._network.close()
            self._network = None

    def _removed_directory(self) -> Path | None:
        """Returns the directory that is removed when the tests have ended without `close`."""
        return self.folder if self._user_directory is None else None

    def _broker_settings(self) -> dict[str, str]:
        return {
            "log.dirs": str(self.folder / "data"),
            "advertised.listeners": ",".join(str(public.reachable()) for public in self._public),
            **self._settings,
            "listeners": ",".join(map(str, self._internal)),
        }

    def _routes(self) -> list[Route]:
        return [
            Route(
                public.host,
                public.port,
                internal.host,
                internal.port,
                is_readable(protocol_of(public, self._settings)),
            )
            for public, internal in zip(self._public, self._internal, strict=True)
        ]

    def _plain_address(self) -> tuple[str, int]:
        """Returns an address without login, TLS and the relay's faults."""
        self._running()
        for listener in self._internal:
            if protocol_of(listener, self._settings) == "PLAINTEXT":
                address = listener.reachable()
                return address.host, address.port
        raise BrokerError(
            "topics are created over a PLAINTEXT listener, and `listeners` has none",
            remedy="add one, or create them with your own admin client",
        )

    def _running(self) -> Child:
        self.check()
        if self._broker is None:
            raise BrokerError(f"{self._name} is not running", remedy="call start()")
        return self._broker

    def _kill(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        self._broker = None
        self._is_paused = False

    def _require_network(self, method: str) -> Network:
        if not self._has_faults:
            raise BrokerError(f"{method}() needs the relay that Broker(faults=False) leaves out")
        if self._network is None:
            raise BrokerError("this broker was not started", remedy=_START)
        return self._network

    def _update_network(self) -> None:
        """Refuses connections while the broker is down."""
        if self._network is not None:
            self._network.set_up(self._broker is not None)
