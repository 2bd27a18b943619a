"""`Cluster`: several brokers for tests, which fail when a test wants it."""

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cluster.factory import STORE_FILE
from penstock.protocol.api_key import ApiKey
from penstock.testing.broker import Broker
from penstock.testing.cluster_node import ClusterNode, check_settings, start_nodes
from penstock.testing.cuts import isolation
from penstock.testing.errors import BrokerError
from penstock.testing.faults import LostReplies
from penstock.testing.network import RelayProcess

if TYPE_CHECKING:
    from penstock.testing.cluster_view import ClusterView

_MAX_REPLICAS = 3
_START = "call start(), or use `with Cluster()`"


def cluster_settings(brokers: int) -> dict[str, str]:
    """Returns the differences from the settings of a single `Broker`; the caller's override them.

    Topics have three replicas, and one broker may be down. A broker that hangs or is cut off is
    replaced after two seconds instead of eighteen.
    """
    replicas = min(brokers, _MAX_REPLICAS)
    min_isr = str(max(1, replicas - 1))
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": min_isr,
        "zookeeper.session.timeout.ms": "2000",
        "replica.lag.time.max.ms": "5000",
        "replica.socket.timeout.ms": "3000",
        "controller.socket.timeout.ms": "3000",
        "request.timeout.ms": "3000",
        "controlled.shutdown.max.retries": "1",
        "controlled.shutdown.retry.backoff.ms": "1000",
        # Leaders move only when a test makes them.
        "auto.leader.rebalance.enable": "false",
    }


