"""What `penstock doctor --cluster` concludes from what it has read. No I/O.

Each check returns findings: what is wrong or at risk, and its remedy. No findings: all is well.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from penstock.cli.admin.cluster_status import PartitionStatus
from penstock.cli.admin.rebalance_plan import ClusterLoad, plan_rebalance
from penstock.cli.doctor.checks import Status, is_loopback
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import INTERNAL_TOPICS

SHARED_SETTINGS: Final = (
    "min.insync.replicas",
    "message.max.bytes",
    "replica.fetch.max.bytes",
    "unclean.leader.election.enable",
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "inter.broker.protocol.version",
)
"""Settings that should be the same on all brokers: which of them decides depends on who leads."""
_TOLERANCE: Final = 0.25
_SKEW_MS: Final = 2_000
_FULL: Final = 0.9
_JITTER_MS: Final = 50.0


class Finding(NamedTuple):
    """Something that is wrong (`failed`) or at risk (`warning`), with its remedy."""

    status: Status
    problem: str
    remedy: str


class BrokerView(NamedTuple):
    """The cluster as the metadata of one broker describes it."""

    controller: int
    leaders: Mapping[TopicPartition, int]


class RoundTrips(NamedTuple):
    """Requests to one broker, one after the other."""

    milliseconds: Sequence[float]
    retransmissions: int | None
    """Packets that this machine sent again; None if the system does not count them."""


def check_addresses(hosts: Mapping[int, str]) -> list[Finding]:
    """Finds brokers that advertise the machine itself, unless the cluster is on one machine."""
    local = sorted(broker for broker, host in hosts.items() if is_loopback(host))
    if not local or len(local) == len(hosts):
        return []
    return [
        Finding(
            Status.FAILED,
            f"broker {broker} advertises {hosts[broker]}, which is another machine for every "
            "client, while other brokers advertise addresses of the network",
            f"set advertised.listeners of broker {broker} to an address that clients can reach",
        )
        for broker in local
    ]


def check_views(views: Mapping[int, BrokerView]) -> list[Finding]:
    """Finds brokers that know another controller or other leaders than most of them."""
    findings = []
    controllers = Counter(view.controller for view in views.values())
    usual_controller, _ = controllers.most_common(1)[0] if controllers else (-1, 0)
    if usual_controller < 0 and views:
        findings.append(
            Finding(
                Status.FAILED,
                "there is no controller: topics, leaders and in-sync replicas cannot change",
                "check that the brokers reach the metadata store (zookeeper.connect), and their "
                "logs",
            )
        )
    names = {name for view in views.values() for name in view.leaders}
    usual_leaders = {
        name: Counter(view.leaders.get(name, -1) for view in views.values()).most_common(1)[0][0]
        for name in names
    }
    for broker, view in sorted(views.items()):
        different = [
            name for name, leader in usual_leaders.items() if view.leaders.get(name, -1) != leader
        ]
        if view.controller == usual_controller and not different:
            continue
        what = f"names other leaders of {some(different)}" if different else ""
        if view.controller != usual_controller:
            controller = f"broker {view.controller}" if view.controller >= 0 else "no controller"
            what = f"knows {controller} instead of broker {usual_controller} as the controller"
        findings.append(
            Finding(
                Status.FAILED,
                f"broker {broker} {what}: the controller does not reach it",
                f"check the network from broker {usual_controller} to the inter-broker listener of "
                f"broker {broker}, and the logs of both",
            )
        )
    return findings


def check_replicas(
    partitions: Iterable[PartitionStatus], brokers: Collection[int]
) -> list[Finding]:
    """Finds partitions that are offline or refuse records, and followers that lag."""
    findings = []
    statuses = list(partitions)
    offline = [status for status in statuses if status.leader is None]
    if offline:
        needed = sorted({broker for status in offline for broker in status.replicas})
        findings.append(
            Finding(
                Status.FAILED,
                f"no leader: {some(status.partition for status in offline)}",
                f"start its brokers that are down, of {numbers(needed)}; if they are lost "
                "permanently: penstock topic elect --type unclean",
            )
        )
    refusing = [
        status
        for status in statuses
        # With fewer replicas than min.insync.replicas, all of them suffice.
        if status.leader is not None and len(status.isr) < min(status.min_isr, len(status.replicas))
    ]
    if refusing:
        findings.append(
            Finding(
                Status.FAILED,
                "fewer in-sync replicas than min.insync.replicas, so that acks=all is refused: "
                f"{some(status.partition for status in refusing)}",
                "start the missing brokers; see penstock cluster status",
            )
        )
    down = sorted({broker for s in statuses for broker in s.replicas}.difference(brokers))
    for broker in down:
        count = sum(broker in status.replicas for status in statuses)
        findings.append(
            Finding(
                Status.FAILED,
                f"broker {broker} is down and has replicas of {count} partitions",
                f"start it; to replace it, start a broker with node.id={broker} and an empty disk",
            )
        )
    lagging: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
    for status in statuses:
        for broker in set(status.replicas) - set(status.isr):
            if status.leader is not None and broker in brokers:
                lagging[broker, status.leader].append(status.partition)
    for (follower, leader), names in sorted(lagging.items()):
        findings.append(
            Finding(
                Status.WARNING,
                f"broker {follower} is up, but not in sync with its leader {leader}: {some(names)}",
                f"check the network from broker {follower} to the inter-broker listener of broker "
                f"{leader}, the disk of broker {follower}, and its log",
            )
        )
    return findings


def check_redundancy(partitions: Iterable[PartitionStatus], broker_count: int) -> list[Finding]:
    """Finds topics that one failure makes unavailable or loses, although there are brokers."""
    if broker_count < 2:
        return []
    by_topic = {status.partition.topic: status for status in partitions}
    single = sorted(name for name, status in by_topic.items() if len(status.replicas) == 1)
    internal = [name for name in single if name in INTERNAL_TOPICS]
    findings = []
    if internal:
        findings.append(
            Finding(
                Status.WARNING,
                f"one replica only of {', '.join(internal)}: without that broker, groups or "
                "transactions stop",
                f"penstock log move generate {' '.join(internal)} --replication-factor "
                f"{min(3, broker_count)} -o plan.json; penstock log move execute plan.json",
            )
        )
    if others := [name for name in single if name not in INTERNAL_TOPICS]:
        findings.append(
            Finding(
                Status.WARNING,
                f"one replica only: {some(others)}",
                "penstock log move generate TOPIC --replication-factor "
                f"{min(3, broker_count)} -o plan.json; penstock log move execute plan.json; set "
                "default.replication.factor for new topics",
            )
        )
    if weak := sorted(
        name for name, s in by_topic.items() if len(s.replicas) > 2 and s.min_isr < 2
    ):
        findings.append(
            Finding(
                Status.WARNING,
                f"min.insync.replicas=1: a record with acks=all may be on one disk: {some(weak)}",
                "set min.insync.replicas=2 on all brokers, or: penstock config alter topic TOPIC "
                "--set min.insync.replicas=2",
            )
        )
    if strict := sorted(
        name for name, s in by_topic.items() if len(s.replicas) > 1 and s.min_isr >= len(s.replicas)
    ):
        findings.append(
            Finding(
                Status.WARNING,
                "min.insync.replicas is the number of replicas, so that one broker that is down "
                f"stops acks=all: {some(strict)}",
                "lower min.insync.replicas, or add replicas",
            )
        )
    return findings


def check_balance(load: ClusterLoad) -> list[Finding]:
    """Finds leaders and bytes that are spread unevenly."""
    plan = plan_rebalance(load, tolerance=_TOLERANCE)
    findings = []
    leaders = Counter(dict.fromkeys(load.racks, 0))
    leaders.update(
        leader for leader in load.leaders.values() if leader is not None and leader in load.racks
    )
    counts = sorted(leaders.values())
    if plan.elections and counts and counts[-1] - counts[0] > 1:
        findings.append(
            Finding(
                Status.WARNING,
                "leaders are uneven: "
                + ", ".join(f"broker {broker} has {leaders[broker]}" for broker in sorted(leaders)),
                "penstock cluster rebalance --leaders-only --execute",
            )
        )
    if plan.moves or plan.log_dirs:
        findings.append(
            Finding(
                Status.WARNING,
                f"disks are uneven: {len(plan.moves)} partitions and {len(plan.log_dirs)} log "
                "directories would have to move",
                "see the plan: penstock cluster rebalance",
            )
        )
    return findings


def check_disks(volumes: Mapping[tuple[int, str], tuple[int, int]]) -> list[Finding]:
    """Finds volumes, with total and usable bytes by broker and log directory, that are full."""
    return [
        Finding(
            Status.WARNING,
            f"{path} of broker {broker} is {1 - usable / total:.0%} full",
            "shorten retention.ms or retention.bytes of large topics, move replicas (penstock "
            "cluster rebalance), or enlarge the volume",
        )
        for (broker, path), (total, usable) in sorted(volumes.items())
        if total > 0 and usable < total * (1 - _FULL)
    ]


def check_settings(settings: Mapping[int, Mapping[str, str | None]]) -> list[Finding]:
    """Finds settings that differ between brokers although they should not."""
    findings = []
    for name in SHARED_SETTINGS:
        values = {broker: found[name] for broker, found in settings.items() if name in found}
        if len(set(values.values())) > 1:
            texts = (f"{value} on broker {broker}" for broker, value in sorted(values.items()))
            findings.append(
                Finding(
                    Status.WARNING,
                    f"{name} differs: {', '.join(texts)}",
                    "set it to one value in the properties of all brokers, and restart those that "
                    "had another one",
                )
            )
    return findings


def check_broker_versions(
    versions: Mapping[int, Mapping[str, tuple[int, int]]],
) -> list[Finding]:
    """Finds brokers that serve other versions of APIs, by their names, than the others."""
    brokers = sorted(versions)
    for broker, following in pairwise(brokers):
        differing = sorted(
            name
            for name in {*versions[broker], *versions[following]}
            if versions[broker].get(name) != versions[following].get(name)
        )
        if differing:
            return [
                Finding(
                    Status.WARNING,
                    f"brokers {broker} and {following} serve different versions of "
                    f"{some(differing)}: they are different releases",
                    "upgrade the older ones, one at a time: see docs/operations.md",
                )
            ]
    return []


def check_clocks(skews_ms: Mapping[int, int]) -> list[Finding]:
    """Finds brokers whose clocks differ from this machine's, and from each other."""
    findings = [
        Finding(
            Status.WARNING,
            f"the clock of broker {broker} is {abs(skew)} ms {'ahead' if skew > 0 else 'behind'}",
            "retention, offsets by time and tokens depend on clocks: run NTP on all machines",
        )
        for broker, skew in sorted(skews_ms.items())
        if abs(skew) >= _SKEW_MS
    ]
    # If all of them differ alike, it is the clock of this machine.
    if skews_ms and len(findings) == len(skews_ms) > 1:
        spread = max(skews_ms.values()) - min(skews_ms.values())
        if spread < _SKEW_MS:
            return [
                Finding(
                    Status.WARNING,
                    f"the clocks of all brokers are {abs(min(skews_ms.values()))} ms from this "
                    "machine's, and agree with each other",
                    "run NTP on this machine",
                )
            ]
    return findings


