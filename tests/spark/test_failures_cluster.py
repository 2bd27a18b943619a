"""D3: pipelines continue while each broker of a Penstock cluster is killed and returns.

The source reads, and the topic sink writes transactions, through failovers of their leaders; the
rows in databases and topics are stored exactly once.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.admin.admin import Admin
from tests.support.cluster.processes import ClusterView, ProcessCluster
from tests.support.spark.continuous import Continuous, Meeting
from tests.support.spark.environments import address_of
from tests.support.spark.pipeline_environment import Environment, Kind, Point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

PIPELINES: list[tuple[Kind, str]] = [
    ("staged", "postgresql"),
    ("update", "sqlite"),
    ("topic", "topic"),
]
RECORDS = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def view(cluster: ProcessCluster) -> Iterator[ClusterView]:
    with Admin(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=20) as admin:
        yield ClusterView(cluster, admin)


def new_environment(
    request: pytest.FixtureRequest,
    cluster: ProcessCluster,
    view: ClusterView,
    directory: Path,
    kind: Kind,
    database: str,
) -> Environment:
    """Returns an environment with new topics, whose partitions are led by different brokers."""
    directory.mkdir()
    environment = Environment(
        kind=kind,
        servers=cluster.bootstrap,
        directory=str(directory),
        database="" if kind == "topic" else address_of(request, database, directory),
        letters="topic",
    )
    view.create_topic(environment.topic, (1, 2, 3), (2, 3, 1))
    view.create_topic(environment.letter_topic, (3, 1, 2))
    view.create_topic(environment.result_topic, (1, 2, 3), (3, 1, 2))
    return environment


def test_pipelines_continue_while_every_broker_is_killed_once(
    spark: "SparkSession",
    request: pytest.FixtureRequest,
    tmp_path: Path,
    cluster: ProcessCluster,
    view: ClusterView,
) -> None:
    """All pipelines run at the same time; the first kill is in the middle of a batch of each."""
    environments = [
        new_environment(request, cluster, view, tmp_path / kind, kind, database)
        for kind, database in PIPELINES
    ]
    controller = view.controller_id()
    first, second = sorted(cluster.nodes.keys() - {controller})
    with ExitStack() as stack:
        pipelines = []
        meetings = []
        for environment in environments:
            environment.produce(RECORDS)
            meetings.append(Meeting())
            pipeline = Continuous(environment, spark, Point("batch:2", meetings[-1].hold))
            pipelines.append(stack.enter_context(pipeline))
        for meeting in meetings:
            meeting.wait()
        for position, broker_id in enumerate((first, second, controller), 2):
            cluster.nodes[broker_id].kill()
            for meeting in meetings:
                meeting.go()
            for environment in environments:
                environment.produce(RECORDS)
            for pipeline in pipelines:
                pipeline.until_read(position * RECORDS)
            cluster.start()
            view.wait_until(view.is_well, f"broker {broker_id} in sync and leading again")
    for environment, pipeline in zip(environments, pipelines, strict=True):
        assert pipeline.error is None
        environment.check()
