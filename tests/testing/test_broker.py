"""`penstock.testing.Broker`: start and stop, and it never outlives the tests."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing import Broker, BrokerError
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.broker.outside import connect, write
from tests.support.kafka.broker import wait_until
from tests.support.protocol.requests import fetch_request

FIRST_RECORD_SECONDS = 0.5
TRIES = 5
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def first_record_seconds() -> float:
    """Returns how long the broker takes, in processor time."""
    with Broker() as broker:
        broker.create_topic("topic")
        assert write(broker, "topic", b"value") == 0
        return processor_seconds(broker.pid)


def test_the_first_record_is_acknowledged_soon() -> None:
    """One attempt in time is enough, because other processes may slow it down."""
    taken: list[float] = []
    while len(taken) < TRIES and min(taken, default=1.0) > FIRST_RECORD_SECONDS:
        taken.append(first_record_seconds())
    assert min(taken) <= FIRST_RECORD_SECONDS


def test_a_temporary_directory_is_removed() -> None:
    with Broker() as broker:
        directory = broker.folder
        assert (directory / "data" / "meta.properties").exists()
    assert not directory.exists()


def test_a_directory_of_the_caller_is_kept(tmp_path: Path) -> None:
    """S1: another broker continues with its data."""
    directory = tmp_path / "new" / "directory"
    with Broker(folder=directory) as broker:
        broker.create_topic("topic")
        assert write(broker, "topic", b"one", b"two") == 0
    assert "stopped" in (directory / "broker.log").read_text()
    with Broker(folder=str(directory)) as broker:
        assert write(broker, "topic", b"three") == 2


@pytest.mark.parametrize("faults", [True, False])
def test_restarts(faults: bool) -> None:
    """S7: the broker has the same address and the same data, after a stop and after a kill."""
    with Broker(faults=faults) as broker:
        address, pid = broker.bootstrap_servers, broker.pid
        broker.create_topic("topic")
        assert write(broker, "topic", b"zero") == 0
        broker.restart()
        assert broker.pid != pid
        assert write(broker, "topic", b"one") == 1
        broker.kill()
        assert not broker.is_running
        with pytest.raises(ConnectionRefusedError):
            connect(broker)
        broker.start()
        assert write(broker, "topic", b"two") == 2
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            connect(broker)
        broker.start()
        assert write(broker, "topic", b"three") == 3
        assert broker.bootstrap_servers == address


def test_settings() -> None:
    """They override the defaults for tests."""
    settings = {"num.partitions": "3", "auto.create.topics.enable": "false"}
    with Broker(settings, faults=False) as broker:
        broker.create_topic("by-default", -1)
        broker.create_topic("compact", config={"cleanup.policy": "compact"})
        data = broker.folder / "data"
        directories = {path.name for path in data.iterdir() if path.is_dir()}
        assert directories == {"by-default-0", "by-default-1", "by-default-2", "compact-0"}
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            broker.create_topic("compact")
        broker.delete_topic("compact")
        broker.delete_topic("compact", missing_ok=True)
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            broker.delete_topic("compact")


def test_an_invalid_setting() -> None:
    with pytest.raises(BrokerError, match=r"did not start(.|\n)*num\.partitions") as refused:
        Broker({"num.partitions": "many"}).start()
    assert "--set" not in str(refused.value)


def test_a_failed_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for settings in ({"num.partitions": "many"}, {"listeners": "here"}):
        broker = Broker(settings)
        with pytest.raises(BrokerError, match="did not start"):
            broker.start()
        broker.close()
    assert list(tmp_path.iterdir()) == []


def test_several_listeners(tmp_path: Path) -> None:
    """X1: each is reachable at its address, with and without faults."""
    listeners = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    mapped = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    settings = {"listeners": listeners, "listener.security.protocol.map": mapped}
    with Broker(settings) as broker:
        assert broker.bootstrap_servers == broker.address("PLAINTEXT") != broker.address("OTHER")
        broker.create_topic("topic")
        for name in ("PLAINTEXT", "OTHER"):
            with connect(broker, name) as client:
                response = client.request(fetch_request({"topic": {0: 0}}), 12)
                assert response.responses[0].partitions[0].error_code == 0
        with pytest.raises(BrokerError, match="`listeners` has PLAINTEXT, OTHER"):
            broker.address("SSL")


def test_a_listener_with_ssl_only(tmp_path: Path) -> None:
    """Methods that need to read or write the protocol raise an error."""
    identity = make_identity(simple_name("localhost"))
    store = tmp_path / "server.pem"
    store.write_text(identity.key_pem() + identity.certificate_pem)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    with Broker(settings) as broker:
        with pytest.raises(BrokerError, match="with your own admin client"):
            broker.create_topic("topic")
        with pytest.raises(BrokerError, match="without SSL"), broker.losing_replies():
            pass


def die(broker: Broker) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_running, "the end of the broker")


def test_a_broker_that_ends_unexpectedly() -> None:
    """The test gets an error with the end of the log."""

    def run() -> None:
        with Broker() as broker:
            die(broker)

    with pytest.raises(BrokerError, match="ended unexpectedly, with -9; its log ends with:"):
        run()


def test_an_error_of_the_test_is_not_hidden() -> None:
    def run() -> float:
        with Broker() as broker:
            die(broker)
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        run()


@pytest.mark.parametrize(
    "use",
    [
        lambda broker: broker.bootstrap_servers,
        lambda broker: broker.folder,
        lambda broker: broker.pid,
        lambda broker: broker.stop(),
        lambda broker: broker.kill(),
        lambda broker: broker.cut(),
        lambda broker: broker.create_topic("topic"),
    ],
)
def test_a_broker_that_was_not_started(use: Callable[[Broker], object]) -> None:
    with pytest.raises(BrokerError, match=r"call start\(\)"):
        use(Broker())


def test_starting_twice() -> None:
    with Broker() as broker, pytest.raises(BrokerError, match="running already"):
        broker.start()


def test_the_thread_that_started_it_may_end() -> None:
    broker = Broker()
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
    with broker:
        broker.create_topic("topic")
        assert write(broker, "topic", b"value") == 0


ORPHAN = """
import os, sys, threading
from penstock.testing import Broker
broker = Broker()
if sys.argv[1] == "thread":
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
else:
    broker.start()
pause = broker.paused()
if sys.argv[1] == "paused":
    pause.__enter__()
print(broker.folder, broker.pid, broker._network.relays.pid, flush=True)
sys.stdin.read()
if sys.argv[1] == "exit":
    sys.exit()
os.kill(os.getpid(), 9)
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # nobody but the init process of this machine could reap it


@pytest.mark.parametrize("ending", ["killed", "thread", "paused", "exit"])
def test_it_never_outlives_the_tests(ending: str) -> None:
    """Nor does its directory, unless the kernel kills the broker while it is paused."""
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, ending],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    directory, *pids = parent.stdout.readline().split()
    assert [is_alive(int(pid)) for pid in pids] == [True, True]
    parent.communicate()
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids), "the end of both", 20)
    if ending == "paused":  # the kernel kills it without any cleanup
        assert Path(directory, "broker.log").exists()
        subprocess.run(["rm", "-r", directory], check=True)
    assert not Path(directory).exists()
