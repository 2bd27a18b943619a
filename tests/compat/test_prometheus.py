"""A real Prometheus scrapes three brokers and evaluates the alert rules."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock.client import Producer
from penstock.client.admin import NewTopic
from penstock.client.admin.admin import Admin
from tests.support.broker.process import PenstockBroker
from tests.support.cluster.waiting import wait_until
from tests.support.metrics.free_ports import free_port_range

ALERTS = Path(__file__).parents[2] / "ops" / "prometheus" / "alerts.yml"


class Prometheus:
    """The HTTP API of a running Prometheus."""

    def __init__(self, port: int) -> None:
        self._port = port

    def _get(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def is_ready(self) -> bool:
        try:
            return bool(self._get("/api/v1/status/buildinfo")["status"] == "success")
        except (OSError, ValueError):
            return False

    def query(self, expression: str) -> list[float]:
        result = self._get(f"/api/v1/query?query={quote(expression)}")
        assert result["status"] == "success", result
        return [float(series["value"][1]) for series in result["data"]["result"]]

    def rules(self) -> dict[str, str]:
        """The health of each alert rule."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}


@contextmanager
def running_prometheus(directory: Path, ports: range) -> Iterator[Prometheus]:
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{json.dumps(str(ALERTS))}]\n"
        "scrape_configs:\n"
        f"  - {{job_name: penstock, static_configs: [{{targets: [{targets}]}}]}}\n"
    )
    port = free_port_range(1).start
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = Prometheus(port)
        wait_until(prometheus.is_ready)
        yield prometheus
    finally:
        process.terminate()
        process.wait(30)


def until(
    prometheus: Prometheus, expression: str, is_expected: Callable[[list[float]], bool]
) -> None:
    wait_until(lambda: is_expected(prometheus.query(expression)))


@pytest.mark.long
def test_prometheus_scrapes_three_brokers(tmp_path: Path) -> None:
    ports = free_port_range(3)
    settings = {"metrics.port": str(ports.start), "default.replication.factor": "3"}
    with (
        PenstockBroker(tmp_path, settings, brokers=3) as cluster,
        running_prometheus(tmp_path, ports) as prometheus,
    ):
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 6, 3)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for number in range(300):
                producer.send("t", value=b"%d" % number, partition=number % 6)
            producer.flush()
        until(prometheus, "sum(up)", lambda values: values == [3.0])
        until(
            prometheus,
            'sum(kafka_server_brokertopicmetrics_messagesin_total{topic="t"})',
            lambda values: values == [300.0],
        )
        active = "sum(kafka_controller_kafkacontroller_activecontrollercount)"
        assert prometheus.query(active) == [1.0]
        until(
            prometheus,
            "sum(kafka_server_replicamanager_leadercount)",
            lambda values: values == [6.0],
        )
        copied = "sum(kafka_server_brokertopicmetrics_replicationbytesin_total)"
        until(prometheus, copied, lambda values: values[0] > 0)
        waited = (
            'sum(kafka_network_requestmetrics_remotetime_seconds_count{request="Produce"})'
            " and sum(kafka_network_requestmetrics_remotetime_seconds_sum"
            '{request="Produce"}) > 0'
        )
        until(prometheus, waited, lambda values: bool(values))
        wait_until(lambda: set(prometheus.rules().values()) == {"ok"})
        assert prometheus.query('ALERTS{alertstate="firing"}') == []
