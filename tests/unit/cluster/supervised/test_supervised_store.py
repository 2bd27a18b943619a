"""The supervisor's store server and its clients: sessions, timeouts, hostile clients, sockets."""

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store import CommittedChanges, SessionState, StoreConflictError
from penstock.cluster.supervised.client import SupervisedStore
from penstock.cluster.supervised.messages import (
    PROTOCOL_VERSION,
    Commit,
    Goodbye,
    Hello,
    Load,
    Request,
    encode_frame,
)
from penstock.cluster.supervised.server import StoreServer
from penstock.cluster.supervised.unix_socket import connect_unix
from penstock.controller.metadata import (
    BrokerKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Put,
    TopicKey,
)
from penstock.core.errors import KafkaStorageError
from tests.support.cluster.metadata_changes import broker, config, partition, topic
from tests.support.cluster.waiting import wait_until

LONG_MS = 20_000
"""A session timeout that no test reaches."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def server(directory: Path) -> Iterator[StoreServer]:
    server = StoreServer(EmbeddedStore(directory / "metadata.db"), directory / "store.sock")
    yield server
    server.close()


@pytest.fixture
def store(server: StoreServer, directory: Path) -> Iterator[SupervisedStore]:
    store = open_store(directory)
    yield store
    store.close()


def open_store(directory: Path, timeout_ms: int = LONG_MS) -> SupervisedStore:
    return SupervisedStore(directory / "store.sock", name="a test", session_timeout_ms=timeout_ms)


def connect(directory: Path, *requests: Request) -> socket.socket:
    client = connect_unix(directory / "store.sock", 10.0)
    for request in requests:
        client.sendall(encode_frame(request))
    return client


def hello(timeout_ms: int = LONG_MS) -> Hello:
    return Hello(PROTOCOL_VERSION, "a raw client", timeout_ms)


def broker_ids(store: SupervisedStore) -> set[int]:
    return {
        record.key.broker_id for record in store.load().records if isinstance(record.key, BrokerKey)
    }


# --- the end of sessions


BROKER_PROCESS = """
import sys, time
from pathlib import Path
from penstock.cluster.supervised.client import SupervisedStore
from penstock.controller.metadata import Put
from tests.support.cluster.metadata_changes import broker
store = SupervisedStore(Path(sys.argv[1]), name="a child", session_timeout_ms=int(sys.argv[2]))
states = []
store.subscribe_session(states.append)
store.commit([Put(broker(9))])
print("registered", flush=True)
while [state.name for state in states] != ["EXPIRED", "CONNECTED"]:
    time.sleep(0.01)
store.load()
store.commit([Put(broker(10))])
print("registered again", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start_broker(directory: Path) -> Iterator["list[subprocess.Popen[str]]"]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(
    processes: "list[subprocess.Popen[str]]", directory: Path, timeout_ms: int
) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", BROKER_PROCESS, str(directory / "store.sock"), str(timeout_ms)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    processes.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "registered\n"
    return process


def test_a_killed_process_is_noticed_at_once(
    store: SupervisedStore, directory: Path, start_broker: "list[subprocess.Popen[str]]"
) -> None:
    process = start(start_broker, directory, LONG_MS)
    assert broker_ids(store) == {9}
    process.kill()
    wait_until(lambda: broker_ids(store) == set(), timeout_s=5)


def test_a_stopped_process_loses_its_session_and_starts_a_new_one_when_it_continues(
    store: SupervisedStore, directory: Path, start_broker: "list[subprocess.Popen[str]]"
) -> None:
    process = start(start_broker, directory, 400)
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: broker_ids(store) == set())
    process.send_signal(signal.SIGCONT)
    assert process.stdout is not None
    assert process.stdout.readline() == "registered again\n"
    assert broker_ids(store) == {10}


def test_heartbeats_keep_an_idle_session(directory: Path, store: SupervisedStore) -> None:
    idle = open_store(directory, 1000)
    states: list[SessionState] = []
    idle.subscribe_session(states.append)
    idle.commit([Put(broker(3))])
    time.sleep(1.6)
    assert broker_ids(store) == {3}
    assert states == []
    idle.close()
    assert broker_ids(store) == set()


def test_a_new_session_is_not_the_controllers(directory: Path, store: SupervisedStore) -> None:
    store.commit([Put(ControllerRecord(0, 1)), Put(ControllerEpochRecord(1))])
    states: list[SessionState] = []
    store.subscribe_session(states.append)
    assert store._connection is not None
    store._connection.end("a test ends it")
    wait_until(lambda: states == [SessionState.EXPIRED, SessionState.CONNECTED])
    with pytest.raises(StoreConflictError, match="/controller_epoch"):
        store.commit([Put(topic("t"))], fenced=True)
    store.commit([Put(ControllerRecord(0, 2)), Put(ControllerEpochRecord(2))])
    store.commit([Put(topic("t"))], fenced=True)


def test_a_broker_that_registers_again_keeps_its_node_when_the_old_session_ends(
    directory: Path, store: SupervisedStore
) -> None:
    old = open_store(directory)
    old.commit([Put(broker(1))])
    store.commit([Delete(BrokerKey(1)), Put(broker(1))])
    old.close()
    assert broker_ids(store) == {1}