class Cluster:
    """Brokers with the ids 1, 2, …, each in its own process, on free ports.

    As a context manager it runs during the block; otherwise call `start` and `close`. In any case
    it ends with this process. The addresses of brokers stay the same over restarts. Each broker is
    a `Broker`, whose faults concern the clients of that broker: `cluster.brokers[2].slow(…)`.

    settings: the settings of all brokers, by Kafka's names; they override those of `SETTINGS` and
        `cluster_settings`. A listener with port 0 gets a free port.
    brokers: how many.
    broker_settings: settings of single brokers, by id, such as `{1: {"broker.rack": "a"}}`.
    folder: the directory for data and logs, which is kept. The default is a temporary directory,
        which `close` removes.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        broker_settings: Mapping[int, Mapping[str, str]] | None = None,
        folder: Path | str | None = None,
    ) -> None:
        if brokers < 1:
            raise BrokerError(f"brokers={brokers}", remedy="a cluster has at least one broker")
        self.broker_ids: Sequence[int] = range(1, brokers + 1)
        self._settings = {**cluster_settings(brokers), **(settings or {})}
        self._broker_settings = dict(broker_settings or {})
        for broker_id in self._broker_settings:
            if broker_id not in self.broker_ids:
                raise BrokerError(f"broker_settings has {broker_id}", remedy=self._ids_text())
        check_settings(settings or {}, self._broker_settings.values())
        self._user_directory = None if folder is None else Path(folder)
        self._directory: Path | None = None
        self._nodes: dict[int, ClusterNode] = {}
        self._relays: RelayProcess | None = None
        self._isolated: set[int] = set()

    def __enter__(self) -> Self:
        if self._directory is None:
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
        """The addresses of all brokers, also of those that are down: `host:port,…`."""
        return self.addresses()

    def addresses(self, listener: str | None = None) -> str:
        """Returns the addresses of the listener with this name, or of the first, of all brokers."""
        return ",".join(broker.address(listener) for broker in self.brokers.values())

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by their ids; available after the first start."""
        if not self._nodes:
            raise BrokerError("this cluster has no brokers yet", remedy=_START)
        return self._nodes

    @property
    def folder(self) -> Path:
        """The directory with a directory for each broker, such as `broker-1`, and `relay.log`."""
        if self._directory is None:
            raise BrokerError("this cluster has no directory yet", remedy=_START)
        return self._directory

    @property
    def is_running(self) -> bool:
        """Whether all brokers run, and none is paused or isolated."""
        return bool(self._nodes) and len(self._reachable()) == len(self._nodes)

    def check(self) -> None:
        """Raises `BrokerError` if a broker has ended without being stopped."""
        for node in self._nodes.values():
            node.check()

    # --- start and stop

    def start(self, broker: int | None = None) -> None:
        """Starts one broker, or all that are down; returns when they serve clients."""
        if broker is not None:
            self._node(broker).start()
        elif self._directory is None:
            self._start_first()
        else:
            self._start_nodes()

    def stop(self, broker: int) -> None:
        """Stops a broker in an orderly way: others lead its partitions first (SIGTERM)."""
        self._node(broker).stop()

    def kill(self, broker: int) -> None:
        """Kills a broker, like kill -9."""
        self._node(broker).kill()

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kills the broker that leads a partition, like kill -9; returns its id."""
        broker = self.leader(topic, partition)
        self.kill(broker)
        return broker

    def restart(self, broker: int) -> None:
        """Stops a broker in an orderly way, and starts it again."""
        self._node(broker).restart()

    def heal(self) -> None:
        """Undoes faults: every broker runs, is reached by all, and leads what it led at first.

        Returns when all replicas are in sync, and clients can read every partition to its end.
        Raises `BrokerError` then, if a broker had ended without being stopped.
        """
        unexpected_ends: list[BrokerError] = []
        for node in self._nodes.values():
            try:
                node.check()
            except BrokerError as error:
                unexpected_ends.append(error)
            node.resume()
            node.heal_network()
        self._set_isolated(())
        self._start_nodes()
        self.wait_until_in_sync()
        view = self._view()
        view.elect_preferred_leaders()
        view.wait_for_end_offsets()
        if unexpected_ends:
            raise unexpected_ends[0]

    def close(self) -> None:
        """Ends all brokers and frees their ports. The contents of `folder` are kept."""
        try:
            with ExitStack() as stack:
                for node in self._nodes.values():
                    stack.callback(node.close)
        finally:
            self._nodes = {}
            self._isolated.clear()
            if self._relays is not None:
                self._relays.close()
                self._relays = None
            if self._directory is not None and self._user_directory is None:
                shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    # --- faults between brokers

    def pause(self, broker: int) -> AbstractContextManager[object]:
        """Pauses a broker's process until `resume`; as a context manager, during the block.

        It accepts connections, but does not respond, and after two seconds others lead its
        partitions. When it is resumed, it does not know that yet.
        """
        self._node(broker).pause()
        return _at_end(lambda: self.resume(broker))

    def resume(self, broker: int) -> None:
        """Ends the pause of a broker."""
        self._node(broker).resume()

    def isolate(self, broker: int) -> AbstractContextManager[object]:
        """Cuts a broker off from clients and all other brokers until `reconnect`.

        As a context manager, during the block. No connection is reset: bytes are held back, as if
        packets were lost, and arrive when the broker is reconnected. After two seconds other
        brokers lead its partitions, which the broker itself does not know.
        """
        self._node(broker)
        self._set_isolated({*self._isolated, broker})
        return _at_end(lambda: self.reconnect(broker))

    def reconnect(self, broker: int) -> None:
        """Ends the isolation of a broker."""
        self._node(broker)
        self._set_isolated(self._isolated - {broker})

    # --- faults between brokers and clients

    def cut(self) -> None:
        """Resets the connections of all clients, which may connect again at once."""
        for broker in self.brokers.values():
            broker.cut()

    def refused(self) -> AbstractContextManager[object]:
        """Resets the connections of all clients, and refuses new ones."""
        return _all_of([broker.refused() for broker in self.brokers.values()])

    def slow(
        self, *, latency_ms: float = 0, bytes_per_second: float = 0
    ) -> AbstractContextManager[object]:
        """Slows the network between clients and each broker: see `Broker.slow`."""
        return _all_of(
            [
                broker.slow(latency_ms=latency_ms, bytes_per_second=bytes_per_second)
                for broker in self.brokers.values()
            ]
        )

    @contextmanager
    def losing_replies(
        self, *apis: ApiKey, times: int | None = None, silently: bool = False
    ) -> Iterator[LostReplies]:
        """Loses responses to clients: see `Broker.losing_replies`. `times` is for each broker."""
        with ExitStack() as stack:
            losses = [
                stack.enter_context(broker.losing_replies(*apis, times=times, silently=silently))
                for broker in self.brokers.values()
            ]
            yield LostReplies(lambda: sum(lost.count for lost in losses))

    # --- state

    def leader(self, topic: str, partition: int = 0) -> int:
        """Returns the broker that leads a partition.

        A broker that is down, paused or isolated is not returned: if the partition has another
        in-sync replica, the call returns once that leads.
        """
        from penstock.core.ids import TopicPartition

        return self._view().leader(TopicPartition(topic, partition))

    def controller(self) -> int:
        """Returns the broker that is the controller; like `leader`, it waits for one."""
        return self._view().controller()

    def wait_until_in_sync(self, topic: str | None = None) -> None:
        """Waits until all replicas, or those of one topic, are in sync, as all brokers see it.

        Raises `BrokerError` if a broker is down, paused or isolated: its replicas cannot be.
        """
        missing = sorted(set(self.broker_ids) - set(self._reachable()))
        if missing:
            raise BrokerError(
                f"replicas are not in sync while a broker is down, paused or isolated: {missing}",
                remedy="call start(), resume(), reconnect() or heal() first",
            )
        self._view().wait_until_in_sync(topic)

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        replicas: int | None = None,
    ) -> None:
        """Creates a topic, with `default.replication.factor` replicas unless `replicas` is given.

        Returns when all of them are in sync, and every broker that runs knows the topic.
        """
        count = int(self._settings["default.replication.factor"]) if replicas is None else replicas
        self._view().create_topic(name, partitions, config or {}, count)

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        self._view().delete_topic(name, missing_ok=missing_ok)

    # --- implementation

    def _start_first(self) -> None:
        """Chooses directory and ports, and starts all processes; a failure leaves no files."""
        if self._user_directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
        else:
            self._user_directory.mkdir(parents=True, exist_ok=True)
            self._directory = self._user_directory.resolve()
        is_new = not (self._directory / STORE_FILE).exists()
        try:
            self._create_nodes(self._directory)
            self._start_nodes(first_alone=is_new)
        except BaseException as error:
            self.close()
            if isinstance(error, BrokerError):
                raise BrokerError(f"the cluster did not start: {error}") from None
            raise

    def _create_nodes(self, directory: Path) -> None:
        is_temporary = self._user_directory is None
        for index, broker_id in enumerate(self.broker_ids):
            settings = {**self._settings, **self._broker_settings.get(broker_id, {})}
            node = ClusterNode(broker_id, index, settings, directory, is_temporary=is_temporary)
            self._nodes[broker_id] = node
            node.prepare()
        self._relays = RelayProcess(
            {name: routes for node in self._nodes.values() for name, routes in node.routes()},
            directory / "relay.log",
            store=directory,
            remove=directory if is_temporary else None,
        )
        for node in self._nodes.values():
            node.attach(self._relays)

    def _start_nodes(self, *, first_alone: bool = False) -> None:
        down = [node for node in self._nodes.values() if not node.is_running]
        start_nodes(down, first_alone=first_alone)

    def _node(self, broker: int) -> ClusterNode:
        if not self._nodes:
            raise BrokerError("this cluster has no brokers yet", remedy=_START)
        if broker not in self._nodes:
            raise BrokerError(f"there is no broker {broker}", remedy=self._ids_text())
        return self._nodes[broker]

    def _ids_text(self) -> str:
        return f"the brokers of this cluster are {', '.join(map(str, self.broker_ids))}"

    def _set_isolated(self, brokers: Collection[int]) -> None:
        if set(brokers) == self._isolated or self._relays is None:
            return
        self._isolated = set(brokers)
        self._relays.set_cuts(
            {cut for broker in brokers for cut in isolation(broker, self.broker_ids)}
        )

    def _reachable(self) -> dict[int, tuple[str, int]]:
        return {
            broker_id: node.peer_address
            for broker_id, node in self._nodes.items()
            if node.is_running and not node.is_paused and broker_id not in self._isolated
        }

    def _view(self) -> "ClusterView":
        from penstock.testing.cluster_view import ClusterView

        if not self._nodes:
            raise BrokerError("this cluster has no brokers yet", remedy=_START)
        return ClusterView(self._reachable)


@contextmanager
def _all_of(faults: Sequence[AbstractContextManager[object]]) -> Iterator[None]:
    with ExitStack() as stack:
        for fault in faults:
            stack.enter_context(fault)
        yield


def _at_end(undo: Callable[[], None]) -> AbstractContextManager[object]:
    """Returns a context manager that undoes at its end what has been done already."""
    stack = ExitStack()
    stack.callback(undo)
    return stack
