"""A broker of a `Cluster`: it has a listener for the other brokers, and the cluster's relays."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from penstock.cluster.factory import SOCKET_FILE
from penstock.testing.addresses import Listener, Route, parse_listeners
from penstock.testing.broker import SETTINGS, Broker
from penstock.testing.cuts import STORE, broker_name
from penstock.testing.errors import BrokerError
from penstock.testing.network import Network, RelayProcess

PEERS = "PEERS"
"""The listener for other brokers, and for requests of the cluster that no fault affects."""
_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
_PROTOCOL_MAP = "listener.security.protocol.map"
_ADVERTISED = "advertised.listeners"
_OWN_SETTINGS = (
    "node.id",
    "broker.id",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "metadata.store.socket",
    "zookeeper.connect",
)
"""Settings that a cluster chooses itself."""
_SEPARATE_SETTINGS = ("log.dirs", "log.dir", "advertised.listeners")
"""Settings that no two brokers share."""


class ClusterNode(Broker):
    """A broker of a cluster. Its faults of the network are those between it and its clients.

    index: its number among the brokers; fixed ports of the settings are those of the first broker,
        and the next brokers have the next ports.
    cluster_directory: it has the broker's directory and the sockets of the metadata store.
    is_temporary: whether the cluster's directory is removed at the end.
    """

    def __init__(
        self,
        broker_id: int,
        index: int,
        settings: Mapping[str, str],
        cluster_directory: Path,
        *,
        is_temporary: bool,
    ) -> None:
        listeners = parse_listeners(settings.get("listeners", SETTINGS["listeners"]))
        own_settings = {
            "node.id": str(broker_id),
            "listeners": ",".join(
                str(listener._replace(port=listener.port + index if listener.port else 0))
                for listener in [*listeners, Listener(PEERS, "127.0.0.1", 0)]
            ),
            _PROTOCOL_MAP: f"{settings.get(_PROTOCOL_MAP, _PROTOCOLS)},{PEERS}:PLAINTEXT",
            "inter.broker.listener.name": PEERS,
            "metadata.store.socket": str(cluster_directory / f"store-{broker_id}.sock"),
        }
        super().__init__(
            {**settings, **own_settings}, folder=cluster_directory / f"broker-{broker_id}"
        )
        self.broker_id = broker_id
        self._cluster_directory = cluster_directory
        self._is_temporary = is_temporary
        self._relays: RelayProcess | None = None
        self._peer_network: Network | None = None
        self._name = f"broker {broker_id}"

    def prepare(self) -> None:
        """Chooses the ports, before the relays are started with `routes`."""
        self._prepare()

    def routes(self) -> list[tuple[str, Sequence[Route]]]:
        """Returns the routes of the broker's relays: for clients, for brokers, and to the store."""
        name = broker_name(self.broker_id)
        public, internal = self._public[-1], self._internal[-1]
        store = str(self._cluster_directory / SOCKET_FILE)
        peer_route = Route(*public[1:], *internal[1:], readable=False, source=None, target=name)
        socket = self._settings["metadata.store.socket"]
        store_route = Route(socket, 0, store, 0, readable=False, source=name, target=STORE)
        return [
            (self._relay_name("clients"), self._routes()),
            (self._relay_name("peers"), [peer_route]),
            (self._relay_name("store"), [store_route]),
        ]

    def attach(self, relays: RelayProcess) -> None:
        """Uses these relays, which have the broker's `routes`."""
        self._relays = relays
        self._peer_network = Network(relays, self._relay_name("peers"), ())
        Network(relays, self._relay_name("store"), ()).set_up(True)

    def spawn(self) -> None:
        """Starts the process, which waits for `configure`."""
        self.check()
        self._spawn()

    def configure(self) -> None:
        """Makes the process serve clients; `wait_until_ready` returns when it does."""
        self._configure()

    def wait_until_ready(self) -> None:
        self._wait_until_ready()

    def abort_start(self) -> None:
        if self._broker is not None:
            self._kill()

    def heal_network(self) -> None:
        """Ends the faults between the broker and its clients."""
        if self._network is not None:
            self._network.heal()

    @property
    def peer_address(self) -> tuple[str, int]:
        """An address without login, TLS and faults."""
        return self._internal[-1].host, self._internal[-1].port

    # --- what differs from a single broker

    def _broker_settings(self) -> dict[str, str]:
        settings = super()._broker_settings()
        if _ADVERTISED in self._settings:
            settings[_ADVERTISED] = f"{self._settings[_ADVERTISED]},{self._public[-1]}"
        return settings

    def _routes(self) -> list[Route]:
        name = broker_name(self.broker_id)
        return [route._replace(target=name) for route in super()._routes()[:-1]]

    def _configure(self) -> None:
        """Other brokers reach it at once: it is ready when the controller has."""
        self._set_peers_up(True)
        super()._configure()

    def _open_network(self) -> Network:
        assert self._relays is not None
        return Network(self._relays, self._relay_name("clients"), self._routes())

    def _close_network(self) -> None:
        """The relays belong to the cluster."""
        self._network = None

    def _update_network(self) -> None:
        super()._update_network()
        self._set_peers_up(self._broker is not None)

    def _removed_directory(self) -> Path | None:
        return self._cluster_directory if self._is_temporary else None

    def _set_peers_up(self, is_up: bool) -> None:
        assert self._peer_network is not None
        self._peer_network.set_up(is_up)

    def _relay_name(self, kind: str) -> str:
        return f"{kind} of {self.broker_id}"


def check_settings(
    settings: Mapping[str, str], broker_settings: Iterable[Mapping[str, str]]
) -> None:
    """Raises `BrokerError` for settings of all brokers, or of one, that a cluster cannot have."""
    for name in _OWN_SETTINGS:
        if any(name in some for some in (settings, *broker_settings)):
            raise BrokerError(
                f"{name}: a Cluster chooses it for each broker", remedy="leave it out"
            )
    for name in _SEPARATE_SETTINGS:
        if name in settings:
            raise BrokerError(
                f"{name}={settings[name]}: brokers of a Cluster cannot share it",
                remedy="leave it out, or set it for each broker with broker_settings",
            )


def start_nodes(nodes: Sequence[ClusterNode], *, first_alone: bool) -> None:
    """Starts brokers at the same time, and returns when all of them serve clients.

    With `first_alone`, the others wait until the first one has created the cluster; their processes
    are started meanwhile. If one fails, the others of this start are killed.
    """
    try:
        for node in nodes:
            node.spawn()
        waiting = list(nodes)
        if first_alone:
            first = waiting.pop(0)
            first.configure()
            first.wait_until_ready()
        for node in waiting:
            node.configure()
        for node in waiting:
            node.wait_until_ready()
    except BaseException:
        for node in nodes:
            node.abort_start()
        raise
