"""The supervisor with stub brokers: starts, restarts, stops, and what it reports."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.factory import SOCKET_FILE, STORE_FILE
from penstock.cluster.supervised.client import SupervisedStore
from penstock.controller.metadata import Assignment, BrokerRecord, Put
from tests.support.broker.stub_broker import BEHAVIOUR
from tests.support.cluster.metadata_changes import topic
from tests.support.cluster.waiting import wait_until

MAIN: Final = """
import logging, sys
from penstock.broker.supervisor import supervisor
from penstock.core.errors import KafkaError
logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")
supervisor.STOP_TIMEOUT_S = 1.0
command = [sys.executable, "-m", "tests.support.broker.stub_broker"]
try:
    supervisor.run(None, sys.argv[2:], int(sys.argv[1]), command,
                   lambda addresses: print("ready on", *addresses, flush=True))
except KafkaError as error:
    sys.exit("penstock: " + error.message)
"""


class SupervisorProcess:
    """A supervisor of stub brokers in `directory`, with its output."""

    def __init__(self, directory: Path, *, brokers: int = 2, behaviour: str = "") -> None:
        self.directory = directory
        self.log = directory.parent / f"{directory.name}.log"
        settings = [f"log.dirs={directory}", "listeners=PLAINTEXT://127.0.0.1:0"]
        settings += [f"{BEHAVIOUR}={behaviour}"] if behaviour else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, str(brokers), *settings],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_ready(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def output(self) -> str:
        return self.log.read_text()

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        self.process.communicate(timeout=30)
        return self.process.returncode

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def pids(self) -> dict[int, int]:
        """The process of each broker that is registered."""
        store = SupervisedStore(
            self.directory / SOCKET_FILE, name="a test", session_timeout_ms=10_000
        )
        try:
            return {
                record.broker_id: int((record.rack or "").removeprefix("pid "))
                for record in store.load().records
                if isinstance(record, BrokerRecord)
            }
        finally:
            store.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def supervisors() -> Iterator[list[SupervisorProcess]]:
    running: list[SupervisorProcess] = []
    yield running
    for supervisor in running:
        supervisor.kill()


@pytest.fixture
def supervisor(directory: Path, supervisors: list[SupervisorProcess]) -> SupervisorProcess:
    supervisors.append(SupervisorProcess(directory))
    assert supervisors[0].wait_ready() == "ready on stub:0 stub:1\n"
    return supervisors[0]


def is_running(pid: int) -> bool:
    """Whether the process exists, and is not a zombie that nobody has waited for."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_brokers_are_stopped_in_a_controlled_way(
    supervisor: SupervisorProcess, directory: Path
) -> None:
    pids = supervisor.pids()
    assert set(pids) == {0, 1}
    assert supervisor.stop() == 0
    assert not any(map(is_running, pids.values()))
    assert (directory / "stopped-cleanly").exists()
    assert (directory / "broker.1" / "stopped-cleanly").exists()
    assert not (directory / SOCKET_FILE).exists()


def test_a_killed_broker_is_started_again(supervisor: SupervisorProcess) -> None:
    before = supervisor.pids()
    os.kill(before[1], signal.SIGKILL)
    wait_until(lambda: supervisor.pids().get(1, before[1]) != before[1])
    assert supervisor.pids()[0] == before[0]
    assert supervisor.stop() == 0
    line = f"broker 1 (pid {before[1]}) was killed by SIGKILL; it is started again in 0.1 s"
    assert line in supervisor.output()


def test_brokers_end_with_a_killed_supervisor(supervisor: SupervisorProcess) -> None:
    pids = supervisor.pids()
    supervisor.kill()
    wait_until(lambda: not any(map(is_running, pids.values())))


def test_a_directory_can_be_used_again_after_a_killed_supervisor(
    supervisor: SupervisorProcess, directory: Path, supervisors: list[SupervisorProcess]
) -> None:
    pids = supervisor.pids()
    supervisor.kill()
    wait_until(lambda: not any(map(is_running, pids.values())))
    supervisors.append(SupervisorProcess(directory))
    assert supervisors[-1].wait_ready() == "ready on stub:0 stub:1\n"
    assert supervisors[-1].stop() == 0


def test_a_broker_that_cannot_start_stops_all(
    directory: Path, supervisors: list[SupervisorProcess]
) -> None:
    supervisors.append(SupervisorProcess(directory, brokers=3, behaviour="fail 1"))
    assert supervisors[0].wait_ready() == ""
    assert supervisors[0].wait() == 1
    assert supervisors[0].output().splitlines()[-1] == "penstock: broker 1: port 1 is in use"


def test_a_broker_that_crashes_at_its_start_stops_all(
    directory: Path, supervisors: list[SupervisorProcess]
) -> None:
    supervisors.append(SupervisorProcess(directory, behaviour="crash 0"))
    assert supervisors[0].wait() == 1
    last = supervisors[0].output().splitlines()[-1]
    assert last == "penstock: broker 0: it exited with code 3 while it started"


def test_a_second_supervisor_of_the_same_directory_changes_nothing(
    supervisor: SupervisorProcess, directory: Path, supervisors: list[SupervisorProcess]
) -> None:
    pids = supervisor.pids()
    supervisors.append(SupervisorProcess(directory))
    assert supervisors[1].wait() == 1
    assert supervisors[1].output().splitlines()[-1] == (
        f"penstock: metadata store {directory / STORE_FILE} is in use by another process: "
        "stop that process, or use another data directory"
    )
    assert supervisor.pids() == pids


def test_a_broker_that_does_not_stop_is_killed(
    directory: Path, supervisors: list[SupervisorProcess]
) -> None:
    supervisors.append(SupervisorProcess(directory, behaviour="deaf"))
    supervisors[0].wait_ready()
    pids = supervisors[0].pids()
    assert supervisors[0].stop() == 0
    assert not any(map(is_running, pids.values()))
    assert "has not stopped within 1 s: it is killed" in supervisors[0].output()


def test_replicas_of_brokers_that_are_not_started_are_reported(
    directory: Path, supervisors: list[SupervisorProcess]
) -> None:
    directory.mkdir()
    store = EmbeddedStore(directory / STORE_FILE)
    store.commit([Put(replace(topic("orders"), assignments={0: Assignment((0, 4))}))])
    store.close()
    supervisors.append(SupervisorProcess(directory))
    supervisors[0].wait_ready()
    assert supervisors[0].stop() == 0
    assert (
        "WARNING broker 4 has replicas of orders, but only 2 brokers are started"
        in supervisors[0].output()
    )
