"""`penstock serve --brokers`: a cluster of processes on one machine, as users run it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from penstock.client import Consumer, Producer
from penstock.client.admin import NewTopic
from penstock.client.admin.admin import Admin
from tests.support.broker.process import PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.waiting import wait_until
from tests.support.cluster.zookeeper_server import ZooKeeperServer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockBroker]:
    settings = {"zookeeper.session.timeout.ms": "3000"}
    with PenstockBroker(tmp_path_factory.mktemp("cluster"), settings, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: PenstockBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


def broker_ids(admin: Admin) -> list[int]:
    return [node.id for node in admin.describe_cluster().nodes]


def registered_pids(cluster: PenstockBroker) -> dict[int, int]:
    """The process of each broker, by its id, as the supervisor has logged it."""
    lines = re.findall(r"broker (\d+) \(pid (\d+)\) is ready", cluster.log.read_text())
    return {int(broker_id): int(pid) for broker_id, pid in lines}


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def is_running(pid: int) -> bool:
    """Whether the process exists, and is not a zombie that nobody has waited for."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_all_brokers_form_one_cluster(cluster: PenstockBroker, admin: Admin) -> None:
    assert len(cluster.bootstrap.split(",")) == 3
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])
    described = admin.describe_cluster()
    assert {node.rack for node in described.nodes} == {socket.gethostname()}
    assert described.controller in described.nodes


def test_replicas_are_spread_over_the_brokers(cluster: PenstockBroker, admin: Admin) -> None:
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])
    admin.create_topics([NewTopic("spread", num_partitions=3, replication_factor=2)])
    wait_until(lambda: "spread" in admin.list_topics())
    partitions = admin.describe_topics(["spread"])["spread"].partitions
    assert sorted(partition.leader or 0 for partition in partitions) == [0, 1, 2]
    log_dirs = [cluster.data, cluster.data / "broker.1", cluster.data / "broker.2"]
    expected = [
        log_dirs[broker_id] / f"spread-{partition.partition}"
        for partition in partitions
        for broker_id in partition.replicas
    ]
    wait_until(lambda: all(directory.is_dir() for directory in expected))


def test_the_status_of_the_cluster(cluster: PenstockBroker, admin: Admin) -> None:
    admin.create_topics([NewTopic("shown", num_partitions=2, replication_factor=3)])
    cli = Cli(cluster.bootstrap)
    cli("produce", "shown", stdin="a\nb\n")

    def is_shown() -> bool:
        document = cli.json("cluster", "status", "--topic", "shown")
        assert [broker["id"] for broker in document["brokers"]] == [0, 1, 2]
        assert (document["under_replicated"], document["offline"]) == (0, 0)
        ends = [replica["log_end_offset"] for replica in document["replicas"]]
        lags = [replica["lag"] for replica in document["replicas"]]
        return len(ends) == 6 and sum(filter(None, ends)) == 6 and lags == [0] * 6

    wait_until(is_shown)


def test_a_killed_broker_comes_back(cluster: PenstockBroker, admin: Admin) -> None:
    before = cluster.broker_pids()
    nodes = admin.describe_cluster().nodes
    os.kill(before[1], signal.SIGKILL)
    wait_until(lambda: len(set(cluster.broker_pids()) - set(before)) == 1)
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])
    assert admin.describe_cluster().nodes == nodes, "it has its address again"
    assert "was killed by SIGKILL; it is started again" in cluster.log.read_text()


def test_producers_continue_when_the_controller_is_killed(
    cluster: PenstockBroker, admin: Admin
) -> None:
    """R4, R6: its leaderships move, and nothing that was acknowledged is lost."""
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])
    configs = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic("kept", num_partitions=3, replication_factor=3, configs=configs)])
    controller = admin.describe_cluster().controller
    assert controller is not None
    pids = registered_pids(cluster)
    values = [str(number) for number in range(400)]
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for position, value in enumerate(values):
            if position == 200:
                os.kill(pids[controller.id], signal.SIGKILL)
            producer.send("kept", value.encode())
            producer.flush()
    lines = Cli(cluster.bootstrap)("consume", "kept", "--exit").stdout.splitlines()
    assert sorted(lines) == sorted(values)
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])


def test_a_stopped_broker_is_replaced_and_registers_again(
    cluster: PenstockBroker, admin: Admin
) -> None:
    pids = registered_pids(cluster)
    with paused(pids[2]):
        wait_until(lambda: "broker 2 has not responded for 3000 ms" in cluster.log.read_text())
    wait_until(lambda: "a new session with the supervisor" in cluster.log.read_text())
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])


def test_log_lines_name_their_broker(cluster: PenstockBroker) -> None:
    assert "[broker " in cluster.log.read_text()


# --- starts and stops


