"""The conclusions of `penstock doctor --cluster` (E6, E7, E9)."""

from penstock.cli.admin.cluster_status import PartitionStatus
from penstock.cli.admin.rebalance_plan import ClusterLoad
from penstock.cli.doctor.checks import Status
from penstock.cli.doctor.cluster_checks import (
    BrokerView,
    Finding,
    RoundTrips,
    check_addresses,
    check_balance,
    check_broker_versions,
    check_clocks,
    check_disks,
    check_redundancy,
    check_replicas,
    check_round_trips,
    check_settings,
    check_views,
)
from penstock.core.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)
GIB = 1 << 30


def status(
    leader: int | None = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    min_isr: int = 2,
    name: TopicPartition = ORDERS,
) -> PartitionStatus:
    return PartitionStatus(name, leader, replicas, isr, min_isr)


def the_only(findings: list[Finding]) -> Finding:
    [finding] = findings
    assert finding.remedy
    return finding


def test_a_broker_that_advertises_loopback_among_others() -> None:
    finding = the_only(check_addresses({1: "10.0.0.1", 2: "localhost"}))
    assert (finding.status, finding.problem[:29]) == (
        Status.FAILED,
        "broker 2 advertises localhost",
    )
    assert check_addresses({1: "127.0.0.1", 2: "localhost"}) == [], "all on one machine"
    assert check_addresses({1: "10.0.0.1", 2: "10.0.0.2"}) == []


def test_brokers_that_do_not_hear_the_controller() -> None:
    usual = BrokerView(1, {ORDERS: 2})
    assert check_views({1: usual, 2: usual}) == []
    stale = the_only(check_views({1: usual, 2: usual, 3: BrokerView(1, {ORDERS: 3})}))
    assert "broker 3 names other leaders of orders-0" in stale.problem
    assert "from broker 1 to the inter-broker listener of broker 3" in stale.remedy
    other = the_only(check_views({1: usual, 2: usual, 3: BrokerView(3, {ORDERS: 2})}))
    assert "knows broker 3 instead of broker 1" in other.problem
    none = BrokerView(-1, {})
    assert "no controller" in the_only(check_views({1: none, 2: none})).problem


def test_replicas() -> None:
    up = {1, 2, 3}
    assert check_replicas([status()], up) == []
    assert check_replicas([status(replicas=(1,), isr=(1,))], up) == []
    lagging = the_only(check_replicas([status(isr=(1, 2))], up))
    assert lagging.status is Status.WARNING
    assert "broker 3 is up, but not in sync with its leader 1: orders-0" in lagging.problem
    down = the_only(check_replicas([status(isr=(1, 2))], {1, 2}))
    assert down.problem == "broker 3 is down and has replicas of 1 partitions"
    refusing, *others = check_replicas([status(isr=(1,))], {1})
    assert "acks=all is refused: orders-0" in refusing.problem
    assert len(others) == 2
    offline, *_ = check_replicas([status(None, isr=())], set())
    assert offline.problem == "no leader: orders-0"
    assert offline.status is Status.FAILED


def test_redundancy() -> None:
    groups = TopicPartition("__consumer_offsets", 0)
    assert check_redundancy([status()], 3) == []
    assert check_redundancy([status(replicas=(1,))], 1) == [], "one broker has no others"
    internal, single = check_redundancy(
        [status(replicas=(1,)), status(replicas=(1,), name=groups)], 3
    )
    assert "__consumer_offsets: without that broker, groups" in internal.problem
    assert "--replication-factor 3" in internal.remedy
    assert single.problem == "one replica only: orders"
    assert "may be on one disk" in the_only(check_redundancy([status(min_isr=1)], 3)).problem
    assert "stops acks=all" in the_only(check_redundancy([status(min_isr=3)], 3)).problem


def test_balance() -> None:
    partitions = [TopicPartition("t", number) for number in range(4)]
    uneven = ClusterLoad(
        dict.fromkeys(partitions, (1, 2)),
        dict.fromkeys(partitions, 1),
        dict.fromkeys(partitions, GIB),
        {1: None, 2: None},
        {},
    )
    leaders = the_only(check_balance(uneven))
    assert leaders.problem == "leaders are uneven: broker 1 has 4, broker 2 has 0"
    _, disks = check_balance(uneven._replace(racks={1: None, 2: None, 3: None}))
    assert "disks are uneven" in disks.problem
    even = {partition: 1 + number % 2 for number, partition in enumerate(partitions)}
    assignment = {partition: (leader, 3 - leader) for partition, leader in even.items()}
    assert check_balance(uneven._replace(assignment=assignment, leaders=even)) == []


def test_disks() -> None:
    volumes = {(1, "/data"): (100 * GIB, 5 * GIB), (2, "/data"): (100 * GIB, 50 * GIB)}
    assert the_only(check_disks(volumes)).problem == "/data of broker 1 is 95% full"


def test_settings() -> None:
    settings: dict[int, dict[str, str | None]] = {
        1: {"min.insync.replicas": "2", "broker.rack": "a"},
        2: {"min.insync.replicas": "1", "broker.rack": "b"},
    }
    finding = the_only(check_settings(settings))
    assert finding.problem == "min.insync.replicas differs: 2 on broker 1, 1 on broker 2"


def test_versions() -> None:
    old, new = {"Fetch": (4, 16)}, {"Fetch": (4, 17)}
    assert check_broker_versions({1: new, 2: new}) == []
    assert "Fetch" in the_only(check_broker_versions({1: new, 2: new, 3: old})).problem


def test_clocks() -> None:
    assert check_clocks({1: 0, 2: 1_999}) == []
    finding = the_only(check_clocks({1: 0, 2: -5_000}))
    assert finding.problem == "the clock of broker 2 is 5000 ms behind"
    own = the_only(check_clocks({1: 60_000, 2: 60_100}))
    assert "agree with each other" in own.problem
    assert len(check_clocks({1: 60_000, 2: -60_000})) == 2


def test_round_trips() -> None:
    """E9: lost packets, and times that vary."""
    assert check_round_trips({1: RoundTrips([1.0] * 50, 0), 2: RoundTrips([], None)}) == []
    lost = the_only(check_round_trips({1: RoundTrips([1.0] * 50, 3)}))
    assert "packets to broker 1 are lost: 3 were sent again" in lost.problem
    varying = the_only(check_round_trips({1: RoundTrips([*[1.0] * 49, 205.0], 0)}))
    assert varying.problem == "round trips to broker 1 take 1.0 ms usually, but up to 205 ms"
