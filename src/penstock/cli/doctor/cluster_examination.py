"""`penstock doctor --cluster`: reads the state of all brokers, as far as a client can see it.

`cluster_checks.py` judges it. A broker that cannot be reached is reported, and the others are
examined all the same.
"""

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from penstock.cli.admin.cluster_rebalance import read_load
from penstock.cli.admin.cluster_status import read_status
from penstock.cli.doctor import cluster_checks
from penstock.cli.doctor.checks import (
    Address,
    Problem,
    Status,
    explain_advertised,
    parse_addresses,
)
from penstock.cli.doctor.cluster_checks import SHARED_SETTINGS, BrokerView, Finding, RoundTrips
from penstock.cli.doctor.diagnosis import StepResult
from penstock.cli.doctor.probes import linked, reachable
from penstock.cli.session import Session
from penstock.client.settings import CommonOptions, settings_of
from penstock.client.settings import resolve as resolve_settings
from penstock.core.errors import KafkaError, nested_text
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.client.channel import Channel
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.net.client.cluster import Node

_ROUND_TRIPS: Final = 50
_TOTAL_RETRANSMISSIONS: Final = struct.Struct("100xI")
"""The field of Linux's tcp_info."""


class _BrokerProbe(NamedTuple):
    """What a connection to the address that a broker advertises shows."""

    finding: Finding | None
    view: BrokerView | None = None
    round_trips: RoundTrips | None = None


