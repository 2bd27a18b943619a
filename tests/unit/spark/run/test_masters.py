"""Spark masters: checks before Spark starts, and errors if it does not start."""

import socket
import time

import pytest

from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.masters import check_master, is_local, startup_error
from penstock.spark.run.session import session


@pytest.fixture
def free_port() -> int:
    """Returns a local address without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_local_masters_are_recognized() -> None:
    assert all(is_local(name) for name in ("local", "local[*]", "local[4]", "local[2,3]"))
    assert not any(is_local(name) for name in ("local-cluster[2,1,1024]", "yarn", "spark://a:1"))


@pytest.mark.parametrize("master", ["local[2]", "k8s://https://nowhere:6443", "something else"])
def test_masters_that_only_spark_can_check_are_accepted(master: str) -> None:
    check_master(master, {})


def test_a_missing_standalone_master_is_reported_before_spark_starts(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this process may have a session.
    monkeypatch.setattr("penstock.spark.run.session.active_session", lambda: None)
    master = f"spark://127.0.0.1:{free_port}"
    spec = PipelineSpec(name="p", bootstrap_servers="localhost:9092", sources=(), sinks=())
    start = time.monotonic()
    with pytest.raises(PipelineError) as raised:
        session(spec, master)
    assert time.monotonic() - start < 20
    message = str(raised.value)
    assert message.startswith(f"no Spark master can be reached at 127.0.0.1:{free_port} (")
    assert "check that it runs" in message
    assert "\n" not in message


def test_one_reachable_master_of_several_is_enough(free_port: int) -> None:
    """One reachable master is enough."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{free_port},127.0.0.1:{port}", {})
        check_master(f"spark://127.0.0.1:{port},127.0.0.1:{free_port}", {})


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:", "spark://:7077"])
def test_a_standalone_master_needs_host_and_port(master: str) -> None:
    with pytest.raises(PipelineError, match=r"write spark://host:port"):
        check_master(master, {})


def test_an_invalid_port_is_reported() -> None:
    with pytest.raises(PipelineError, match=r"can be reached at 127\.0\.0\.1:77777"):
        check_master("spark://127.0.0.1:77777", {})


def test_yarn_needs_the_settings_of_the_cluster() -> None:
    with pytest.raises(PipelineError, match="set HADOOP_CONF_DIR or YARN_CONF_DIR"):
        check_master("yarn", {"YARN_CONF_DIR": ""})
    check_master("yarn", {"HADOOP_CONF_DIR": "/etc/hadoop"})
    check_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})


def test_an_error_of_spark_becomes_one_line() -> None:
    kubernetes = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(X.java:109)
Caused by: java.io.IOException: Connection refused: /10.0.0.1:6443
\t... 20 more
"""
    message = str(startup_error("k8s://https://10.0.0.1:6443", Exception(kubernetes)))
    assert message.startswith(
        "Spark could not start with master k8s://https://10.0.0.1:6443: java.io.IOException: "
        "Connection refused: /10.0.0.1:6443; check"
    )
    assert "\n" not in message
    assert "java.lang.X: y; check" in str(
        startup_error("yarn", Exception("calling\n: java.lang.X: y"))
    )
    assert "Exception; check" in str(startup_error("yarn", Exception()))
    stopped = ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    assert "gave the application up" in str(startup_error("spark://a:1", Exception(stopped)))