def check_round_trips(round_trips: Mapping[int, RoundTrips]) -> list[Finding]:
    """Finds brokers that packets to are lost, or whose responses take very different times (E9)."""
    findings = []
    for broker, trips in sorted(round_trips.items()):
        if not trips.milliseconds:
            continue
        usual = median(trips.milliseconds)
        worst = max(trips.milliseconds)
        if trips.retransmissions:
            findings.append(
                Finding(
                    Status.WARNING,
                    f"packets to broker {broker} are lost: {trips.retransmissions} were sent again "
                    f"during {len(trips.milliseconds)} round trips",
                    "check cables, switches, MTU and the load of the network on the path",
                )
            )
        elif worst > usual + max(_JITTER_MS, 5 * usual):
            findings.append(
                Finding(
                    Status.WARNING,
                    f"round trips to broker {broker} take {usual:.1f} ms usually, but up to "
                    f"{worst:.0f} ms",
                    "packets may be lost on the way back, or the broker or the network is "
                    "overloaded: measure at its machine, too",
                )
            )
    return findings


def some(names: Iterable[object]) -> str:
    """Returns the first names, and how many there are."""
    texts = [str(name) for name in names]
    rest = f" … ({len(texts)} in all)" if len(texts) > 5 else ""
    return ", ".join(texts[:5]) + rest


def numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