def test_a_closed_server_is_an_expired_session(directory: Path) -> None:
    server = StoreServer(EmbeddedStore(directory / "metadata.db"), directory / "store.sock")
    store = open_store(directory)
    states: list[SessionState] = []
    store.subscribe_session(states.append)
    deliveries: list[CommittedChanges] = []
    store.subscribe(deliveries.append)
    version = store.commit([Put(topic("t"))])
    server.close()
    wait_until(lambda: states == [SessionState.EXPIRED])
    with pytest.raises(KafkaStorageError, match=r"has (expired|ended)"):
        store.load()
    second = StoreServer(EmbeddedStore(directory / "metadata.db"), directory / "store.sock")
    wait_until(lambda: states[1:] == [SessionState.CONNECTED])
    assert store.commit([Put(partition("t"))]) > version
    assert [delivery.changes for delivery in deliveries] == [
        [Put(topic("t"))],
        [Put(partition("t"))],
    ]
    store.close()
    second.close()


def test_a_silent_supervisor_suspends_the_session_and_then_ends_it(directory: Path) -> None:
    """A supervisor that is stopped accepts connections, but sends nothing."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "store.sock"))
    listener.listen()
    accepted: list[socket.socket] = []

    def welcome() -> None:
        connection, _ = listener.accept()
        accepted.append(connection)
        connection.sendall(struct.pack(">I", 10) + b"\x92\xa7welcome\x01")

    thread = threading.Thread(target=welcome)
    thread.start()
    store = open_store(directory, 300)
    thread.join()
    states: list[SessionState] = []
    store.subscribe_session(states.append)
    wait_until(lambda: states == [SessionState.SUSPENDED, SessionState.EXPIRED])
    with pytest.raises(KafkaStorageError, match=r"has (expired|ended)"):
        store.commit([Put(topic("t"))])
    listener.close()
    store.close()
    accepted[0].close()


def test_a_commit_without_a_response_fails_within_the_session_timeout(directory: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "store.sock"))
    listener.listen()

    def respond_to_heartbeats_only() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(struct.pack(">I", 10) + b"\x92\xa7welcome\x01")
            while connection.recv(4096):
                connection.sendall(struct.pack(">I", 11) + b"\x91\xa9heartbeat")

    thread = threading.Thread(target=respond_to_heartbeats_only)
    thread.start()
    store = open_store(directory, 300)
    with pytest.raises(KafkaStorageError, match="unknown; reload the metadata"):
        store.commit([Put(topic("t"))])
    listener.close()
    store.close()
    thread.join()


# --- hostile clients


def refused(client: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    try:
        while client.recv(4096):
            pass
    except ConnectionResetError:
        pass
    client.close()
    return True


INVALID_MESSAGES = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "garbage": struct.pack(">I", 5) + b"\x00\x01\x02\x03\x04",
    "empty": struct.pack(">I", 0),
    "too large": b"\xff" * 4,
    "no hello": encode_frame(Load()),
    "other version": encode_frame(Hello(99, "from the future", LONG_MS)),
    "hello twice": encode_frame(hello()) * 2,
    "unknown path": encode_frame(hello()) + encode_frame(Commit(["/nowhere"], None, fenced=False)),
    "impossible record": encode_frame(hello())
    + encode_frame(Commit([config()], None, fenced=False)),
}


@pytest.mark.parametrize("kind", INVALID_MESSAGES)
def test_an_invalid_message_ends_its_own_session_only(
    store: SupervisedStore, directory: Path, kind: str
) -> None:
    store.commit([Put(broker(1))])
    client = connect(directory)
    client.sendall(INVALID_MESSAGES[kind])
    assert refused(client)
    store.commit([Put(topic("t"))])
    assert broker_ids(store) == {1}


def test_a_half_sent_commit_of_a_killed_client_changes_nothing(
    store: SupervisedStore, directory: Path
) -> None:
    commit = encode_frame(Commit([topic("t")], None, fenced=False))
    client = connect(directory, hello())
    client.sendall(commit[:-1])
    client.close()
    assert store.load().records == []


def test_a_client_that_reads_nothing_does_not_delay_others(
    store: SupervisedStore, directory: Path
) -> None:
    deaf = connect(directory, hello())
    started = time.monotonic()
    for number in range(20):
        store.commit([Put(config(("users", "ann"), text="x" * 200_000, number=str(number)))])
    assert time.monotonic() - started < 60
    deaf.close()


def test_requests_after_goodbye_are_ignored(store: SupervisedStore, directory: Path) -> None:
    late = Commit([topic("late")], None, fenced=False)
    client = connect(directory)
    client.sendall(encode_frame(hello()) + encode_frame(Goodbye()) + encode_frame(late))
    assert refused(client)
    assert store.load().records == []


# --- the socket


def test_only_the_owner_can_connect(server: StoreServer, directory: Path) -> None:
    assert stat.S_IMODE((directory / "store.sock").stat().st_mode) == 0o600


def test_a_socket_may_have_a_long_path(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    server = StoreServer(EmbeddedStore(directory / "metadata.db"), directory / "store.sock")
    store = open_store(directory)
    store.commit([Put(topic("t"))])
    assert store.fetch([TopicKey("t")]) == [topic("t")]
    store.close()
    server.close()


def test_the_socket_of_a_killed_supervisor_is_replaced(directory: Path) -> None:
    left_behind = socket.socket(socket.AF_UNIX)
    left_behind.bind(str(directory / "store.sock"))
    left_behind.close()
    server = StoreServer(EmbeddedStore(directory / "metadata.db"), directory / "store.sock")
    open_store(directory).close()
    server.close()
    assert sorted(os.listdir(directory)) == ["metadata.db"]


def test_a_store_without_a_supervisor_cannot_be_opened(directory: Path) -> None:
    with pytest.raises(KafkaStorageError, match=r"store\.sock cannot be reached: No such file"):
        open_store(directory)
