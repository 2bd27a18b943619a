"""A broker for tests, whatever runs them."""

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
from penstock.testing.network import Network

SETTINGS: Mapping[str, str] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # Nobody waits for what a cluster in production has reason to wait for.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Made with the first group and the first transaction: 50 folders each would take longer.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""What is not as Kafka has it. Settings of the caller come on top."""

START_SECONDS = 30.0
STOP_SECONDS = 30.0


class Broker:
    """The broker that `penstock serve` runs, in a process of its own, on free ports.

    Used as a context manager it runs for as long as the block. Otherwise `start` and `close` do;
    whatever happens, it ends with this process. Its addresses stay the same over restarts.

    settings: the broker's, by Kafka's names; they come on top of SETTINGS. Where a listener asks
        for port 0 a free one is chosen, once.
    folder: for the data and the log; it is kept. Without one a temporary folder is used, which
        `close` removes.
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
        self._given_folder = None if folder is None else Path(folder)
        self._folder: Path | None = None
        self._has_faults = faults
        self._ports = Ports()
        self._public: list[Listener] = []
        self._own: list[Listener] = []
        self._broker: Child | None = None
        self._network: Network | None = None
        self._is_paused = False

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

    # --- What there is to know --------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, from the first start on."""
        return self.address()

    def address(self, listener: str | None = None) -> str:
        """`host:port` of a listener, by its name in `listeners`; without one, of the first."""
        for each in self._public:
            if listener in (None, each.name):
                return each.address
        if not self._public:
            raise BrokerError(
                "this broker has no address yet: call start(), or use `with Broker()`"
            )
        names = ", ".join(each.name for each in self._public)
        raise BrokerError(f"there is no listener {listener}: `listeners` has {names}")

    @property
    def folder(self) -> Path:
        """Where everything is that it writes: `data`, which is its `log.dirs`, and `broker.log`."""
        if self._folder is None:
            raise BrokerError("this broker has no folder yet: call start(), or use `with Broker()`")
        return self._folder

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def is_running(self) -> bool:
        return self._broker is not None and self._broker.is_running()

    @property
    def pid(self) -> int:
        return self._running().pid

    def check(self) -> None:
        """BrokerError where the broker has ended and nobody asked it to."""
        if self._broker is not None and not self._broker.is_running():
            code = self._broker.wait(0)
            end = self._broker.log_end()
            self._broker = None
            raise BrokerError(f"the broker ended by itself, with {code}; its log ends so:\n{end}")

    # --- Up and down ------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when clients are served. A first start that fails leaves nothing behind."""
        self.check()
        if self._broker is not None:
            raise BrokerError("this broker is running already")
        is_first = self._folder is None
        try:
            self._prepare()
            self._spawn()
        except BaseException as error:
            if is_first:
                self.close()
            elif self._broker is not None:
                self._kill()
            if isinstance(error, BrokerError):
                raise BrokerError(f"the broker did not start: {error}") from None
            raise

    def stop(self) -> None:
        """As SIGTERM does: it finishes what it is at. BrokerError where it does not end well."""
        broker = self._running()
        self._resume()
        broker.signal(signal.SIGTERM)
        code = broker.wait(STOP_SECONDS)
        if code is None:
            self._kill()
            raise BrokerError(f"the broker did not stop; its log ends so:\n{broker.log_end()}")
        self._broker = None
        self._tell_network()
        if code != 0:
            raise BrokerError(f"the broker ended with {code}; its log ends so:\n{broker.log_end()}")

    def kill(self) -> None:
        """As kill -9 does."""
        self._running()
        self._kill()
        self._tell_network()

    def restart(self) -> None:
        """`stop` and `start`."""
        self.stop()
        self.start()

    def heal(self) -> None:
        """Undoes what a test has left behind: a broker that is down or paused, faults.

        BrokerError, once it runs again, where it had ended and nobody had asked it to.
        """
        ended: BrokerError | None = None
        try:
            self.check()
        except BrokerError as error:
            ended = error
        self._resume()
        if self._network is not None:
            self._network.heal()
        if self._broker is None:
            self.start()
        if ended is not None:
            raise ended

    def close(self) -> None:
        """The end of it. What is in a folder that was given is left as after `stop`."""
        try:
            if self._given_folder is not None and self.is_running:
                self.stop()
        finally:
            if self._broker is not None:
                self._kill()
            if self._network is not None:
                self._network.close()
                self._network = None
            self._ports.close()
            self._public, self._own = [], []
            if self._folder is not None and self._given_folder is None:
                shutil.rmtree(self._folder)
            self._folder = None

    # --- Faults -----------------------------------------------------------------------------------

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The broker's process stands still: it accepts connections and answers nothing."""
        broker = self._running()
        broker.ask({"pause": True})
        broker.signal(signal.SIGSTOP)
        self._is_paused = True
        try:
            yield
        finally:
            self._resume()

    def cut(self) -> None:
        """Every connection is reset. Clients may connect again at once."""
        self._need_network("cut").cut()

    def refused(self) -> AbstractContextManager[None]:
        """Every connection is reset, and new ones are refused. The broker itself runs."""
        return self._need_network("refused").refused()

    def slow(
        self, *, latency_ms: float = 0, bytes_per_second: float = 0
    ) -> AbstractContextManager[None]:
        """Each round trip takes longer by `latency_ms`, one half in each direction.

        `bytes_per_second` is for each direction, and shared by all connections; 0 is no limit.
        """
        return self._need_network("slow").slow(latency_ms, bytes_per_second)

    def losing_replies(
        self, *apis: ApiKey, times: int | None = None, silently: bool = False
    ) -> AbstractContextManager[LostReplies]:
        """Requests are carried out, their answers never arrive.

        apis: whose; without any, those to every request that is sent from now on.
        times: so many answers to each kind of request are lost, and no more.
        silently: the client waits in vain, up to its own timeout or the end of the block, on a
            connection that stays open. Otherwise the connection breaks instead of the answer.
        """
        network = self._need_network("losing_replies")
        return network.losing_replies(*apis, times=times, silently=silently)

    # --- Topics -----------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Returns when the topic can be written and read. `config` has Kafka's names."""
        from penstock.testing.topics import create_topic

        create_topic(self._plain_address(), name, partitions, config or {})

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        from penstock.testing.topics import delete_topic

        delete_topic(self._plain_address(), name, missing_ok=missing_ok)

    # --- How --------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """The folder and the ports, which stay the same from the first start on."""
        if self._folder is not None:
            return
        listeners = parse_listeners(self._settings["listeners"])
        if self._given_folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        else:
            self._given_folder.mkdir(parents=True, exist_ok=True)
            self._folder = self._given_folder.resolve()
        self._public = [self._ports.take(each) for each in listeners]
        self._own = self._public
        if self._has_faults:
            self._own = [
                self._ports.take(Listener(each.name, "127.0.0.1", 0)) for each in listeners
            ]

    def _spawn(self) -> None:
        """Both processes, side by side."""
        order = {
            "settings": self._broker_settings(),
            "remove": str(self.folder) if self._given_folder is None else None,
        }
        self._broker = Child("penstock.testing.child_main", order, log=self.log)
        if self._has_faults and self._network is None:
            self._network = Network(self._routes(), self.folder / "relay.log")
        # Imported while they start: a test is likely to make a topic next.
        from penstock.testing import topics as topics

        self._broker.hear(START_SECONDS)
        self._tell_network()

    def _broker_settings(self) -> dict[str, str]:
        return {
            "log.dirs": str(self.folder / "data"),
            "advertised.listeners": ",".join(str(each.reached()) for each in self._public),
            **self._settings,
            "listeners": ",".join(map(str, self._own)),
        }

    def _routes(self) -> list[Route]:
        return [
            Route(
                public.host,
                public.port,
                own.host,
                own.port,
                is_readable(protocol_of(public, self._settings)),
            )
            for public, own in zip(self._public, self._own, strict=True)
        ]

    def _plain_address(self) -> tuple[str, int]:
        """Where requests can be sent without a login, past the relay and its faults."""
        self._running()
        for each in self._own:
            if protocol_of(each, self._settings) == "PLAINTEXT":
                own = each.reached()
                return own.host, own.port
        raise BrokerError(
            "topics are made over a PLAINTEXT listener, and `listeners` has none: add one, or make "
            "them with your own admin client"
        )

    def _running(self) -> Child:
        self.check()
        if self._broker is None:
            raise BrokerError("this broker is not running: call start()")
        return self._broker

    def _kill(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        self._broker = None
        self._is_paused = False

    def _resume(self) -> None:
        if self._is_paused and self._broker is not None:
            self._broker.signal(signal.SIGCONT)
            self._broker.ask({"pause": False})
        self._is_paused = False

    def _need_network(self, what: str) -> Network:
        if not self._has_faults:
            raise BrokerError(f"{what}() needs the relay that Broker(faults=False) leaves out")
        if self._network is None:
            raise BrokerError("this broker was not started: call start(), or use `with Broker()`")
        return self._network

    def _tell_network(self) -> None:
        """Where the broker is down, so is its port."""
        if self._network is not None:
            self._network.set_up(self._broker is not None)
