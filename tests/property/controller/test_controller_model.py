"""Random cluster histories whose invariants are checked after every step (R1, R5, R7, R8).

The machine acts as the host: it commits the controller's decisions to a store (a plain dict) and
applies them to the image. The invariants of changes and states are defined below.
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

from penstock.controller.election import (
    PREFERRED,
    UNCLEAN,
    balance_leaders,
    controlled_shutdown,
    elect_leaderless,
    elect_leaders,
    update_partition_states,
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
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.placement import PlacementStart
from penstock.controller.reassignment import alter_partition_reassignments
from penstock.controller.topic_deletion import delete_topic, delete_topics
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
from tests.support.cluster.controller_start import become_controller, register_as_controller
from tests.support.cluster.images import broker, broker_down, broker_up, check_committable, ids

BROKERS = range(5)
RACKS = {0: "a", 1: "a", 2: "b", 3: "b", 4: None}
TOPICS = ("t", "u")
IDS = st.sampled_from(BROKERS)
REPLICAS = st.lists(IDS, min_size=1, max_size=4, unique=True)
ANY_REPLICAS = st.one_of(REPLICAS, REPLICAS, REPLICAS, st.lists(st.integers(0, 5), max_size=3))
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
        """`eligible`: possible leaders besides the last ISR. `unclean`: any replica may lead."""
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
                self.check_step(before.get(record.key), record, allowed, free)
        for change in changes:
            if isinstance(change, Put) and isinstance(change.record, TopicRecord):
                previous = assignments.get(change.record.topic, {})
                for number, assignment in change.record.assignments.items():
                    if (old := previous.get(number)) == assignment:
                        continue
                    key = TopicPartition(change.record.topic, number)
                    assert key in changed
                    arrived = old and assignment.replicas == tuple(
                        replica for replica in old.replicas if replica not in old.removing
                    )
                    if arrived and assignment == Assignment(assignment.replicas):
                        assert set(assignment.replicas) <= set(self.image.partitions[key].isr)

    def check_step(
        self,
        before: PartitionRecord | None,
        after: PartitionRecord,
        eligible: set[int],
        unclean: bool,
    ) -> None:
        assert after.controller_epoch == self.image.controller_epoch
        if before is None:
            assert (after.leader_epoch, after.partition_epoch) == (0, 0)
            return
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch in (before.leader_epoch, before.leader_epoch + 1)
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
        if after.leader == -1:
            assert set(after.isr) <= set(before.isr)
        elif after.leader not in {*before.isr, *eligible}:
            assert unclean, "R5: a leader from outside the ISR"
            assert after.isr == (after.leader,), "R5: nobody else has what it has"

    # --- brokers

    @initialize(first=IDS, missing=st.none() | IDS, replicas=st.tuples(REPLICAS, REPLICAS))
    def begin(self, first: int, missing: int | None, replicas: tuple[list[int], list[int]]) -> None:
        self.start_controller(first)
        for broker_id in BROKERS:
            if broker_id not in (first, missing):
                self.commit(self.up(broker_id))
        for name, brokers in zip(TOPICS, replicas, strict=True):
            self.create_topic_with_replicas(name, brokers)

    def start_controller(self, broker_id: int) -> None:
        self.shutting_down.discard(broker_id)
        record = broker(broker_id, self.next_epoch(), RACKS[broker_id])
        changes = register_as_controller(
            self.image,
            record,
            login_secret=b"secret",
            cluster_id="c",
            features={},
            now_ms=0,
            rules=self.election_rules,
        )
        self.epoch = max(self.epoch, self.image.controller_epoch + 1)
        self.commit(changes)

    @rule(broker_id=IDS)
    def broker_starts_or_restarts_unnoticed(self, broker_id: int) -> None:
        self.commit(self.up(broker_id))

    @rule(broker_id=IDS)
    def controller_restarts(self, broker_id: int) -> None:
        self.start_controller(broker_id)

    @rule(failed_brokers=st.sets(IDS, min_size=1, max_size=3))
    def brokers_fail(self, failed_brokers: set[int]) -> None:
        """R7"""
        changes = broker_down(self.image, sorted(failed_brokers), self.election_rules)
        self.shutting_down -= failed_brokers
        self.commit(changes)

    @rule(failed_brokers=st.sets(IDS, max_size=2), data=st.data())
    def brokers_and_controller_fail(self, failed_brokers: set[int], data: st.DataObject) -> None:
        """R6, R7: registrations vanish without a decision; the next controller handles them."""
        remaining_brokers = sorted(self.image.brokers.keys() - failed_brokers)
        if not remaining_brokers:
            return
        vanished = sorted(self.image.brokers.keys() & failed_brokers)
        self.commit([Delete(self.image.brokers[broker_id].key) for broker_id in vanished])
        self.shutting_down -= failed_brokers
        chosen = data.draw(st.sampled_from(remaining_brokers))
        self.commit(become_controller(self.image, chosen, 0, self.election_rules))

    @rule(broker_id=IDS)
    def broker_requests_controlled_shutdown(self, broker_id: int) -> None:
        """R8"""
        request = ControlledShutdownRequest(broker_id)
        changes, response, _ = controlled_shutdown(self.image, request, self.election_rules)
        assert (response.error_code == ErrorCode.NONE) == (broker_id in self.image.brokers)
        if response.error_code == ErrorCode.NONE:
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

    @rule(name=NAMES, replicas=ANY_REPLICAS)
    def create_topic_with_replicas(self, name: str, replicas: list[int]) -> None:
        assignments = [CreatableReplicaAssignment(0, replicas)]
        code = self.create(CreatableTopic(name, -1, -1, assignments), 0)
        if len(set(replicas)) < len(replicas):
            assert code != ErrorCode.NONE

    def create(self, topic: CreatableTopic, start: int) -> ErrorCode:
        rules = NewTopicRules(
            1, 1, lambda _configs: None, self.new_topic_id, PlacementStart(start, start)
        )
        changes, response, _ = create_topics(self.image, CreateTopicsRequest(topics=[topic]), rules)
        self.commit(changes)
        return ErrorCode(response.topics[0].error_code)

    @rule(name=NAMES, count=st.integers(0, 4))
    def add_partitions(self, name: str, count: int) -> None:
        """M1"""
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, count, None)])
        self.commit(create_partitions(self.image, request, PlacementStart(0, 0)).changes)

    @rule(name=NAMES, replicas=ANY_REPLICAS)
    def delete_topic_and_make_it_again(self, name: str, replicas: list[int]) -> None:
        self.commit(delete_topics(self.image, DeleteTopicsRequest(topic_names=[name])).changes)
        assert not self.image.has_topic(name)
        if self.image.is_deleting(name):
            deletion = Delete(self.image.topic_deletions[name].key)
            self.commit([*delete_topic(self.image, name), deletion])
        self.create_topic_with_replicas(name, replicas)

    @rule(name=NAMES)
    def switch_unclean_election(self, name: str) -> None:
        """R5"""
        self.unclean_topics ^= {name}
        self.commit(elect_leaderless(self.image, self.election_rules))

    # --- partitions

    def draw_partition(self, data: st.DataObject) -> TopicPartition:
        return data.draw(st.sampled_from(sorted(self.image.partitions)))

    def assignment(self, key: TopicPartition) -> Assignment:
        return self.image.topics[key.topic].assignments[key.partition]

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data(), replicas=ANY_REPLICAS, factor_change=st.sampled_from([True, True, False]))
    def reassign(self, data: st.DataObject, replicas: list[int], factor_change: bool) -> None:
        """R8"""
        self.move(self.draw_partition(data), replicas, factor_change)

    @precondition(lambda self: self.moving())
    @rule(data=st.data())
    def cancel_reassignment(self, data: st.DataObject) -> None:
        """R8: all added replicas are removed again."""
        key = data.draw(st.sampled_from(self.moving()))
        adding = set(self.assignment(key).adding)
        if self.move(key, None, False) == ErrorCode.NONE:
            assert not adding & set(self.assignment(key).replicas)
            assert key not in self.moving()

    def moving(self) -> list[TopicPartition]:
        return [
            key
            for key in sorted(self.image.partitions)
            if self.assignment(key) != Assignment(self.assignment(key).replicas)
        ]

    def move(self, key: TopicPartition, to: list[int] | None, factor_change: bool) -> ErrorCode:
        topics = [ReassignableTopic(key.topic, [ReassignablePartition(key.partition, to)])]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=factor_change, topics=topics
        )
        before, led = self.assignment(key), self.image.partitions[key].leader != -1
        changes, response, _ = alter_partition_reassignments(
            self.image, request, self.election_rules
        )
        self.commit(changes)
        code = ErrorCode(response.responses[0].partitions[0].error_code)
        if code == ErrorCode.NONE and to is not None:
            after = self.assignment(key)
            assert tuple(r for r in after.replicas if r not in after.removing) == tuple(to)
        if code != ErrorCode.NONE:
            assert self.assignment(key) == before
        assert not led or self.image.partitions[key].leader != -1, "R7: it was led"
        return code

    @precondition(lambda self: self.led())
    @rule(data=st.data())
    def leader_takes_in_all_that_are_up(self, data: st.DataObject) -> None:
        """R3, R8: afterwards no reassignment between live brokers is pending."""
        key = data.draw(st.sampled_from(self.led()))
        live = self.image.brokers.keys() - self.shutting_down
        new_isr = {*self.assignment(key).replicas} & live | {self.image.partitions[key].leader}
        code = self.propose_isr(key, sorted(new_isr))
        assert code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
        if not self.shutting_down:
            staying = {*self.assignment(key).replicas} - {*self.assignment(key).removing}
            assert key not in self.moving() or not staying <= live

    def led(self) -> list[TopicPartition]:
        return sorted(k for k, partition in self.image.partitions.items() if partition.leader != -1)

    @precondition(lambda self: self.led())
    @rule(data=st.data(), stale=st.sampled_from([(0, 0), (0, 0), (0, 1), (0, -1), (-1, 0), (1, 0)]))
    def leader_changes_its_isr(self, data: st.DataObject, stale: tuple[int, int]) -> None:
        """R3, R4: a request with outdated epochs changes nothing."""
        key = data.draw(st.sampled_from(self.led()))
        partition = self.image.partitions[key]
        assignment = self.assignment(key)
        isr = sorted({partition.leader, *data.draw(st.sets(st.sampled_from(assignment.replicas)))})
        code = self.propose_isr(key, isr, *stale)
        after = self.image.partitions[key]
        if stale != (0, 0):
            is_same = set(isr) == set(partition.isr) and not partition.leader_recovery_state
            assert (stale == (0, -1) and is_same) == (code == ErrorCode.NONE)
            assert after is partition
        elif code == ErrorCode.NONE and after is not partition:
            assert after.leader == partition.leader
            assert set(after.isr) <= set(isr)
            finished = self.assignment(key) != assignment
            assert finished == (after.leader_epoch > partition.leader_epoch)

    def propose_isr(
        self, key: TopicPartition, isr: list[int], leader_epoch: int = 0, partition_epoch: int = 0
    ) -> ErrorCode:
        current = self.image.partitions[key]
        brokers = self.image.brokers
        members = [BrokerState(b, brokers[b].epoch if b in brokers else -1) for b in isr]
        partition = AlterPartitionRequestPartitionData(
            key.partition,
            current.leader_epoch + leader_epoch,
            [],
            members,
            0,
            current.partition_epoch + partition_epoch,
        )
        topic = AlterPartitionRequestTopicData(
            "", self.image.topics[key.topic].topic_id, [partition]
        )
        request = AlterPartitionRequest(current.leader, brokers[current.leader].epoch, [topic])
        changes, response, _ = alter_partition(self.image, request, self.election_rules)
        self.commit(changes, eligible={key: set(isr)})
        return ErrorCode(response.topics[0].partitions[0].error_code)

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data(), election=st.sampled_from([PREFERRED, UNCLEAN]))
    def elect(self, data: st.DataObject, election: int) -> None:
        """R5, R8"""
        key = self.draw_partition(data)
        topics = [ElectLeadersTopicPartitions(key.topic, [key.partition])]
        changes = elect_leaders(
            self.image, ElectLeadersRequest(election, topics), self.election_rules
        )
        self.commit(changes.changes, unclean=election == UNCLEAN)

    @rule(percentage=st.sampled_from([0, 10, 50]))
    def balance(self, percentage: int) -> None:
        """R8: afterwards each preferred replica that is in sync leads."""
        self.commit(balance_leaders(self.image, percentage, self.election_rules))
        for key, partition in self.image.partitions.items():
            assignment = self.image.topics[key.topic].assignments[key.partition]
            preferred = assignment.replicas[0]
            settled = not assignment.adding and not assignment.removing and not self.shutting_down
            if (
                percentage == 0
                and settled
                and partition.leader != -1
                and preferred in partition.isr
            ):
                assert partition.leader == preferred

    # --- invariants

    @invariant()
    def every_partition_is_sound(self) -> None:
        live = self.image.brokers.keys()
        for topic in self.image.topics.values():
            assert sorted(topic.assignments) == list(range(len(topic.assignments)))
            for number, assignment in topic.assignments.items():
                partition = self.image.partitions[TopicPartition(topic.topic, number)]
                self.check_partition(partition, assignment, live)
        named = sum(len(topic.assignments) for topic in self.image.topics.values())
        assert len(self.image.partitions) == named

    def check_partition(
        self, partition: PartitionRecord, assignment: Assignment, live: Collection[int]
    ) -> None:
        assert partition.isr
        assert len(set(partition.isr)) == len(partition.isr)
        assert set(partition.isr) <= set(assignment.replicas)
        assert len(set(assignment.replicas)) == len(assignment.replicas), (
            "R1: two replicas on one broker"
        )
        assert not set(assignment.adding) & set(assignment.removing)
        assert {*assignment.adding, *assignment.removing} <= set(assignment.replicas)
        if partition.leader == -1:
            assert not set(partition.isr) & set(live), "R7: somebody could lead"
            if partition.topic in self.unclean_topics:
                assert not set(assignment.replicas) & set(live), "R5: somebody could lead"
            return
        assert partition.leader in partition.isr
        assert set(partition.isr) <= set(live)
        staying = set(assignment.replicas) - set(assignment.removing)
        assert assignment == Assignment(assignment.replicas) or not staying <= set(partition.isr)

    @invariant()
    def the_records_alone_tell_everything(self) -> None:
        fresh = ClusterImage()
        fresh.apply(Put(record) for record in self.store.values())
        assert vars(fresh) == vars(self.image)

    @invariant()
    def nothing_is_left_to_decide(self) -> None:
        if not self.shutting_down:
            assert (
                update_partition_states(self.image, self.image.brokers.keys(), self.election_rules)
                == []
            )


def test_random_cluster_histories() -> None:
    """R1, R5, R7, R8, E1: see the rules and invariants."""
    run_state_machine_as_test(
        ClusterMachine, settings=settings(max_examples=100, stateful_step_count=40)
    )
