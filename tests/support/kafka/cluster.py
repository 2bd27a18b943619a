"""A real Kafka cluster: several nodes, each broker and controller in one, that can be killed."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock.testing.addresses import Listener, Ports
from tests.support.kafka.broker import (
    KafkaBroker,
    KafkaParts,
    KafkaToolError,
    formatted,
    wait_until,
)
from tests.support.kafka_clients.brokers import SETTINGS

HOST = "127.0.0.1"
HEAP = "-Xmx256m"
START_SECONDS = 60.0

_QUICK = {
    **SETTINGS,
    # A killed node is detected soon.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "auto.leader.rebalance.enable": "false",
}
_SMALL = {
    # Three of them run concurrently.
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "65536",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True)
class SmallParts(KafkaParts):
    """Kafka parts whose JVMs have a small heap."""

    def command(
        self, program: str | Path, *arguments: str, scratch: str | Path, log_level: str = "warn"
    ) -> list[str]:
        command = super().command(program, *arguments, scratch=scratch, log_level=log_level)
        at = command.index("-cp")
        return [*command[:at], HEAP, *command[at:]]  # the last one counts


class Node(KafkaBroker):
    """One node. Its ports do not change when it is restarted."""

    def __init__(self, parts: KafkaParts, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(parts, directory, settings)
        self.id = int(settings["node.id"])

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, deadline: float = START_SECONDS) -> None:
        """Starts the node if it is down, and waits until it serves clients."""
        self.spawn()
        self.wait(deadline)

    def spawn(self) -> None:
        """Starts the process. The kernel ends it when the calling thread ends."""
        if self._process is None:
            self._spawn(self._write_properties())

    def wait(self, deadline: float = START_SECONDS) -> None:
        try:
            wait_until(self._is_ready_or_dead, f"the start of node {self.id}", deadline)
        except KafkaToolError as error:
            raise KafkaToolError(f"{error}:\n{self._log_end()}") from None
        if self._running().poll() is not None:
            raise KafkaToolError(f"node {self.id} did not start:\n{self._log_end()}")

    def _write_properties(self) -> Path:
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        return properties


class KafkaCluster:
    """Nodes 1, 2, … in racks of their own, `rack-1` …, from which consumers may read nearby.

    A client that connects to the `tapped` listener of a node gets the same listener of every other
    node: its advertised address is that of `tap`, or the listener's own.
    """

    def __init__(
        self,
        parts: KafkaParts,
        directory: Path,
        size: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        is_small: bool = True,
    ) -> None:
        """`is_small` gives each node little memory and few threads."""
        self._parts = SmallParts(parts.java, parts.libs, parts.version) if is_small else parts
        self._additional = {**_QUICK, **(_SMALL if is_small else {}), **(settings or {})}
        self._directory = directory
        self._ports = Ports()
        self._size = size
        self.inside = {id_: self._take("TAPPED") for id_ in range(1, size + 1)}
        """The listeners whose addresses `tap` replaces."""
        self._plain = {id_: self._take("PLAINTEXT") for id_ in self.inside}
        self._controllers = {id_: self._take("CONTROLLER") for id_ in self.inside}
        self._advertised = {id_: listener.address for id_, listener in self.inside.items()}
        self.nodes: dict[int, Node] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(listener.address for listener in self._plain.values())

    def tap(self, addresses: Mapping[int, str]) -> None:
        """Sets the advertised addresses of the tapped listeners; call it before the start."""
        self._advertised.update(addresses)

    def __enter__(self) -> Self:
        for id_ in range(1, self._size + 1):
            directory = self._directory / f"node-{id_}"
            directory.mkdir(parents=True)
            self.nodes[id_] = Node(self._parts, directory, self._settings(id_, directory / "data"))
        try:
            self._format()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts all nodes that are down, concurrently."""
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        self._ports.close()

    def _take(self, name: str) -> Listener:
        return self._ports.reserve(Listener(name, HOST, 0))

    def _format(self) -> None:
        """Formats the data directories, which differ in two ids only."""
        files = formatted(self._parts)
        meta = files["meta.properties"].decode().splitlines()
        for node in self.nodes.values():
            node.data.mkdir()
            for name, content in files.items():
                (node.data / name).write_bytes(content)
            own = {
                "node.id": str(node.id),
                "directory.id": urlsafe_b64encode(bytes([node.id] * 16)).decode().rstrip("="),
            }
            common_lines = [line for line in meta if line.partition("=")[0] not in own]
            lines = [*common_lines, *(f"{key}={value}" for key, value in own.items())]
            (node.data / "meta.properties").write_text("\n".join(lines) + "\n")

    def _settings(self, id_: int, data: Path) -> dict[str, str]:
        listeners = (self._plain[id_], self.inside[id_], self._controllers[id_])
        voters = ",".join(
            f"{key}@{controller.address}" for key, controller in self._controllers.items()
        )
        copies, enough = str(self._size), str(self._size // 2 + 1)
        return {
            "process.roles": "broker,controller",
            "node.id": str(id_),
            "broker.rack": f"rack-{id_}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "controller.quorum.voters": voters,
            "listeners": ",".join(map(str, listeners)),
            "advertised.listeners": f"{self._plain[id_]},TAPPED://{self._advertised[id_]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TAPPED:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(data),
            **{
                f"{topic}.replication.factor": copies
                for topic in ("offsets.topic", "transaction.state.log")
            },
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.min.isr": enough,
            "offsets.topic.num.partitions": copies,
            "transaction.state.log.num.partitions": copies,
            "transaction.state.log.min.isr": enough,
            **self._additional,
        }
