"""Replicas that move between Kafka and Penstock with a throttle, by Kafka's tool, under load."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.client import Producer
from tests.compat.mixed.load import SteadyLoad
from tests.compat.mixed.view import WAIT_S, MixedView
from tests.support.history.cluster import BROKER_IDS
from tests.support.history.replica_logs import read_batches
from tests.support.kafka.reassignments import LISTS, NO_THROTTLES, RATES, Plan, throttles
from tests.support.kafka.tools import Shell

HERE = {0: (1, 2), 1: (3, 2)}
"""Broker 1 is Kafka's: partition 0 moves away from it, partition 1 to it."""
THERE = {0: (2, 3), 1: (1, 3)}
SLOW, FAST = "20000", "100000000"
"""Bytes per second: the copy of a partition takes a minute, or no time."""
RECORDS, RECORD_BYTES = 150, 20_000
"""More than a follower fetches at a time, after which the throttle makes it wait."""


def create_filled_topic(view: MixedView, name: str) -> None:
    view.create_topic(name, *HERE.values(), configs={"min.insync.replicas": "1"})
    with Producer(bootstrap_servers=view.cluster.network.bootstrap) as producer:
        for number in range(RECORDS):
            for partition in HERE:
                producer.send(name, b"%0*d" % (RECORD_BYTES, number), partition=partition)
        producer.flush(60)


def move_there_and_back(
    view: MixedView, name: str, shells: Sequence[Shell], directory: Path
) -> None:
    """The tool of one release moves the partitions, that of another one moves them back."""
    create_filled_topic(view, name)
    with SteadyLoad(view.cluster.network.bootstrap, name, len(HERE)):
        for shell, (old, new) in zip(shells, ((HERE, THERE), (THERE, HERE)), strict=True):
            move(view, name, shell, old, new, directory)
    for number, replicas in HERE.items():
        wait_for_equal_logs(view, name, number, replicas)


def move(
    view: MixedView,
    name: str,
    shell: Shell,
    old: Mapping[int, Sequence[int]],
    new: Mapping[int, Sequence[int]],
    directory: Path,
) -> None:
    plan = Plan(shell, directory, {(name, number): brokers for number, brokers in new.items()})
    started = plan("--execute", "--throttle", SLOW).lines
    assert f"The inter-broker throttle limit was set to {SLOW} B/s" in started
    wait_for_throttles(view, name, set(LISTS), SLOW)
    assert f"Reassignment of partition {name}-0 is still in progress." in plan("--verify").lines
    for number, brokers in new.items():
        [added] = set(brokers).difference(old[number])
        copy = view.replica_directory(added, name, number)
        view.wait_until(copy.is_dir, f"copy of {name}-{number} on broker {added}")
        assert size_of(copy) < size_of(view.replica_directory(old[number][0], name, number))

    plan("--execute", "--additional", "--throttle", FAST)
    view.wait_until(lambda: not view.admin.list_partition_reassignments(), "end of the moves")
    verified = plan("--verify").lines
    for number in new:
        assert f"Reassignment of partition {name}-{number} is completed." in verified
    view.wait_until(lambda: throttles(view.shell, name) == NO_THROTTLES, "removal of the throttles")
    for number, brokers in new.items():
        [removed] = set(old[number]).difference(brokers)
        wait_for_removal(view, view.replica_directory(removed, name, number))
    elected = shell.attempt(
        "leader-election", "--election-type", "preferred", "--all-topic-partitions"
    )
    assert elected.exit == 0, elected.text
    view.wait_for_partitions(name, *new.values())


def wait_for_throttles(view: MixedView, name: str, lists: set[str], rate: str) -> None:
    """Waits until the tool shows throttles: it may ask a broker that does not know them yet."""
    rates = dict.fromkeys(BROKER_IDS, dict.fromkeys(RATES, rate))

    def problem() -> str:
        shown = throttles(view.shell, name)
        return "" if (set(shown[0]), shown[1]) == (lists, rates) else f"throttles {shown}"

    view.cluster.poll(problem, WAIT_S)


def wait_for_removal(view: MixedView, directory: Path) -> None:
    view.wait_until(lambda: not directory.exists(), f"removal of {directory}")


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def wait_for_equal_logs(
    view: MixedView, name: str, partition: int, replicas: Sequence[int]
) -> None:
    def is_equal() -> bool:
        first, *others = (
            read_batches(view.replica_directory(broker_id, name, partition))
            for broker_id in replicas
        )
        return bool(first) and all(log == first for log in others)

    view.wait_until(is_equal, f"equal logs of {name}-{partition}")
