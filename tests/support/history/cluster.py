"""Three broker processes and ZooKeeper behind a network that can be cut.

with HistoryCluster(directory) as cluster:
    cluster.kill(1)
    cluster.start(1)

Some of the brokers may be Apache Kafka's.
"""

import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client import Admin
from penstock.client.admin.model_topics import NewTopic
from penstock.core.errors import KafkaError
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.history.broker_process import BrokerProcess, PenstockProcess
from tests.support.history.kafka_process import KafkaProcess
from tests.support.history.network import (
    BROKER_PORT,
    CLIENT_PORT,
    ZOOKEEPER_PORT,
    Network,
)

BROKER_IDS = (1, 2, 3)
LOGIN_PORT = 9094
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
SESSION_TIMEOUT_S = 2.0
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
RECOVERY_TIMEOUT_S = 120.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "zookeeper.connection.timeout.ms": "60000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "request.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.segment.bytes": "1048576",
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "controlled.shutdown.max.retries": "1",
}


class HistoryCluster:
    """The processes of a cluster. Brokers and ZooKeeper keep their data and addresses."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        bugs: Sequence[str] = (),
        kafka: Collection[int] = (),
        *,
        has_logins: bool = False,
        starts_with_kafka: bool = True,
    ) -> None:
        """The brokers in `kafka` are Apache Kafka's. The first broker sets the feature levels.

        With `has_logins`, every broker has a listener with SASL too, without a relay.
        """
        self.directory = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self._bugs = bugs
        self._has_logins = has_logins
        self._starts_with_kafka = starts_with_kafka
        self.kafka = set(kafka)
        """The brokers that are Apache Kafka's; it holds for the next start of each."""
        self._stack = ExitStack()
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.network = Network(BROKER_IDS, ("127.0.0.1", self.zookeeper.port))
        self.processes: dict[int, BrokerProcess] = {}
        self._down: set[int] = set()
        """Brokers that should not run now."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.zookeeper.start(wait=False)
            stack.callback(self.zookeeper.kill)
            stack.enter_context(self.network)
            stack.callback(self._kill_all)
            self.zookeeper.wait_until_serving()
            others = set(BROKER_IDS).difference(self.kafka)
            kinds = (self.kafka, others) if self._starts_with_kafka else (others, self.kafka)
            for broker_ids in kinds:
                self._launch_all(broker_ids)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def data_directory(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}"

    def log_end(self, broker_id: int) -> str:
        text = (self.directory / f"broker-{broker_id}.log").read_text(errors="replace")
        return text[-3000:]

    # --- processes

    def _launch_all(self, broker_ids: Collection[int]) -> None:
        for broker_id in broker_ids:
            self.launch(broker_id)
        for broker_id in broker_ids:
            assert self.processes[broker_id].wait_until_ready(), self.log_end(broker_id)

    def launch(self, broker_id: int) -> None:
        """Starts a broker's process without waiting for it."""
        host, relay = self.network.address(broker_id), self.network.relay_address(broker_id)
        logins = f",LOGINS://{host}:{LOGIN_PORT}" if self._has_logins else ""
        settings = {
            "node.id": str(broker_id),
            "listeners": f"CLIENTS://{host}:{CLIENT_PORT},BROKERS://{host}:{BROKER_PORT}{logins}",
            "advertised.listeners": (
                f"CLIENTS://{relay}:{CLIENT_PORT},BROKERS://{relay}:{BROKER_PORT}{logins}"
            ),
            "listener.security.protocol.map": (
                "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,LOGINS:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "BROKERS",
            "log.dirs": str(self.data_directory(broker_id)),
            "zookeeper.connect": f"{relay}:{ZOOKEEPER_PORT}",
            **self._settings,
        }
        log = self.directory / f"broker-{broker_id}.log"
        if broker_id in self.kafka:
            self.processes[broker_id] = KafkaProcess(settings, log)
            return
        arguments = [f"{name}={value}" for name, value in settings.items()]
        arguments += [f"bug={bug}" for bug in self._bugs]
        self.processes[broker_id] = PenstockProcess(arguments, log)

    def kill(self, broker_id: int) -> None:
        self._down.add(broker_id)
        self.processes[broker_id].end(signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        """Stops a broker in order; it is killed if it takes too long."""
        self._down.add(broker_id)
        self.processes[broker_id].end(signal.SIGTERM, STOP_TIMEOUT_S)

    def replace(self, broker_id: int) -> None:
        """Stops a broker in order, and starts one of the other kind with its id and its data."""
        self.stop(broker_id)
        is_clean = (self.data_directory(broker_id) / CLEAN_SHUTDOWN).exists()
        assert is_clean, f"broker {broker_id} was killed:\n{self.log_end(broker_id)}"
        self.kafka ^= {broker_id}
        self.start(broker_id)

    def stop_all(self) -> None:
        """Stops all brokers in order, at the same time."""
        self._down.update(BROKER_IDS)
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.end(signal.SIGTERM, STOP_TIMEOUT_S)

    def start(self, broker_id: int) -> None:
        """Starts a broker that was killed or stopped, without waiting for it."""
        self._down.discard(broker_id)
        self.start_missing()

    def start_missing(self) -> None:
        """Starts brokers that have ended although they should run: they did not reach ZooKeeper."""
        for broker_id, process in self.processes.items():
            if broker_id not in self._down and not process.is_running:
                process.end(signal.SIGKILL)
                self.launch(broker_id)

    def wait_until_ready(self) -> None:
        """Waits until all brokers have started."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(process.wait_until_ready() for process in self.processes.values()):
            self.start_missing()
            assert time.monotonic() < deadline, "\n".join(map(self.log_end, BROKER_IDS))

    def _kill_all(self) -> None:
        for process in self.processes.values():
            process.end(signal.SIGKILL)

    # --- state of the cluster

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        topics = [
            NewTopic(name, num_partitions=count, replication_factor=len(BROKER_IDS))
            for name, count in partitions.items()
        ]
        with Admin(bootstrap_servers=self.network.bootstrap) as admin:
            admin.create_topics(topics)

    def heal(self) -> None:
        """Ends all faults: every process runs, and reaches every other one."""
        self.network.heal_all()
        for process in self.processes.values():
            if process.is_running:
                process.send_signal(signal.SIGCONT)
                process.command("disk free")
                process.command("clock 0")
        if not self.zookeeper.mode():
            self.zookeeper.kill()
            self.zookeeper.start()
        self._down.clear()
        self.start_missing()
        self.wait_until_ready()

    def wait_until_in_sync(self, timeout_s: float = RECOVERY_TIMEOUT_S) -> None:
        """Waits until all replicas of all partitions are in sync."""
        self.poll(self._out_of_sync, timeout_s)

    def wait_until_led_by(self, topic: str, broker_id: int) -> None:
        """Waits until a broker is the only one in sync, in all partitions of a topic."""

        def problem() -> str:
            with Admin(bootstrap_servers=self.network.bootstrap) as admin:
                partitions = admin.describe_topics([topic])[topic].partitions
            others = [p for p in partitions if (p.leader, p.isr) != (broker_id, (broker_id,))]
            return f"not led by broker {broker_id} alone: {others}" if others else ""

        self.poll(problem, RECOVERY_TIMEOUT_S)

    def leader_of(self, topic: str, partition: int) -> int:
        with Admin(bootstrap_servers=self.network.bootstrap) as admin:
            leader = admin.describe_topics([topic])[topic].partitions[partition].leader
        assert leader is not None
        return leader

    def controller_id(self) -> int | None:
        with Admin(bootstrap_servers=self.network.bootstrap) as admin:
            controller = admin.describe_cluster().controller
        return None if controller is None else controller.id

    def poll(self, problem: Callable[[], str], timeout_s: float) -> None:
        """Waits until there is no problem; fails with its description after the timeout."""
        deadline = time.monotonic() + timeout_s
        text = "not tried"
        while text:
            try:
                text = problem()
            except KafkaError as error:
                text = str(error)
            if text:
                assert time.monotonic() < deadline, f"after {timeout_s} s: {text}"
                time.sleep(0.2)

    def _out_of_sync(self) -> str:
        with Admin(
            bootstrap_servers=self.network.bootstrap,
            request_timeout_ms=5000,
            default_api_timeout_ms=10_000,
        ) as admin:
            topics = admin.describe_topics(admin.list_topics(include_internal=True))
        waiting = [
            f"{name}-{partition.partition} {partition.isr}"
            for name, topic in topics.items()
            for partition in topic.partitions
            if set(partition.isr) != set(partition.replicas)
        ]
        return f"out of sync: {', '.join(waiting)}" if waiting else ""