def test_a_data_directory_of_one_broker_is_continued_with_more(tmp_path: Path) -> None:
    with PenstockBroker(tmp_path) as single, Admin(bootstrap_servers=single.bootstrap) as admin:
        admin.create_topics([NewTopic("old", num_partitions=1)])
        cluster_id = admin.describe_cluster().cluster_id
        Cli(single.bootstrap)("produce", "old", stdin="a\nb\n")
    with PenstockBroker(tmp_path, brokers=2) as pair:
        with Admin(bootstrap_servers=pair.bootstrap) as admin:
            assert admin.describe_cluster().cluster_id == cluster_id
            wait_until(lambda: broker_ids(admin) == [0, 1])
            admin.create_topics([NewTopic("new", assignments={0: [1]})])
        assert Cli(pair.bootstrap)("consume", "old", "--exit").stdout == "a\nb\n"
    with PenstockBroker(tmp_path, brokers=3) as three:
        pids = three.broker_pids()
    assert not any(map(is_running, pids))
    with PenstockBroker(tmp_path) as single:
        assert Cli(single.bootstrap)("consume", "old", "--exit").stdout == "a\nb\n"


def test_brokers_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    cluster = PenstockBroker(tmp_path, brokers=2)
    cluster.start()
    pids = cluster.broker_pids()
    assert len(pids) == 2
    cluster.kill()
    wait_until(lambda: not any(map(is_running, pids)))
    assert "the supervisor has ended: this broker stops too" in cluster.log.read_text()
    with cluster:
        assert len(cluster.bootstrap.split(",")) == 2


def start_in_vain(directory: Path, *settings: str, brokers: int = 2) -> str:
    """Returns the last line of a start that must fail."""
    command = [str(Path(sys.executable).with_name("penstock")), "serve", "--brokers", str(brokers)]
    for setting in (f"log.dirs={directory}", *settings):
        command += ["--set", setting]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1, result.stderr
    return result.stderr.splitlines()[-1]


def free_port_pair() -> tuple[socket.socket, int]:
    """A listening socket, and the free port before it."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        port: int = taken.getsockname()[1] - 1
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            taken.close()
            continue
        return taken, port


def test_a_port_in_use_is_reported_with_its_broker(tmp_path: Path) -> None:
    taken, port = free_port_pair()
    with taken:
        line = start_in_vain(tmp_path / "d", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert line.startswith("penstock: broker 1: ")
    assert str(port + 1) in line


def test_a_directory_of_another_cluster_is_reported_with_its_broker(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    other = directory / "broker.1"
    other.mkdir(parents=True)
    text = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n"
    (other / "meta.properties").write_text(text)
    line = start_in_vain(directory, "listeners=PLAINTEXT://127.0.0.1:0")
    assert line.startswith(f"penstock: broker 1: {other} belongs to cluster AAAAAAAAAAAAAAAAAAAAAA")


def test_a_second_supervisor_is_refused(cluster: PenstockBroker, admin: Admin) -> None:
    line = start_in_vain(cluster.data, "listeners=PLAINTEXT://127.0.0.1:0")
    assert "is in use by another process" in line
    wait_until(lambda: broker_ids(admin) == [0, 1, 2])


def test_an_invalid_setting_is_one_line(tmp_path: Path) -> None:
    line = start_in_vain(tmp_path, "num.partitions=none")
    assert line.startswith("penstock: --set num.partitions")
    assert not list(tmp_path.iterdir())


# --- penstock cluster up


def use_coordinators(bootstrap: str) -> None:
    """Commits a transaction, and the offset of a group that reads it."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"value").result(60)
        producer.commit_transaction()
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe(["t"])
        wait_until(lambda: bool(consumer.poll(1)))
        consumer.commit()
    with Admin(bootstrap_servers=bootstrap) as admin:
        topics = admin.describe_topics(["__consumer_offsets", "__transaction_state"])
        for topic in topics.values():
            assert {len(partition.replicas) for partition in topic.partitions} == {2}


def run_for_development(
    tmp_path: Path, *options: str, use: Callable[[str], None] = lambda bootstrap: None
) -> None:
    """Starts a cluster of two brokers, creates a topic, and ends it with Ctrl-C."""
    command = [str(Path(sys.executable).with_name("penstock")), "cluster", "up", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--brokers", "2", *options],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().removeprefix("bootstrap servers: ").strip()
        [directory] = tmp_path.iterdir()
        assert str(directory) in process.stdout.readline()
        with Admin(bootstrap_servers=bootstrap) as admin:
            wait_until(lambda: broker_ids(admin) == [0, 1])
            admin.create_topics([NewTopic("t", num_partitions=1)])
            assert len(admin.describe_topics(["t"])["t"].partitions[0].replicas) == 2
        use(bootstrap)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    assert not list(tmp_path.iterdir())


def test_a_cluster_for_development_ends_with_ctrl_c(tmp_path: Path) -> None:
    settings = (
        "offsets.topic.num.partitions=2",
        "transaction.state.log.num.partitions=2",
        "group.initial.rebalance.delay.ms=0",
    )
    options = [option for setting in settings for option in ("--set", setting)]
    run_for_development(tmp_path, *options, use=use_coordinators)


@pytest.mark.long
def test_a_cluster_for_development_may_use_zookeeper(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        run_for_development(tmp_path, "--zookeeper", f"{server.address}/dev")
        with closing(KazooClient(server.address)) as client:
            client.start()
            assert "t" in client.get_children("/dev/brokers/topics")
            client.stop()
