"""A cluster of three Penstock processes for Kafka's command-line tools."""

from collections.abc import Iterator

import pytest

from penstock.client.admin.admin import Admin
from tests.support.cluster.processes import ClusterView, ProcessCluster
from tests.support.kafka.tools import KafkaTools, Shell

SETTINGS = {
    # Small fetches: a throttle waits after each of them.
    "replica.fetch.max.bytes": "32768",
    "replica.fetch.response.max.bytes": "32768",
    "message.max.bytes": "30000",
    "broker.rack": "one",
}


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def admin(running: ProcessCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=running.bootstrap, retry_backoff_ms=20) as admin:
        yield admin


@pytest.fixture(scope="package")
def view(running: ProcessCluster, admin: Admin) -> ClusterView:
    return ClusterView(running, admin)


@pytest.fixture
def cluster(running: ProcessCluster, view: ClusterView) -> ProcessCluster:
    """A cluster with all brokers running, each the leader of its preferred partitions."""
    running.start()
    view.wait_until(
        lambda: len(view.admin.describe_cluster().nodes) == len(running.nodes), "all brokers"
    )
    view.wait_until(view.is_well, "every replica in sync and every leader the preferred one")
    return running


@pytest.fixture
def shell(tools: KafkaTools, cluster: ProcessCluster) -> Shell:
    return Shell(tools, cluster.bootstrap)