class ClusterExamination:
    """Runs all checks, and reports the findings of each."""

    def __init__(
        self,
        session: Session,
        options: Mapping[str, Any],
        report: Callable[[StepResult], None],
        *,
        read_only: bool,
    ) -> None:
        """`options` are the keyword arguments of a client, as `session` has them."""
        self._session = session
        names = settings_of(CommonOptions)
        common = {name: value for name, value in options.items() if name in names}
        self._settings: CommonOptions = resolve_settings(CommonOptions, common)
        self._bootstrap = parse_addresses(str(options["bootstrap_servers"]))[0]
        self._report = report
        self._read_only = read_only
        self._has_failed = False

    def run(self) -> bool:
        """Returns whether nothing is broken; risks are warnings. Raises KafkaError."""
        with self._session.admin() as admin:
            nodes = sorted(admin.describe_cluster().nodes)
            with self._step("brokers") as step:
                probes = asyncio.run(self._probe_all(nodes))
                step.findings += [probe.finding for probe in probes.values() if probe.finding]
                step.findings += cluster_checks.check_addresses(
                    {node.id: node.host for node in nodes}
                )
                step.success = "reached " + ", ".join(
                    f"broker {node.id} at {node.host}:{node.port}" for node in nodes
                )
            reached = [broker for broker, probe in probes.items() if probe.view is not None]
            self._check_cluster(admin, reached, probes)
            if self._read_only:
                text = "not compared because of --read-only"
                self._report(StepResult("clocks", Status.SKIPPED, text, 0.0))
            else:
                with self._step("clocks") as step:
                    skews = self._read_clocks(admin, reached)
                    step.findings += cluster_checks.check_clocks(skews)
                    step.success = "all clocks agree with this machine's"
        with self._step("network") as step:
            trips = {
                broker: probe.round_trips for broker, probe in probes.items() if probe.round_trips
            }
            step.findings += cluster_checks.check_round_trips(trips)
            step.success = _describe_round_trips(trips) or "no broker was reached"
        return not self._has_failed

    def _check_cluster(
        self, admin: "Admin", reached: list[int], probes: Mapping[int, _BrokerProbe]
    ) -> None:
        with self._step("metadata") as step:
            views = {broker: probe.view for broker, probe in probes.items() if probe.view}
            step.findings += cluster_checks.check_views(views)
            step.success = "all brokers know the same controller and leaders"
        with self._step("replicas") as step:
            status = read_status(admin)
            brokers = {node.id for node in status.cluster.nodes}
            step.findings += cluster_checks.check_replicas(status.partitions, brokers)
            step.success = f"{len(status.partitions)} partitions are led and in sync"
        with self._step("redundancy") as step:
            known = brokers.union(*(partition.replicas for partition in status.partitions))
            step.findings += cluster_checks.check_redundancy(status.partitions, len(known))
            step.success = "no record depends on one broker"
        with self._step("balance") as step:
            step.findings += cluster_checks.check_balance(read_load(admin, reached))
            step.success = "leaders and disks are even"
        with self._step("disks") as step:
            volumes = {
                (broker, path): (directory.total_bytes, directory.usable_bytes or 0)
                for broker, directories in admin.describe_log_dirs(reached).items()
                for path, directory in directories.items()
                if directory.total_bytes is not None
            }
            step.findings += cluster_checks.check_disks(volumes)
            step.success = f"{len(volumes)} log directories have room"
        with self._step("settings") as step:
            step.findings += cluster_checks.check_settings(_read_settings(admin, reached))
            step.success = "all brokers have the same values of settings that they should share"
        with self._step("versions") as step:
            versions = {
                broker: {api.name: (api.min_version, api.max_version) for api in served.apis}
                for broker, served in admin.api_versions(reached).items()
                if served.error is None
            }
            step.findings += cluster_checks.check_broker_versions(versions)
            step.success = "all brokers serve the same versions"

    @contextmanager
    def _step(self, name: str) -> "Iterator[_Step]":
        """Reports the findings of a step, or its success; an error is a finding of its own."""
        step = _Step()
        started = time.perf_counter()
        try:
            yield step
        except KafkaError as error:
            remedy = error.remedy or "see the message, and the logs of the brokers"
            step.findings.append(Finding(Status.FAILED, nested_text(error), remedy))
        took_ms = (time.perf_counter() - started) * 1000
        for finding in step.findings:
            self._has_failed |= finding.status is Status.FAILED
            self._report(StepResult(name, finding.status, finding.problem, took_ms, finding.remedy))
        if not step.findings:
            self._report(StepResult(name, Status.OK, step.success, took_ms))

    # --- brokers

    async def _probe_all(self, nodes: "Sequence[Node]") -> dict[int, _BrokerProbe]:
        probes = await asyncio.gather(*(self._probe(node) for node in nodes))
        return {node.id: probe for node, probe in zip(nodes, probes, strict=True)}

    async def _probe(self, node: "Node") -> _BrokerProbe:
        address = Address(node.host, node.port)
        try:
            timeout_s = self._settings["socket_connection_setup_timeout_ms"] / 1000
            await reachable(address, timeout_s)
            protocol = self._settings["security_protocol"]
            async with linked(
                address,
                self._settings,
                logs_in=protocol.startswith("SASL_"),
                tls=protocol.endswith("SSL"),
            ) as link:
                view = await self._read_view(link)
                return _BrokerProbe(None, view, await self._measure(link))
        except Problem as error:
            problem = error
        except KafkaError as error:
            problem = Problem(nested_text(error), "see the log of the broker", error.code.name)
        explained = explain_advertised(node.id, address, self._bootstrap, problem)
        return _BrokerProbe(Finding(Status.FAILED, explained.cause, explained.remedy))

    async def _read_view(self, link: Channel) -> BrokerView:
        version = link.connection.api_versions.newest(ApiKey.METADATA)
        assert version is not None
        response = await link.send(
            MetadataRequest(None, False),
            version,
            MetadataResponse,
            self._settings["request_timeout_ms"],
        )
        return BrokerView(
            response.controller_id,
            {
                TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
                for topic in response.topics
                for partition in topic.partitions
            },
        )

    async def _measure(self, link: Channel) -> RoundTrips:
        times = []
        for _ in range(_ROUND_TRIPS):
            started = time.perf_counter()
            await link.send(
                ApiVersionsRequest(), 0, ApiVersionsResponse, self._settings["request_timeout_ms"]
            )
            times.append((time.perf_counter() - started) * 1000)
        return RoundTrips(times, _retransmissions(link))

    # --- clocks

    def _read_clocks(self, admin: "Admin", brokers: Sequence[int]) -> dict[int, int]:
        """Returns how far the clock of each broker is ahead, by the time that it puts on a record.

        The records are in a topic with one partition on each broker, which is deleted at the end.
        """
        from penstock.client.admin.model_topics import NewTopic

        name = f"penstock-doctor-{uuid4().hex[:12]}"
        assignments = {number: (broker,) for number, broker in enumerate(brokers)}
        configs = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"}
        admin.create_topics([NewTopic(name, assignments=assignments, configs=configs)])
        skews = {}
        clock = SystemClock()
        try:
            with self._session.producer(linger_ms=0) as producer:
                for number, broker in enumerate(brokers):
                    # The first record waits for metadata and a connection.
                    for _ in range(2):
                        before_ms = clock.now_ms()
                        metadata = producer.send(
                            name, b"penstock doctor", partition=number
                        ).result()
                        after_ms = clock.now_ms()
                    nearest_ms = min(max(metadata.timestamp, before_ms), after_ms)
                    skews[broker] = metadata.timestamp - nearest_ms
        finally:
            admin.delete_topics([name])
        return skews


class _Step:
    """What a step has found."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.success = ""


def _read_settings(admin: "Admin", brokers: Sequence[int]) -> dict[int, dict[str, str | None]]:
    from penstock.client.admin import ConfigResource, ConfigResourceType

    resources = {
        ConfigResource(ConfigResourceType.BROKER, str(broker)): broker for broker in brokers
    }
    configs = admin.describe_configs(resources, names=SHARED_SETTINGS)
    return {
        resources[resource]: {name: entry.value for name, entry in entries.items()}
        for resource, entries in configs.items()
    }


def _retransmissions(link: Channel) -> int | None:
    """Returns how many packets were sent again; None where the system does not count them."""
    if sys.platform != "linux":
        return None
    info = link.socket_option(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANSMISSIONS.size)
    return None if info is None else int(_TOTAL_RETRANSMISSIONS.unpack(info)[0])


def _describe_round_trips(round_trips: Mapping[int, RoundTrips]) -> str:
    return "; ".join(
        f"broker {broker}: {sorted(trips.milliseconds)[len(trips.milliseconds) // 2]:.1f} ms, at "
        f"most {max(trips.milliseconds):.1f}"
        for broker, trips in sorted(round_trips.items())
    )
