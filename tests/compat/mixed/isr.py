"""Followers that fall behind or stop for a while: the ISR shrinks and grows on both sides."""

import json
import signal

from tests.compat.mixed.load import SteadyLoad
from tests.compat.mixed.moves import wait_for_equal_logs
from tests.compat.mixed.view import KAFKA, WAIT_S, MixedView
from tests.support.history.cluster import BROKER_IDS
from tests.support.history.network import broker_name


def shrink_and_grow(view: MixedView, controller: int, leader: int, follower: int) -> None:
    """A leader that its follower does not reach reports the ISR to a controller elsewhere."""
    assert controller not in (leader, follower)
    name = f"isr-{controller}-{leader}-{follower}"
    view.create_topic(name, (leader, follower, controller), configs={"min.insync.replicas": "1"})
    with SteadyLoad(view.cluster.network.bootstrap, name, 1):
        view.cluster.network.cut(broker_name(leader), broker_name(follower))
        wait_for_isr(view, name, {leader, controller})
        view.cluster.network.heal(broker_name(leader), broker_name(follower))
        wait_for_isr(view, name, set(BROKER_IDS))
    wait_for_equal_logs(view, name, 0, BROKER_IDS)


def wait_for_isr(view: MixedView, name: str, isr: set[int]) -> None:
    """Waits until ZooKeeper and all brokers have this ISR of a partition."""

    def problem() -> str:
        data, _ = view.zookeeper.get(f"/brokers/topics/{name}/partitions/0/state")
        seen = {"ZooKeeper": set(json.loads(data)["isr"])}
        for broker_id in BROKER_IDS:
            [partition] = view.describe(broker_id, name).partitions
            seen[f"broker {broker_id}"] = set(partition.isr_nodes)
        return "" if all(value == isr for value in seen.values()) else f"ISRs: {seen}"

    view.cluster.poll(problem, WAIT_S)


def pause_the_controller(view: MixedView, controller: int, name: str) -> None:
    """A controller that is paused until it is replaced knows that it is one no longer.

    Another broker leads its partitions, until the tool elects the preferred leaders.
    """
    replicas = [(i, *(other for other in BROKER_IDS if other != i)) for i in BROKER_IDS]
    view.create_topic(name, *replicas, configs={"min.insync.replicas": "1"})
    with SteadyLoad(view.cluster.network.bootstrap, name, len(replicas)):
        paused = view.cluster.processes[controller]
        paused.send_signal(signal.SIGSTOP)
        view.wait_until(
            lambda: view.stored_controller() not in (None, controller), "another controller"
        )
        paused.send_signal(signal.SIGCONT)
        view.wait_until(lambda: has_lost_leadership(view, name, controller), "other leaders")
        view.cluster.wait_until_in_sync()
        view.shell("leader-election", "--election-type", "preferred", "--all-topic-partitions")
        view.wait_for_partitions(name, *replicas)
    for number in range(len(replicas)):
        wait_for_equal_logs(view, name, number, BROKER_IDS)


def has_lost_leadership(view: MixedView, name: str, broker_id: int) -> bool:
    partitions = view.describe(broker_id, name).partitions
    return all(partition.leader_id not in (-1, broker_id) for partition in partitions)


def roles_of(controller: int) -> list[tuple[int, int]]:
    """Returns leaders and followers of both kinds, neither of which is the controller."""
    others = [broker_id for broker_id in BROKER_IDS if broker_id != controller]
    if controller == KAFKA:
        return [(others[0], others[1])]
    return [(others[0], others[1]), (others[1], others[0])]
