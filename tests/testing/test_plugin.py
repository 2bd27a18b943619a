"""The pytest plugin, in separate runs of pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
NOTE_PID = """
import os, pathlib
def note(broker):
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    with open(pathlib.Path(__file__).with_name("pids"), "a") as file:
        file.write(f"{worker} {broker.pid}\\n")
"""
WRITE = """
from confluent_kafka import Producer
def write(broker, topic):
    outcomes = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"value", on_delivery=lambda e, m: outcomes.append((e, m.offset())))
    producer.flush(30)
    return outcomes
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Runs pytest in a process, because brokers end with their process."""
    return pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-W", "error", "--strict-markers", *arguments
    )


def noted(pytester: pytest.Pytester) -> list[tuple[str, int]]:
    lines = (pytester.path / "pids").read_text().splitlines()
    return [(worker, int(pid)) for worker, pid in (line.split(" ") for line in lines)]


def test_fixtures(pytester: pytest.Pytester) -> None:
    """Tests share the broker, but not the topic; both can be configured."""
    pytester.makepyfile(
        helpers=WRITE,
        test_it="""
        import pytest
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
        from helpers import write

        @pytest.fixture(scope="session")
        def kafka_broker_settings():
            return {"auto.create.topics.enable": "false", "log.retention.ms": "1234567"}

        brokers = []

        @pytest.mark.parametrize("name", ["ä/ö", "x" * 300])
        def test_topic(kafka_broker, kafka_topic, name):
            assert write(kafka_broker, kafka_topic) == [(None, 0)]
            brokers.append((kafka_broker.pid, kafka_topic))

        @pytest.mark.kafka_topic(partitions=3, config={"cleanup.policy": "compact"})
        def test_marker(kafka_broker, kafka_topic):
            (first_pid, first), (second_pid, second) = brokers
            assert first_pid == second_pid == kafka_broker.pid
            admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
            topics = admin.list_topics(timeout=30).topics
            assert first not in topics and second not in topics
            assert len(topics[kafka_topic].partitions) == 3
            resource = ConfigResource(ResourceType.TOPIC, kafka_topic)
            config = admin.describe_configs([resource])[resource].result(30)
            assert config["cleanup.policy"].value == "compact"
            assert config["retention.ms"].value == "1234567"

        def test_deleted_by_the_test(kafka_broker, kafka_topic):
            kafka_broker.delete_topic(kafka_topic)
        """,
    )
    run(pytester).assert_outcomes(passed=4)


def test_faults_of_a_test_are_undone(pytester: pytest.Pytester) -> None:
    """Faults, a stop and a kill are undone; an unexpected end is an error of the test."""
    pytester.makepyfile(
        helpers=WRITE,
        test_it="""
        import os, signal
        from helpers import write

        faults_in_use = []

        def test_stopped(kafka_broker):
            kafka_broker.stop()

        def test_killed(kafka_broker, kafka_topic):
            assert write(kafka_broker, kafka_topic) == [(None, 0)]
            kafka_broker.kill()

        def test_faults(kafka_broker):
            faults_in_use.append(kafka_broker.refused())
            faults_in_use[-1].__enter__()

        def test_paused(kafka_broker):
            faults_in_use.append(kafka_broker.paused())
            faults_in_use[-1].__enter__()

        def test_it_ends_unexpectedly(kafka_broker):
            os.kill(kafka_broker.pid, signal.SIGKILL)
            while kafka_broker.is_running:
                pass

        def test_after_all_of_it(kafka_broker, kafka_topic):
            assert write(kafka_broker, kafka_topic) == [(None, 0)]
        """,
    )
    result = run(pytester)
    result.assert_outcomes(passed=6, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_it_ends_unexpectedly*"])
    result.stdout.fnmatch_lines(["*BrokerError: the broker ended unexpectedly, with -9*"])


TWO_TESTS = """
from helpers import note

def test_one(kafka_broker):
    note(kafka_broker)

def test_two(kafka_broker):
    note(kafka_broker)
"""


@pytest.mark.parametrize(
    ("arguments", "ini", "brokers"),
    [
        ([], "", 1),
        ([], "kafka_broker_scope = function", 4),
        (["--kafka-broker-scope=module"], "kafka_broker_scope = function", 2),
    ],
)
def test_scopes(pytester: pytest.Pytester, arguments: list[str], ini: str, brokers: int) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makepyfile(helpers=NOTE_PID, test_it=TWO_TESTS, test_more=TWO_TESTS)
    run(pytester, *arguments).assert_outcomes(passed=4)
    assert len(set(noted(pytester))) == brokers


def test_an_invalid_scope(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_broker_scope = forever")
    pytester.makepyfile("def test_it(kafka_broker): pass")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*kafka_broker_scope is forever: write one of session, *"])


def test_workers_of_xdist_have_a_broker_each(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(helpers=NOTE_PID, test_it=TWO_TESTS, test_more=TWO_TESTS)
    run(pytester, "-n2", "--dist=loadfile").assert_outcomes(passed=4)
    brokers = set(noted(pytester))
    assert len(brokers) == len({worker for worker, _ in brokers}) == 2


def test_it_can_be_disabled(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kafka_broker): pass")
    result = run(pytester, "-p", "no:penstock")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'kafka_broker' not found*"])


def test_other_runs_import_only_the_plugin() -> None:
    """Every run of pytest imports the plugin itself, and nothing else of the package."""
    script = (
        "import sys, pytest; before = set(sys.modules); import penstock.testing.pytest_plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(
        ["penstock", "penstock.testing", "penstock.testing.pytest_plugin"]
    )


def test_the_example(pytester: pytest.Pytester) -> None:
    """The example that `docs/testing.md` refers to."""
    pytester.copy_example(str(ROOT / "examples" / "test_with_confluent_kafka.py"))
    run(pytester).assert_outcomes(passed=4)


@pytest.mark.long
def test_a_cluster(pytester: pytest.Pytester) -> None:
    """Its topic has three replicas; what a test did to the cluster is undone after it."""
    pytester.makepyfile(
        helpers=WRITE,
        test_it="""
        import pytest
        from confluent_kafka.admin import AdminClient
        from helpers import write

        @pytest.fixture(scope="session")
        def kafka_cluster_settings():
            return {"zookeeper.session.timeout.ms": "1000", "log.retention.ms": "1234567"}

        topics = []

        @pytest.mark.kafka_topic(partitions=2, replicas=2)
        def test_marker(kafka_cluster, kafka_topic):
            admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
            partitions = admin.list_topics(kafka_topic, timeout=30).topics[kafka_topic].partitions
            assert [len(partition.replicas) for partition in partitions.values()] == [2, 2]

        def test_killed(kafka_cluster, kafka_topic):
            topics.append(kafka_topic)
            kafka_cluster.kill_leader(kafka_topic)
            assert write(kafka_cluster, kafka_topic) == [(None, 0)]

        def test_isolated(kafka_cluster):
            kafka_cluster.isolate(3)
            kafka_cluster.brokers[1].refused().__enter__()

        def test_after_all_of_it(kafka_cluster, kafka_broker, kafka_topic):
            assert kafka_cluster.is_running
            admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
            assert topics[0] not in admin.list_topics(timeout=30).topics
            assert write(kafka_cluster, kafka_topic) == [(None, 0)]
            assert write(kafka_broker, kafka_topic) == [(None, 0)]
        """,
    )
    run(pytester).assert_outcomes(passed=4)


def test_an_invalid_scope_of_the_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kafka_cluster): pass")
    result = run(pytester, "-o", "kafka_cluster_scope=forever")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*kafka_cluster_scope is forever: write one of session, *"])
