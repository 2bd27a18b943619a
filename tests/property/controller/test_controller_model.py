"""Random lives of a cluster, looked over after every step (R1, R5, R7, R8).

The machine plays the host: it commits what the controller decides to a store (a plain dict) and
applies it to the image. What must hold of every change and of every state is said once, below.
"""

from collections.abc import Collection, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.controller.brokers import become_controller, startup
from penstock.controller.election import (
    PREFERRED,
    UNCLEAN,
    balance_leaders,
    broker_down,
    broker_up,
    controlled_shutdown,
    elect_leaderless,
    elect_leaders,
    settle_all,
)
from penstock.controller.image import ClusterImage
from penstock.controller.isr import alter_partition
from penstock.controller.metadata import (
    Assignment,
    Change,
    Delete,
    Key,
    PartitionRecord,
    Put,
    Record,
    TopicRecord,
)
from penstock.controller.partition_change import ElectionRules
from penstock.controller.placement import Start
from penstock.controller.reassignment import alter_partition_reassignments
from penstock.controller.topic_deletion import delete_topics
from penstock.controller.topics import NewTopicRules, create_partitions, create_topics
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
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
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from tests.support.clusters import broker, check_committable, ids

BROKERS = range(5)
RACKS = {0: "a", 1: "a", 2: "b", 3: "b", 4: None}
TOPICS = ("t", "u")
IDS = st.sampled_from(BROKERS)
REPLICAS = st.lists(st.integers(0, 5), min_size=1, max_size=4)
NAMES = st.sampled_from(TOPICS)
NUMBERS = st.integers(0, 2)


class ClusterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage()
        self.store: dict[Key, Record] = {}
        self.unclean_topics: set[str] = set()
        self.shutting_down: set[int] = set()
        self.epoch = 0
        self.new_topic_id = ids()

    @property
    def election_rules(self) -> ElectionRules:
        return ElectionRules(self.unclean_topics.__contains__, frozenset(self.shutting_down))

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def up(self, broker_id: int) -> Sequence[Change]:
        self.shutting_down.discard(broker_id)
        record = broker(broker_id, self.next_epoch(), RACKS[broker_id])
        return broker_up(self.image, record, self.election_rules)

    # --- the host

    def commit(
        self,
        changes: Sequence[Change],
        *,
        eligible: dict[TopicPartition, set[int]] | None = None,
        unclean: bool = False,
    ) -> None:
        """`eligible`: who may lead beside the members of the last ISR. `unclean`: anybody may."""
        check_committable(changes)
        before = dict(self.image.partitions)
        assignments = {name: record.assignments for name, record in self.image.topics.items()}
        self.image.apply(changes)
        changed: set[TopicPartition] = set()
        for change in changes:
            if isinstance(change, Delete):
                del self.store[change.key]
                continue
            record = change.record
            self.store[record.key] = record
            if isinstance(record, PartitionRecord):
                changed.add(record.key)
                allowed = (eligible or {}).get(record.key, set())
                free = unclean or record.topic in self.unclean_topics
                self.check_step(before.get(record.key), record, None if free else allowed)
        for change in changes:
            if isinstance(change, Put) and isinstance(change.record, TopicRecord):
                known = assignments.get(change.record.topic, {})
                for number, given in change.record.assignments.items():
                    if known.get(number) != given:
                        assert TopicPartition(change.record.topic, number) in changed

    def check_step(
        self, before: PartitionRecord | None, after: PartitionRecord, allowed: set[int] | None
    ) -> None:
        """One change of a partition. `allowed` is None where any replica may lead."""
        assert after.controller_epoch == self.image.controller_epoch
        if before is None:
            assert (after.leader_epoch, after.partition_epoch) == (0, 0)
            return
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch in (before.leader_epoch, before.leader_epoch + 1)
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
        if after.leader != -1 and allowed is not None:
            assert after.leader in {*before.isr, *allowed}, "R5: a leader from outside the ISR"

    # --- brokers

    @initialize(first=IDS, others=st.sets(IDS))
    def begin(self, first: int, others: set[int]) -> None:
        self.start_controller(first)
        for broker_id in sorted(others - {first}):
            self.commit(self.up(broker_id))

    def start_controller(self, broker_id: int) -> None:
        self.shutting_down.discard(broker_id)
        record = broker(broker_id, self.next_epoch(), RACKS[broker_id])
        changes = startup(
            self.image, record, cluster_id="c", features={}, now_ms=0, rules=self.election_rules
        )
        self.epoch = max(self.epoch, self.image.controller_epoch + 1)
        self.commit(changes)

    @rule(broker_id=IDS)
    def broker_starts_or_restarts_unnoticed(self, broker_id: int) -> None:
        self.commit(self.up(broker_id))

    @rule(broker_id=IDS)
    def controller_restarts(self, broker_id: int) -> None:
        self.start_controller(broker_id)

    @rule(gone=st.sets(IDS, min_size=1))
    def brokers_fail(self, gone: set[int]) -> None:
        """R7"""
        changes = broker_down(self.image, sorted(gone), self.election_rules)
        self.shutting_down -= gone
        self.commit(changes)

    @rule(gone=st.sets(IDS, max_size=2), data=st.data())
    def brokers_and_controller_fail(self, gone: set[int], data: st.DataObject) -> None:
        """R6, R7: registrations vanish without a decision; the next controller makes up for it."""
        left = sorted(self.image.brokers.keys() - gone)
        if not left:
            return
        vanished = sorted(self.image.brokers.keys() & gone)
        self.commit([Delete(self.image.brokers[broker_id].key) for broker_id in vanished])
        self.shutting_down -= gone
        chosen = data.draw(st.sampled_from(left))
        self.commit(become_controller(self.image, chosen, 0, self.election_rules))

    @rule(broker_id=IDS)
    def broker_asks_to_leave(self, broker_id: int) -> None:
        """R8"""
        request = ControlledShutdownRequest(broker_id)
        changes, reply = controlled_shutdown(self.image, request, self.election_rules)
        assert (reply.error_code == ErrorCode.NONE) == (broker_id in self.image.brokers)
        if reply.error_code == ErrorCode.NONE:
            self.shutting_down.add(broker_id)
        self.commit(changes)

    # --- topics

    @rule(name=NAMES, partitions=st.integers(1, 3), factor=st.integers(1, 4), start=NUMBERS)
    def create_topic(self, name: str, partitions: int, factor: int, start: int) -> None:
        """R1, E1"""
        exists, live = name in self.image.topics, len(self.image.brokers)
        code = self.create(CreatableTopic(name, partitions, factor), start)
        if exists:
            assert code == ErrorCode.TOPIC_ALREADY_EXISTS
        elif factor > live:
            assert code == ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            assert code == ErrorCode.NONE

    @rule(name=NAMES, replicas=REPLICAS)
    def create_topic_with_replicas(self, name: str, replicas: list[int]) -> None:
        given = [CreatableReplicaAssignment(0, replicas)]
        code = self.create(CreatableTopic(name, -1, -1, given), 0)
        if len(set(replicas)) < len(replicas):
            assert code != ErrorCode.NONE

    def create(self, topic: CreatableTopic, start: int) -> ErrorCode:
        rules = NewTopicRules(1, 1, lambda _configs: None, self.new_topic_id, Start(start, start))
        changes, reply = create_topics(self.image, CreateTopicsRequest(topics=[topic]), rules)
        self.commit(changes)
        return ErrorCode(reply.topics[0].error_code)

    @rule(name=NAMES, count=st.integers(0, 4))
    def add_partitions(self, name: str, count: int) -> None:
        """M1"""
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, count, None)])
        self.commit(create_partitions(self.image, request, Start(0, 0)).changes)

    @rule(name=NAMES)
    def delete_topic(self, name: str) -> None:
        self.commit(delete_topics(self.image, DeleteTopicsRequest(topic_names=[name])).changes)

    @rule(name=NAMES)
    def switch_unclean_election(self, name: str) -> None:
        """R5"""
        self.unclean_topics ^= {name}
        self.commit(elect_leaderless(self.image, self.election_rules))

    # --- partitions

    @rule(name=NAMES, number=NUMBERS, replicas=st.none() | REPLICAS, factor_change=st.booleans())
    def reassign(
        self, name: str, number: int, replicas: list[int] | None, factor_change: bool
    ) -> None:
        """R8"""
        wanted = [ReassignableTopic(name, [ReassignablePartition(number, replicas)])]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=factor_change, topics=wanted
        )
        self.commit(alter_partition_reassignments(self.image, request, self.election_rules).changes)

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data(), stale=st.sampled_from([0, 0, 0, 0, 1, -1]))
    def leader_changes_its_isr(self, data: st.DataObject, stale: int) -> None:
        """R3"""
        key = data.draw(st.sampled_from(sorted(self.image.partitions)))
        known = self.image.partitions[key]
        topic = self.image.topics[key.topic]
        replicas = topic.assignments[key.partition].replicas
        isr = sorted({known.leader, *data.draw(st.sets(st.sampled_from(replicas)))})
        members = [
            BrokerState(b, self.image.brokers[b].epoch if b in self.image.brokers else -1)
            for b in isr
        ]
        partition = AlterPartitionRequestPartitionData(
            key.partition, known.leader_epoch, [], members, 0, known.partition_epoch + stale
        )
        leader = self.image.brokers.get(known.leader)
        request = AlterPartitionRequest(
            known.leader,
            -1 if leader is None else leader.epoch,
            [AlterPartitionRequestTopicData("", topic.topic_id, [partition])],
        )
        changes, reply = alter_partition(self.image, request, self.election_rules)
        if stale or leader is None:
            assert not changes
        elif reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
            after = {c.record.key for c in changes if isinstance(c, Put)}
            assert (key in after) == (
                known.isr != tuple(reply.topics[0].partitions[0].isr)
                or known.leader_epoch != reply.topics[0].partitions[0].leader_epoch
            )
        self.commit(changes, eligible={key: set(isr)})

    @rule(name=NAMES, number=NUMBERS, election=st.sampled_from([PREFERRED, UNCLEAN]))
    def elect(self, name: str, number: int, election: int) -> None:
        """R5, R8"""
        wanted = [ElectLeadersTopicPartitions(name, [number])]
        changes = elect_leaders(
            self.image, ElectLeadersRequest(election, wanted), self.election_rules
        )
        self.commit(changes.changes, unclean=election == UNCLEAN)

    @rule(percentage=st.sampled_from([0, 10, 50]))
    def balance(self, percentage: int) -> None:
        """R8: afterwards who is in sync and preferred leads."""
        self.commit(balance_leaders(self.image, percentage, self.election_rules))
        for key, known in self.image.partitions.items():
            given = self.image.topics[key.topic].assignments[key.partition]
            preferred = given.replicas[0]
            settled = not given.adding and not given.removing and not self.shutting_down
            if percentage == 0 and settled and known.leader != -1 and preferred in known.isr:
                assert known.leader == preferred

    # --- what always holds

    @invariant()
    def every_partition_is_sound(self) -> None:
        live = self.image.brokers.keys()
        for topic in self.image.topics.values():
            assert sorted(topic.assignments) == list(range(len(topic.assignments)))
            for number, given in topic.assignments.items():
                known = self.image.partitions[TopicPartition(topic.topic, number)]
                self.check_partition(known, given, live)
        named = sum(len(topic.assignments) for topic in self.image.topics.values())
        assert len(self.image.partitions) == named

    def check_partition(
        self, known: PartitionRecord, given: Assignment, live: Collection[int]
    ) -> None:
        assert known.isr
        assert len(set(known.isr)) == len(known.isr)
        assert set(known.isr) <= set(given.replicas)
        assert len(set(given.replicas)) == len(given.replicas), "R1: two replicas on one broker"
        assert not set(given.adding) & set(given.removing)
        assert {*given.adding, *given.removing} <= set(given.replicas)
        if known.leader == -1:
            assert not set(known.isr) & set(live), "R7: somebody could lead"
            if known.topic in self.unclean_topics:
                assert not set(given.replicas) & set(live), "R5: somebody could lead"
            return
        assert known.leader in known.isr
        assert set(known.isr) <= set(live)
        staying = set(given.replicas) - set(given.removing)
        assert given == Assignment(given.replicas) or not staying <= set(known.isr)

    @invariant()
    def the_records_alone_tell_everything(self) -> None:
        fresh = ClusterImage()
        fresh.apply(Put(record) for record in self.store.values())
        assert vars(fresh) == vars(self.image)

    @invariant()
    def nothing_is_left_to_decide(self) -> None:
        if not self.shutting_down:
            assert settle_all(self.image, self.image.brokers.keys(), self.election_rules) == []


def test_random_lives_of_a_cluster() -> None:
    """R1, R5, R7, R8, E1: see the rules and invariants."""
    run_state_machine_as_test(
        ClusterMachine, settings=settings(max_examples=150, stateful_step_count=40)
    )
