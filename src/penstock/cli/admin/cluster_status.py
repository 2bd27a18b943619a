"""`penstock cluster status`: brokers, partitions that need attention, offsets of replicas."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import complete
from penstock.cli.options import flag, option
from penstock.cli.output import Marked, Output
from penstock.cli.session import Session
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import (
        ClusterDescription,
        PartitionDescription,
        TopicDescription,
    )
    from penstock.client.admin.admin import Admin

_OFFSETS_TIMEOUT_MS = 5_000
"""How long the offsets of replicas may take: a broker that hangs must not delay the status."""

_WAIT_POLL_S = 0.5


class ReplicaStatus(NamedTuple):
    """One replica of a partition, with its offsets as far as its broker returns them."""

    partition: TopicPartition
    broker: int
    is_leader: bool
    in_sync: bool
    log_end_offset: int | None
    high_watermark: int | None
    """That of the leader, which bounds what consumers read."""
    lag: int | None
    """The records of the leader that the replica does not have yet."""


class PartitionStatus(NamedTuple):
    """A partition and what is wrong with it."""

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    offline_replicas: tuple[int, ...] = ()
    """Replicas on brokers that are down, or in failed log directories."""

    @property
    def problems(self) -> list[str]:
        """`offline` (no leader), `under min ISR` (acks=all is refused), `under-replicated`."""
        problems = []
        if self.leader is None:
            problems.append("offline")
        if len(self.isr) < self.min_isr:
            problems.append("under min ISR")
        if len(self.isr) < len(self.replicas):
            problems.append("under-replicated")
        return problems


class ClusterStatus(NamedTuple):
    """A cluster at one moment."""

    cluster: "ClusterDescription"
    partitions: list[PartitionStatus]
    replicas: list[ReplicaStatus]

    def count(self, problem: str) -> int:
        return sum(problem in partition.problems for partition in self.partitions)


def status(
    session: Session,
    topic: list[str] | None = option(
        "--topic", help="Only this one; may be repeated.", autocompletion=complete.topics
    ),
    replicas: bool = flag("--replicas", help="Show every replica, not only those that lag."),
    watch: bool = flag("--watch", "-w", help="Show it again and again until Ctrl-C."),
    interval: float = option(
        "--interval", default=2.0, min=0.1, metavar="SECONDS", help="How often, with --watch."
    ),
    wait: float | None = option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="First wait until all replicas are in sync; exit code 1 if that takes longer.",
    ),
) -> None:
    """Show brokers with their leaders, partitions in need of attention, and lagging replicas."""
    with session.admin() as admin:
        if wait is not None:
            _wait_until_in_sync(session, admin, topic, wait)
        while True:
            current = read_status(admin, topic)
            if watch and sys.stdout.isatty():
                print("\x1b[H\x1b[2J", end="")
            _print(session.out, current, every_replica=replicas)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(interval)


def _wait_until_in_sync(
    session: Session, admin: "Admin", topics: list[str] | None, seconds: float
) -> None:
    """Exits with the status if partitions need attention for longer than that."""
    deadline = time.monotonic() + seconds
    while True:
        current = read_status(admin, topics)
        needing = sum(bool(partition.problems) for partition in current.partitions)
        if not needing:
            return
        if time.monotonic() >= deadline:
            _print(session.out, current, every_replica=False)
            session.out.note(
                f"penstock: after {seconds:g} s, {needing} partitions still need attention"
            )
            raise SystemExit(1)
        time.sleep(_WAIT_POLL_S)


def read_status(admin: "Admin", topics: Iterable[str] | None = None) -> ClusterStatus:
    """Returns the status of all topics that the user may describe, or of these."""
    cluster = admin.describe_cluster()
    descriptions = (
        list(admin.describe_topics(topics).values()) if topics else describe_all_topics(admin)
    )
    names = [description.name for description in descriptions]
    partitions = {
        TopicPartition(name, partition.partition): partition
        for name, description in sorted(
            (description.name, description) for description in descriptions
        )
        for partition in description.partitions
    }
    min_isrs = _min_isrs(admin, names)
    return ClusterStatus(
        cluster,
        [
            PartitionStatus(
                key,
                item.leader,
                item.replicas,
                item.isr,
                min_isrs.get(key.topic, 1),
                item.offline_replicas,
            )
            for key, item in partitions.items()
        ],
        list(_replica_statuses(admin, {node.id for node in cluster.nodes}, partitions)),
    )


def describe_all_topics(admin: "Admin") -> "list[TopicDescription]":
    """Describes all topics, internal ones too; without those that are created or deleted now."""
    from penstock.client.admin import AdminError

    names = list(admin.list_topics(include_internal=True))
    try:
        return list(admin.describe_topics(names).values()) if names else []
    except AdminError as error:
        codes = {topic_error.code for topic_error in error.errors.values()}
        if codes != {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            raise
        return list(error.results.values())


def _min_isrs(admin: "Admin", names: list[str]) -> dict[str, int]:
    """Returns min.insync.replicas of the topics whose settings the user may read."""
    from penstock.client.admin import AdminError, ConfigResource, ConfigResourceType

    setting = "min.insync.replicas"
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    try:
        configs = admin.describe_configs(resources, names=[setting])
    except AdminError as error:
        configs = error.results
    return {
        resource.name: int(entries[setting].value or 1)
        for resource, entries in configs.items()
        if setting in entries
    }


def _replica_statuses(
    admin: "Admin",
    brokers: set[int],
    partitions: "Mapping[TopicPartition, PartitionDescription]",
) -> Iterator[ReplicaStatus]:
    from penstock.client.admin import AdminError, OffsetSpec, TopicPartitionReplica

    keys = [
        TopicPartitionReplica(*key, broker)
        for key, partition in partitions.items()
        for broker in partition.replicas
        # Those in a failed log directory would not return their offsets before the timeout.
        if broker in brokers and broker not in partition.offline_replicas
    ]
    led = [key for key, partition in partitions.items() if partition.leader in brokers]
    try:
        ends = admin.list_replica_end_offsets(keys, timeout_ms=_OFFSETS_TIMEOUT_MS)
    except AdminError as error:
        ends = error.results
    try:
        watermarks = admin.list_offsets(
            dict.fromkeys(led, OffsetSpec.LATEST), timeout_ms=_OFFSETS_TIMEOUT_MS
        )
    except AdminError as error:
        watermarks = error.results
    for key, partition in partitions.items():
        leader_end = None
        if partition.leader is not None:
            leader_end = ends.get(TopicPartitionReplica(*key, partition.leader))
        for broker in partition.replicas:
            end = ends.get(TopicPartitionReplica(*key, broker))
            yield ReplicaStatus(
                key,
                broker,
                broker == partition.leader,
                broker in partition.isr,
                end,
                watermarks[key].offset if key in watermarks else None,
                None if end is None or leader_end is None else max(0, leader_end - end),
            )


# --- output


def _print(out: Output, status: ClusterStatus, *, every_replica: bool) -> None:
    brokers = list(_brokers(status))
    if out.as_json:
        out.document(_document(status, brokers))
        return
    cluster = status.cluster
    problems = {
        problem: status.count(problem)
        for problem in ("under-replicated", "under min ISR", "offline")
    }
    out.fields({"Cluster id": cluster.cluster_id, "Controller": cluster.controller})
    out.table(
        ["Broker", "Address", "Rack", "Controller", "State", "Leaders", "Replicas", "In sync"],
        [
            (
                *(broker["id"], broker["address"], broker["rack"], broker["is_controller"]),
                Marked("up", "green") if broker["is_up"] else Marked("down", "red"),
                *(broker["leaders"], broker["replicas"], broker["in_sync"]),
            )
            for broker in brokers
        ],
    )
    out.line("")
    counts = ", ".join(f"{count} {problem}" for problem, count in problems.items())
    out.line(f"Partitions: {len(status.partitions)}, {counts}")
    needing = [partition for partition in status.partitions if partition.problems]
    if needing:
        out.line("")
        out.table(
            [
                *("Topic", "Partition", "Problem", "Leader", "Replicas", "ISR", "Min ISR"),
                "Offline replicas",
            ],
            [
                (
                    *partition.partition,
                    Marked(", ".join(partition.problems), "bold red"),
                    partition.leader,
                    _numbers(partition.replicas),
                    _numbers(partition.isr),
                    partition.min_isr,
                    _numbers(partition.offline_replicas),
                )
                for partition in needing
            ],
        )
    shown = [
        replica
        for replica in status.replicas
        if every_replica or replica.lag != 0 or not replica.in_sync
    ]
    if shown:
        out.line("")
        out.table(
            [
                *("Topic", "Partition", "Broker", "Role", "In sync"),
                *("Log end offset", "High watermark", "Lag"),
            ],
            [
                (
                    *replica.partition,
                    replica.broker,
                    "leader" if replica.is_leader else "follower",
                    "yes" if replica.in_sync else Marked("no", "bold red"),
                    replica.log_end_offset,
                    replica.high_watermark,
                    Marked(replica.lag, "yellow") if replica.lag else replica.lag,
                )
                for replica in shown
            ],
        )


def _brokers(status: ClusterStatus) -> Iterator[dict[str, object]]:
    """Yields the brokers that are up, and those that have replicas but are down."""
    cluster = status.cluster
    nodes = {node.id: node for node in cluster.nodes}
    leaders = Counter(partition.leader for partition in status.partitions)
    replicas = Counter(replica.broker for replica in status.replicas)
    in_sync = Counter(replica.broker for replica in status.replicas if replica.in_sync)
    for number in sorted({*nodes, *replicas}):
        node = nodes.get(number)
        yield {
            "id": number,
            "address": None if node is None else f"{node.host}:{node.port}",
            "rack": None if node is None else node.rack,
            "is_controller": node is not None and node == cluster.controller,
            "is_up": node is not None,
            "leaders": leaders[number],
            "replicas": replicas[number],
            "in_sync": in_sync[number],
        }


def _document(status: ClusterStatus, brokers: list[dict[str, object]]) -> dict[str, object]:
    return {
        "cluster_id": status.cluster.cluster_id,
        "controller": status.cluster.controller,
        "brokers": brokers,
        "under_replicated": status.count("under-replicated"),
        "under_min_isr": status.count("under min ISR"),
        "offline": status.count("offline"),
        "partitions": [
            partition.partition._asdict()
            | partition._asdict()
            | {"partition": partition.partition.partition, "problems": partition.problems}
            for partition in status.partitions
        ],
        "replicas": [
            replica.partition._asdict()
            | replica._asdict()
            | {"partition": replica.partition.partition}
            for replica in status.replicas
        ],
    }


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
