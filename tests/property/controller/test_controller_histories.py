"""Random histories of the controller among brokers that receive its decisions late (R5 to R8).

Each seed is one history. `test_planted_bugs_are_found` shows that the checks notice mistakes of the
controller.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from penstock.controller import election, isr, reactions
from penstock.controller.broker_updates import (
    BrokerUpdate,
    _Delta,
    broker_updates,
    full_update,
)
from penstock.controller.election import PREFERRED, UNCLEAN, balance_leaders, elect_leaders
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerRecord,
    Change,
    IsrChangeRecord,
    LogDirEventRecord,
    PartitionRecord,
    PreferredElectionRecord,
    Put,
    ReassignPartitionsRecord,
    TopicDeletionRecord,
    TopicRecord,
)
from penstock.controller.partition_state_machine import (
    Leaderships,
    PartitionState,
    next_partition_state,
)
from penstock.controller.placement import PlacementStart
from penstock.controller.reactions import ControllerReactions
from penstock.controller.reassignment import alter_partition_reassignments
from penstock.controller.topic_deletion import TopicDeletions, delete_topics
from penstock.controller.topics import NewTopicRules, create_partitions, create_topics
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from tests.support.cluster import simulated_cluster
from tests.support.cluster.images import image_after
from tests.support.cluster.simulated_cluster import SimulatedCluster

BROKERS = (0, 1, 2, 3)
TOPICS = ("t", "u", "v")
HISTORIES = 240
EVENTS = 60


class History:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cluster = SimulatedCluster(BROKERS)
        self.cluster.is_merging = seed % 2 == 1
        self.topic_ids = 0
        self.sequence = 0
        for broker_id in BROKERS:
            self.cluster.start_broker(broker_id)
        self.cluster.start_controller(0)
        for _ in range(3):
            self.create_topic()
        self.cluster.deliver_all()

    def run(self) -> None:
        actions = self.actions()
        names = list(actions)
        weights = [weight for weight, _ in actions.values()]
        for _ in range(EVENTS):
            actions[self.rng.choices(names, weights)[0]][1]()
            self.cluster.check()
        self.heal()

    def actions(self) -> dict[str, tuple[int, Callable[[], None]]]:
        return {
            "deliver": (40, self.deliver),
            "produce": (25, self.produce),
            "propose ISR": (16, self.propose_isr),
            "start or bounce": (8, self.start_broker),
            "stop": (7, self.stop_brokers),
            "lose the session": (3, self.lose_session),
            "register again": (5, self.register_again),
            "new controller": (3, self.change_controller),
            "controlled shutdown": (3, self.shut_down),
            "fail a directory": (3, self.fail_directory),
            "create": (5, self.create_topic),
            "create in the store": (1, self.create_topic_in_store),
            "add partitions": (1, self.add_partitions),
            "delete": (3, self.delete_topic),
            "reassign": (4, self.reassign),
            "reassign in the store": (2, self.reassign_in_store),
            "cancel": (2, self.cancel_reassignment),
            "elect": (3, self.elect),
            "elect in the store": (1, self.elect_in_store),
            "balance": (2, self.balance),
            "allow unclean elections": (1, self.switch_unclean),
        }

    def heal(self) -> None:
        """All brokers start again, and every leader takes in its followers."""
        cluster = self.cluster
        for broker_id in BROKERS:
            cluster.start_broker(broker_id)
        for _ in range(50):
            cluster.deliver_all()
            partitions = dict(cluster.image.partitions)
            topics = dict(cluster.image.topics)
            for holder, replica, state in cluster.believed_leaders():
                cluster.propose_isr(holder, replica, state, set(state.assignment.replicas))
                cluster.check()
            if partitions == cluster.image.partitions and topics == cluster.image.topics:
                break
        cluster.deliver_all()
        cluster.check()
        cluster.check_healed()

    # --- brokers

    def deliver(self) -> None:
        waiting = [b.broker_id for b in self.cluster.brokers.values() if b.queue]
        if waiting:
            self.cluster.deliver(self.rng.choice(waiting))

    def produce(self) -> None:
        if leaders := self.cluster.believed_leaders():
            self.cluster.produce(*self.rng.choice(leaders))

    def propose_isr(self) -> None:
        leaders = self.cluster.believed_leaders()
        if leaders:
            holder, replica, state = self.rng.choice(leaders)
            replicas = state.assignment.replicas
            members = set(self.rng.sample(replicas, self.rng.randint(0, len(replicas))))
            if self.rng.random() < 0.5:
                members = set(replicas)
            lost = self.rng.random() < 0.2
            self.cluster.propose_isr(holder, replica, state, members, is_response_lost=lost)

    def start_broker(self) -> None:
        """The broker may work before others are notified of its restart."""
        broker_id = self.rng.choice(BROKERS)
        self.cluster.start_broker(broker_id, self.rng.randint(0, 2))
        if self.cluster.brokers[broker_id].queue and self.rng.random() < 0.5:
            self.cluster.deliver(broker_id)
            for holder, replica, state in self.cluster.believed_leaders():
                if holder.broker_id == broker_id:
                    self.cluster.produce(holder, replica, state)

    def stop_brokers(self) -> None:
        live = [b for b in self.cluster.live() if b != self.cluster.image.controller_id]
        self.cluster.stop_brokers(self.rng.sample(live, min(len(live), self.rng.randint(1, 2))))

    def lose_session(self) -> None:
        live = [b for b in self.cluster.live() if b != self.cluster.image.controller_id]
        if live:
            self.cluster.lose_session(self.rng.choice(live))

    def register_again(self) -> None:
        self.cluster.register_again(self.rng.choice(BROKERS))

    def change_controller(self) -> None:
        """The controller's broker fails, or only loses its role; others may fail with it."""
        live = self.cluster.live()
        failed = self.rng.sample(live, self.rng.randint(0, len(live) - 1))
        self.cluster.stop_brokers(failed, has_controller=False)
        self.cluster.start_controller(self.rng.choice(self.cluster.live()))

    def shut_down(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        request = ControlledShutdownRequest(broker_id)
        cluster = self.cluster
        cluster.commit(
            cluster.reactions.controlled_shutdown(cluster.image, request, cluster.base_rules)
        )

    def fail_directory(self) -> None:
        holder = self.cluster.brokers[self.rng.choice(BROKERS)]
        if holder.is_up and holder.replicas:
            keys = sorted(holder.replicas)
            holder.offline |= set(self.rng.sample(keys, self.rng.randint(1, len(keys))))
            self.sequence += 1
            self.cluster.write([Put(LogDirEventRecord(self.sequence, holder.broker_id))])

    # --- topics

    def create_topic(self) -> None:
        name = self.rng.choice(TOPICS)
        topic = CreatableTopic(name, self.rng.randint(1, 3), self.rng.randint(1, 3))
        start = PlacementStart(self.rng.randint(0, 3), 0)
        rules = NewTopicRules(1, 1, lambda _configs: None, self.new_topic_id, start)
        cluster = self.cluster
        exists = name in cluster.image.topics
        result = create_topics(cluster.image, CreateTopicsRequest(topics=[topic]), rules)
        cluster.commit(result)
        if exists:
            assert result.response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    def new_topic_id(self) -> UUID:
        self.topic_ids += 1
        return UUID(int=0x1000 + self.topic_ids)

    def create_topic_in_store(self) -> None:
        """Another process assigns the replicas; the controller adds the states."""
        name = self.rng.choice(TOPICS)
        if name not in self.cluster.image.topics:
            assignments = {
                number: Assignment(tuple(self.rng.sample(BROKERS, self.rng.randint(1, 3))))
                for number in range(self.rng.randint(1, 2))
            }
            self.cluster.write([Put(TopicRecord(name, self.new_topic_id(), assignments))])

    def add_partitions(self) -> None:
        topics = [CreatePartitionsTopic(self.rng.choice(TOPICS), self.rng.randint(2, 4), None)]
        request = CreatePartitionsRequest(topics=topics)
        start = PlacementStart(0, 0)
        self.cluster.commit(create_partitions(self.cluster.image, request, start))

    def delete_topic(self) -> None:
        name = self.rng.choice(TOPICS)
        image = self.cluster.image
        if self.rng.random() < 0.3:
            if not image.is_deleting(name):
                self.cluster.write([Put(TopicDeletionRecord(name))])
        else:
            request = DeleteTopicsRequest(topic_names=[name])
            self.cluster.commit(delete_topics(image, request))
        assert not image.has_topic(name)

    # --- partitions

    def any_partition(self) -> TopicPartition | None:
        keys = sorted(self.cluster.image.partitions)
        return self.rng.choice(keys) if keys else None

    def any_replicas(self) -> list[int]:
        return self.rng.sample(BROKERS, self.rng.randint(1, 3))

    def reassign(self) -> None:
        key = self.any_partition()
        if key is not None:
            self.move(key, self.any_replicas())

    def cancel_reassignment(self) -> None:
        moving = [
            TopicPartition(topic.topic, number)
            for topic in self.cluster.image.topics.values()
            for number, assignment in topic.assignments.items()
            if assignment.is_reassigning
        ]
        if moving:
            self.move(self.rng.choice(moving), None)

    def move(self, key: TopicPartition, replicas: list[int] | None) -> None:
        topics = [ReassignableTopic(key.topic, [ReassignablePartition(key.partition, replicas)])]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        cluster = self.cluster
        cluster.commit(alter_partition_reassignments(cluster.image, request, cluster.rules))

    def reassign_in_store(self) -> None:
        keys = sorted(self.cluster.image.partitions)
        chosen = self.rng.sample(keys, min(len(keys), self.rng.randint(1, 3)))
        requests = {key: tuple(self.any_replicas()) for key in chosen}
        requests[TopicPartition("unknown", 0)] = (0,)
        if self.cluster.image.reassign_partitions is None:
            self.cluster.write([Put(ReassignPartitionsRecord(requests))])

    def elect(self) -> None:
        key = self.any_partition()
        if key is not None:
            topics = [ElectLeadersTopicPartitions(key.topic, [key.partition])]
            request = ElectLeadersRequest(self.rng.choice([PREFERRED, UNCLEAN]), topics)
            cluster = self.cluster
            cluster.is_unclean_requested = request.election_type == UNCLEAN
            cluster.commit(elect_leaders(cluster.image, request, cluster.rules))
            cluster.is_unclean_requested = False

    def elect_in_store(self) -> None:
        key = self.any_partition()
        if key is not None:
            self.sequence += 1
            self.cluster.write(
                [
                    Put(PreferredElectionRecord((key, TopicPartition("unknown", 0)))),
                    Put(IsrChangeRecord(self.sequence, (key,))),
                ]
            )

    def balance(self) -> None:
        cluster = self.cluster
        percentage = self.rng.choice([0, 10, 50])
        cluster.write(balance_leaders(cluster.image, percentage, cluster.rules))

    def switch_unclean(self) -> None:
        cluster = self.cluster
        cluster.unclean_topics ^= {self.rng.choice(TOPICS)}
        cluster.write(election.elect_leaderless(cluster.image, cluster.rules))


def run_histories(count: int) -> int:
    """Runs histories; returns how many of them had an unclean election."""
    with_unclean_elections = 0
    for seed in range(count):
        history = History(seed)
        try:
            history.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        with_unclean_elections += bool(history.cluster.unclean_epochs)
    return with_unclean_elections


def test_random_histories() -> None:
    assert run_histories(HISTORIES) > 10


def test_a_history_is_the_same_each_time() -> None:
    first, second = History(7), History(7)
    first.run()
    second.run()
    assert first.cluster.store == second.cluster.store


# --- planted bugs


def elect_outside_isr(patch: pytest.MonkeyPatch) -> None:
    """The preferred replica leads whether it is in sync or not."""
    patch.setattr(Leaderships, "choose", lambda _self, preferred, _candidates: preferred)


def keep_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """A new leader leads in the epoch of the old one."""

    def next_state(before: PartitionState, *args: Any, **options: Any) -> PartitionState | None:
        after = next_partition_state(before, *args, **options)
        if after is None:
            return None
        record = replace(after.record, leader_epoch=before.record.leader_epoch)
        return after._replace(record=record)

    patch.setattr(election, "next_partition_state", next_state)


def ignore_restarts(patch: pytest.MonkeyPatch) -> None:
    """A broker that restarted unnoticed leads on, without the records that it lost."""

    def add_states(*args: Any, **options: Any) -> None:
        election.add_partition_states(*args, **{**options, "restarted": ()})

    patch.setattr(reactions, "add_partition_states", add_states)


def send_states_before_reacting(patch: pytest.MonkeyPatch) -> None:
    """A broker that registers gets the states from before its restart at once."""

    def updates(
        image: ClusterImage, changes: Sequence[Change], *args: Any
    ) -> dict[int, BrokerUpdate]:
        after = image_after(image, changes)
        started = [
            change.record.broker_id
            for change in changes
            if isinstance(change, Put) and isinstance(change.record, BrokerRecord)
        ]
        early = {broker_id: full_update(after, broker_id) for broker_id in started}
        return {**broker_updates(image, changes, *args), **early}

    patch.setattr(simulated_cluster, "broker_updates", updates)


def accept_stale_proposals(patch: pytest.MonkeyPatch) -> None:
    """Leaders change the ISR in epochs that have ended."""
    patch.setattr(isr, "_check_epochs", lambda *_args: ErrorCode.NONE)


def forget_returning_brokers(patch: pytest.MonkeyPatch) -> None:
    """A deletion is not sent again to a broker that restarted."""
    patch.setattr(TopicDeletions, "restart_broker", lambda _self, _broker_id: None)


def delete_too_early(patch: pytest.MonkeyPatch) -> None:
    """A topic is removed although a broker that is down still has replicas."""
    add_stops = TopicDeletions._add_stops

    def skip_brokers_that_are_down(
        self: TopicDeletions, topic: TopicRecord, image: ClusterImage, *args: Any
    ) -> bool:
        live = {
            number: Assignment(tuple(r for r in assignment.replicas if r in image.brokers))
            for number, assignment in topic.assignments.items()
        }
        return add_stops(self, replace(topic, assignments=live), image, *args)

    patch.setattr(TopicDeletions, "_add_stops", skip_brokers_that_are_down)


def keep_removed_replicas(patch: pytest.MonkeyPatch) -> None:
    """Replicas that a reassignment has removed stay on their brokers."""
    patch.setattr(_Delta, "_stop_removed_replicas", lambda _self, _topic: None)


def send_only_to_leaders(patch: pytest.MonkeyPatch) -> None:
    """Followers do not learn the new epoch."""
    update_replicas = _Delta._update_replicas

    def update_leader(self: _Delta, state: PartitionRecord) -> None:
        before = {broker_id: len(updates) for broker_id, updates in self.partitions.items()}
        update_replicas(self, state)
        for broker_id, updates in self.partitions.items():
            if broker_id != state.leader:
                del updates[before.get(broker_id, 0) :]

    patch.setattr(_Delta, "_update_replicas", update_leader)


def ignore_offline_replicas(patch: pytest.MonkeyPatch) -> None:
    """A replica in a failed directory stays in the ISR."""
    patch.setattr(
        ControllerReactions,
        "rules",
        lambda self, rules: rules._replace(shutting_down=frozenset(self.shutting_down)),
    )


PLANTED_BUGS = [
    elect_outside_isr,
    keep_leader_epoch,
    ignore_restarts,
    send_states_before_reacting,
    accept_stale_proposals,
    forget_returning_brokers,
    delete_too_early,
    keep_removed_replicas,
    send_only_to_leaders,
    ignore_offline_replicas,
]


@pytest.mark.parametrize("plant", PLANTED_BUGS, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        run_histories(HISTORIES)
