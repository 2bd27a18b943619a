"""The recipes of docs/operations.md, with the commands of the page (R8, T1)."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from penstock.client import Admin, Consumer, Producer
from penstock.core.ids import TopicPartition
from penstock.testing.addresses import Listener, Ports
from tests.support.cluster.zookeeper_server import ZooKeeperServer

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
MACHINES = ("broker1", "broker2", "broker3", "broker4")
RACKS = dict(zip(MACHINES, "abca", strict=True))
DATA = "/var/lib/penstock"
PROPERTIES = "/etc/penstock/server.properties"
STOP_S = 120.0


class Command(NamedTuple):
    """A line of a `console` block."""

    machine: str
    words: tuple[str, ...]


def commands(section: str) -> list[Command]:
    """Returns the commands of a section of the page, with the machines that they run on."""
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert text is not None, section
    blocks = re.findall(r"```console\n(.*?)```", text[1], re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    parts = [line.partition("$ ") for line in lines]
    return [Command(machine, tuple(shlex.split(words))) for machine, _, words in parts]


class Machines:
    """The machines of the page: directories and ports of this one."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._chroot = "/penstock"
        self._ports = Ports()
        self._addresses = {
            name: self._ports.reserve(Listener("PLAINTEXT", "127.0.0.1", 0)).address
            for name in MACHINES
        }
        self._services: dict[str, subprocess.Popen[str]] = {}
        for name in (*MACHINES, "admin"):
            (directory / name).mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for service in self._services.values():
            service.kill()
            service.communicate()
        self._ports.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._addresses[name] for name in MACHINES[:3])

    def lose_metadata(self) -> None:
        """ZooKeeper is empty for brokers that start from now on."""
        self._chroot = "/another"

    def run(self, section: str) -> dict[Command, str]:
        """Runs the commands of a section in order; returns the output of each."""
        outputs = {}
        for command in commands(section):
            match command.words:
                case ("pip", "install", *_):
                    continue
                case ("systemctl", "start", "penstock"):
                    self._start(command.machine)
                case ("systemctl", "stop", "penstock"):
                    self._stop(command.machine)
                case ("rm", "-rf", path) if path == DATA:
                    shutil.rmtree(self._data(command.machine))
                case ("penstock", *arguments):
                    outputs[command] = self._penstock(command.machine, arguments)
                case _:
                    pytest.fail(f"unknown command: {command}")
        return outputs

    def _data(self, machine: str) -> Path:
        return self._directory / machine / "data"

    def _penstock(self, machine: str, arguments: list[str]) -> str:
        words = [
            str(self._write_properties(machine)) if word == PROPERTIES else self._localize(word)
            for word in arguments
        ]
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            cwd=self._directory / machine,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def _localize(self, text: str) -> str:
        for name, address in self._addresses.items():
            text = text.replace(f"{name}:9092", address)
        return text

    def _properties(self, machine: str) -> str:
        [text] = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
        number = machine.removeprefix("broker")
        text = text.replace("node.id=1", f"node.id={number}")
        text = text.replace("//broker1:9092", f"//{machine}:9092")
        text = text.replace("broker.rack=a", f"broker.rack={RACKS[machine]}")
        text = text.replace("0.0.0.0:9092", self._addresses[machine])
        text = text.replace(DATA, str(self._data(machine)))
        zookeeper = f"{self._zookeeper.address}{self._chroot}"
        text = text.replace("zk1:2181,zk2:2181,zk3:2181/penstock", zookeeper)
        return self._localize(text)

    def _write_properties(self, machine: str) -> Path:
        properties = self._directory / machine / "server.properties"
        properties.write_text(self._properties(machine))
        return properties

    def _start(self, machine: str) -> None:
        """Starts the service, and returns when it is ready."""
        properties = self._write_properties(machine)
        log = self._directory / machine / "broker.log"
        with log.open("a") as output:
            service = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", str(properties)],
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self._services[machine] = service
        assert service.stdout is not None
        assert "is ready" in service.stdout.readline(), log.read_text()[-3000:]

    def _stop(self, machine: str) -> None:
        service = self._services.pop(machine)
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=STOP_S)
        assert service.returncode == 0


class Clients:
    """A producer that writes numbers, and a consumer group that reads them, until `stop`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._is_stopped = threading.Event()
        self.sent = 0
        self.received: Counter[int] = Counter()
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (self._produce, self._consume)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Waits until the consumer has everything."""
        self._is_stopped.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.errors.append(error)

    def _produce(self) -> None:
        with Producer(bootstrap_servers=self._servers, acks="all") as producer:
            while not self._is_stopped.is_set():
                producer.send("orders", b"%d" % self.sent, key=b"%d" % self.sent).result(120)
                self.sent += 1
                time.sleep(0.01)

    def _consume(self) -> None:
        with Consumer(
            bootstrap_servers=self._servers, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            deadline = 0.0
            while not deadline or (sum(self.received.values()) < self.sent):
                self.received.update(int(record.value or b"") for record in consumer.poll(0.5))
                if self._is_stopped.is_set() and not self._threads[0].is_alive():
                    deadline = deadline or time.monotonic() + 60
                    assert time.monotonic() < deadline, "the consumer does not get everything"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        Machines(tmp_path, zookeeper) as machines,
    ):
        yield machines


def replicas(servers: str) -> list[tuple[int, ...]]:
    with Admin(bootstrap_servers=servers) as admin:
        topics = admin.describe_topics(admin.list_topics(include_internal=True)).values()
    return [partition.replicas for topic in topics for partition in topic.partitions]


def stored(servers: str, count: int) -> Counter[int]:
    """Returns the numbers in the topic, once there are as many."""
    numbers: Counter[int] = Counter()
    deadline = time.monotonic() + 60
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition("orders", number) for number in range(6)])
        consumer.seek_to_beginning()
        while numbers.total() < count and time.monotonic() < deadline:
            numbers.update(int(record.value or b"") for record in consumer.poll(0.5))
    return numbers


@pytest.mark.long
def test_the_recipes(machines: Machines) -> None:
    """In the order of the page. Clients have no error, and read every record once."""
    outputs = machines.run("Three machines from nothing")
    doctor, *_ = outputs.values()
    assert "reached broker 1 at" in doctor
    servers = machines.bootstrap_servers
    clients = Clients(servers)
    clients.start()

    machines.run("Restart and upgrade without interruption")
    leaders = [item[0] for item in replicas(servers)]
    assert set(leaders) == {1, 2, 3}

    machines.run("Replacing a machine")
    assert all(2 in item for item in replicas(servers))

    machines.run("Adding a machine")
    assert any(4 in item for item in replicas(servers))

    machines.run("Removing a machine")
    assert all(set(item) == {1, 2, 3} for item in replicas(servers))

    racks = machines.run("Racks")
    assert any(re.search(r" c +(yes|no) +up", output) for output in racks.values())

    dirs, *_ = machines.run("A full disk").values()
    assert "data" in dirs
    machines.run("Backup of the metadata")
    clients.stop()
    assert clients.errors == []
    assert clients.sent > 100
    assert clients.received == Counter(range(clients.sent))

    machines.lose_metadata()
    machines.run("Restoring the metadata")
    assert all(set(item) == {1, 2, 3} for item in replicas(servers))
    assert stored(servers, clients.sent) == Counter(range(clients.sent))


def test_every_recipe_is_run() -> None:
    """No section with commands is missing above."""
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    source = Path(__file__).read_text()
    for section in sections:
        if commands(section):
            assert f'machines.run("{section}")' in source, section
