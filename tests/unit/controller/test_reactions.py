"""What the controller does after failures, responses and requests in the store."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from penstock.controller.broker_updates import EPOCH_DURING_DELETE, ReplicaStop
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    Change,
    ConfigRecord,
    ControllerRecord,
    Delete,
    IsrChangeRecord,
    LogDirEventRecord,
    PreferredElectionRecord,
    Put,
    ReassignPartitionsRecord,
    TopicDeletionKey,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
from penstock.controller.reactions import ControllerReactions, ControlResponse, HandledFacts
from penstock.controller.reassignment import alter_partition_reassignments
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from tests.support.cluster.images import (
    CLEAN,
    add_topic,
    assignment,
    broker,
    check_committable,
    image_of,
    set_assignment,
    set_state,
    state,
)

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Controller:
    """The controller's image and reactions, with every delivery observed."""

    def __init__(self, *broker_ids: int, is_deletion_enabled: bool = True) -> None:
        self.image = image_of(*broker_ids)
        self.image.apply([Put(ControllerRecord(0, 0))])
        self.reactions = ControllerReactions(is_deletion_enabled)
        self.decide()

    def deliver(self, *changes: Change) -> None:
        self.reactions.observe(self.image, changes)
        self.image.apply(changes)

    def decide(self) -> ControllerResult[HandledFacts]:
        """Commits one decision."""
        result = self.reactions.decide(self.image, CLEAN)
        check_committable(result.changes)
        self.deliver(*result.changes)
        self.reactions.finish(result.response)
        return result

    def settle(self) -> None:
        while self.reactions.are_pending:
            self.decide()

    def respond(
        self,
        broker_id: int,
        *,
        partitions: dict[TopicPartition, ErrorCode] | None = None,
        stops: dict[TopicPartition, ErrorCode] | None = None,
        epoch: int = 1,
    ) -> None:
        response = ControlResponse(broker_id, epoch, partitions or {}, stops or {})
        self.reactions.observe_response(self.image, response)


# --- brokers


def test_nothing_is_pending_after_a_change_that_concerns_no_decision() -> None:
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0, 1))
    controller.deliver(Put(replace(state(controller.image, "t"), isr=(0,), partition_epoch=1)))
    assert not controller.reactions.are_pending


def test_a_failed_broker_loses_its_leaderships() -> None:
    """R7"""
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (1, 0))
    controller.deliver(Delete(BrokerKey(1)))
    result = controller.decide()
    assert state(controller.image, "t").leader == 0
    assert not result.response.refreshed
    assert not controller.reactions.are_pending


def test_settings_need_a_decision_while_replicas_outside_an_isr_may_lead() -> None:
    """`min.insync.replicas` may have been lowered."""
    controller = Controller(0, 1, 2)
    add_topic(controller.image, "t", (0, 1, 2))
    config = ConfigRecord((("topics", "t"),), {"min.insync.replicas": "1"})
    controller.deliver(Put(config))
    assert not controller.reactions.are_pending
    record = replace(state(controller.image, "t"), isr=(0,), eligible_leader_replicas=(1,))
    controller.deliver(Put(replace(record, partition_epoch=1)))
    controller.deliver(Put(ConfigRecord((("users", "u"),), {"x": "1"})))
    assert not controller.reactions.are_pending
    for change in (Put(config), Delete(config.key)):
        controller.deliver(change)
        assert controller.reactions.are_pending
        controller.decide()
        assert state(controller.image, "t").eligible_leader_replicas == ()
        controller.deliver(Put(replace(record, partition_epoch=5)))


def test_partitions_that_only_lost_an_offline_replica_are_announced_with_the_decision() -> None:
    """Brokers of Apache Kafka keep the offline replicas of a partition until its next update."""
    controller = Controller(0, 1, 2)
    add_topic(controller.image, "t", (1, 0), (1, 2))
    controller.deliver(Put(replace(state(controller.image, "t"), isr=(1,), partition_epoch=1)))
    for change in (Delete(BrokerKey(0)), Put(broker(0, epoch=2))):
        controller.deliver(change)
        assert controller.decide().response.changed_replicas == {T0}
    assert not controller.reactions.decide(controller.image, CLEAN).response.changed_replicas


def test_a_broker_gets_a_full_update_only_after_the_reaction_to_its_registration() -> None:
    """R7: it may have lost records, so it must not lead in its old epoch."""
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (1, 0))
    controller.deliver(Put(broker(1, epoch=2)))
    assert set(controller.reactions.awaiting) == {1}
    result = controller.decide()
    assert state(controller.image, "t").leader == 0
    assert result.response.refreshed == {1}
    assert not controller.reactions.awaiting


def test_a_broker_that_ends_after_the_decision_gets_no_update() -> None:
    controller = Controller(0, 1)
    controller.deliver(Put(broker(1, epoch=2)))
    result = controller.reactions.decide(controller.image, CLEAN)
    controller.deliver(*result.changes, Delete(BrokerKey(1)))
    assert result.response.refreshed == {1}
    assert not controller.reactions.finish(result.response)


def test_a_broker_that_registers_again_after_the_decision_is_decided_about_again() -> None:
    """R7: it may have lost records since."""
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (1, 0))
    controller.deliver(Delete(BrokerKey(0)), Put(broker(1, epoch=2)))
    result = controller.reactions.decide(controller.image, CLEAN)
    controller.deliver(*result.changes)
    controller.deliver(Delete(BrokerKey(1)), Put(broker(0, epoch=3)), Put(broker(1, epoch=3)))
    assert not controller.reactions.finish(result.response)
    assert set(controller.reactions.awaiting) == {0, 1}
    epoch = state(controller.image, "t").leader_epoch
    assert controller.decide().response.refreshed == {0, 1}
    assert state(controller.image, "t").leader_epoch > epoch


def test_a_decision_that_was_not_committed_is_made_again() -> None:
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (1, 0))
    controller.deliver(Put(broker(1, epoch=2)))
    first = controller.reactions.decide(controller.image, CLEAN)
    assert controller.decide() == first
    assert not controller.reactions.are_pending


def test_a_broker_in_controlled_shutdown_leads_again_after_its_restart() -> None:
    """R8"""
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (1, 0), (0, 1), (1,))
    request = ControlledShutdownRequest(1, 1)
    result = controller.reactions.controlled_shutdown(controller.image, request, CLEAN)
    controller.deliver(*result.changes)
    assert controller.reactions.rules(CLEAN).shutting_down == {1}
    assert [record.leader for record in controller.image.partitions_of("t")] == [0, 0, 1]
    assert result.stops == {1: [ReplicaStop(T1, 1, delete=False)]}
    controller.deliver(Delete(BrokerKey(1)))
    controller.settle()
    controller.deliver(Put(broker(1, epoch=2)))
    controller.settle()
    assert not controller.reactions.shutting_down
    assert state(controller.image, "t", 2).leader == 1


# --- offline replicas


def test_offline_replicas_leave_the_isr_and_are_stopped() -> None:
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0, 1), (0, 1))
    error = ErrorCode.KAFKA_STORAGE_ERROR
    controller.respond(0, partitions={T0: error, T1: ErrorCode.NONE})
    result = controller.decide()
    assert (state(controller.image, "t").leader, state(controller.image, "t").isr) == (1, (1,))
    assert state(controller.image, "t", 1).leader == 0
    assert result.stops == {0: [ReplicaStop(T0, 1, delete=False)]}
    controller.respond(0, partitions={T0: error})
    assert not controller.reactions.are_pending, "it is known already"
    controller.deliver(Put(broker(0, epoch=2)))
    assert not controller.reactions.offline_replicas


def test_an_old_response_is_ignored() -> None:
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0, 1))
    controller.respond(0, partitions={T0: ErrorCode.KAFKA_STORAGE_ERROR}, epoch=0)
    controller.respond(5, partitions={T0: ErrorCode.KAFKA_STORAGE_ERROR})
    controller.respond(0, partitions={TopicPartition("x", 0): ErrorCode.KAFKA_STORAGE_ERROR})
    assert not controller.reactions.are_pending


def test_a_replica_that_is_online_again_may_lead() -> None:
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0,))
    controller.respond(0, partitions={T0: ErrorCode.KAFKA_STORAGE_ERROR})
    controller.settle()
    assert state(controller.image, "t").leader == -1
    controller.respond(0, partitions={T0: ErrorCode.NONE})
    controller.settle()
    assert state(controller.image, "t").leader == 0


def test_a_log_directory_event_asks_the_broker_for_its_replicas() -> None:
    controller = Controller(0, 1)
    controller.deliver(Put(LogDirEventRecord(4, 1)), Put(IsrChangeRecord(7, (T0,))))
    result = controller.decide()
    assert result.response.refreshed == {1}
    assert not controller.image.log_dir_events
    assert not controller.image.isr_changes


# --- topic deletion


@pytest.fixture
def deleting() -> Controller:
    """Brokers 0 and 1 are up, 2 is down; the deletion of t is requested."""
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0, 1), (1, 2), configs={"retention.ms": "1"})
    controller.deliver(Put(TopicDeletionRecord("t")))
    return controller


def deleted(*keys: TopicPartition) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(keys, ErrorCode.NONE)


def test_live_replicas_are_deleted_at_once_and_others_when_their_broker_returns(
    deleting: Controller,
) -> None:
    result = deleting.decide()
    stops = [ReplicaStop(key, EPOCH_DURING_DELETE, delete=True) for key in (T0, T1)]
    assert result.changes == []
    assert result.stops == {0: stops[:1], 1: stops}
    deleting.respond(0, stops=deleted(T0))
    deleting.respond(1, stops=deleted(T0, T1))
    result = deleting.decide()
    assert (result.changes, result.stops) == ([], {})
    deleting.deliver(Put(broker(2)))
    result = deleting.decide()
    assert result.stops == {2: stops[1:]}
    deleting.respond(2, stops=deleted(T1))
    result = deleting.decide()
    assert result.changes[-2:] == [Delete(TopicKey("t")), Delete(TopicDeletionKey("t"))]
    assert not deleting.image.topics
    assert not deleting.image.partitions
    assert not deleting.image.configs
    assert not deleting.reactions.are_pending


def test_a_broker_that_fails_during_the_deletion_gets_it_again(deleting: Controller) -> None:
    deleting.decide()
    deleting.deliver(Put(broker(1, epoch=3)))
    deleting.respond(1, stops=deleted(T0, T1), epoch=1)
    result = deleting.decide()
    assert [stop.key for stop in result.stops[1]] == [T0, T1]
    assert 0 not in result.stops


def test_a_replica_that_cannot_be_deleted_is_retried_after_a_restart(deleting: Controller) -> None:
    deleting.decide()
    deleting.respond(1, stops={T0: ErrorCode.NONE, T1: ErrorCode.KAFKA_STORAGE_ERROR})
    assert deleting.decide().stops == {}
    deleting.deliver(Put(broker(1, epoch=3)))
    result = deleting.decide()
    assert [stop.key for stop in result.stops[1]] == [T1]


def test_a_replica_that_cannot_be_deleted_is_retried_when_its_disk_has_room(
    deleting: Controller,
) -> None:
    deleting.decide()
    deleting.respond(1, stops={T0: ErrorCode.NONE, T1: ErrorCode.KAFKA_STORAGE_ERROR})
    assert deleting.decide().stops == {}
    deleting.deliver(Put(LogDirEventRecord(4, 1)))
    assert [stop.key for stop in deleting.decide().stops[1]] == [T1]


def test_offline_replicas_are_deleted_too() -> None:
    """One that never had a log, for lack of room, must not keep the topic."""
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0, 1))
    controller.respond(1, partitions={T0: ErrorCode.KAFKA_STORAGE_ERROR})
    controller.decide()
    controller.deliver(Put(TopicDeletionRecord("t")))
    assert sorted(controller.decide().stops) == [0, 1]


def test_a_deletion_waits_for_reassignments(deleting: Controller) -> None:
    set_assignment(deleting.image, "t", Assignment((0, 1), adding=(1,)))
    set_state(deleting.image, "t", 0, (0,))
    assert deleting.decide().stops == {}
    done = replace(deleting.image.topics["t"])
    done = replace(done, assignments={**done.assignments, 0: Assignment((0, 1))})
    deleting.deliver(Put(done))
    assert sorted(deleting.decide().stops) == [0, 1]


def test_a_new_controller_deletes_everything_again(deleting: Controller) -> None:
    deleting.decide()
    deleting.respond(0, stops=deleted(T0))
    successor = ControllerReactions()
    result = successor.decide(deleting.image, CLEAN)
    assert sorted(result.stops) == [0, 1]


def test_requests_for_unknown_topics_are_removed() -> None:
    controller = Controller(0)
    controller.deliver(Put(TopicDeletionRecord("x")))
    assert controller.decide().changes == [Delete(TopicDeletionKey("x"))]


def test_requests_are_removed_without_delete_topic_enable() -> None:
    controller = Controller(0, 1, is_deletion_enabled=False)
    add_topic(controller.image, "t", (0, 1))
    controller.deliver(Put(TopicDeletionRecord("t")))
    assert controller.decide().changes == [Delete(TopicDeletionKey("t"))]
    assert controller.image.has_topic("t")


def test_a_topic_that_is_being_deleted_keeps_its_states(deleting: Controller) -> None:
    deleting.decide()
    before = state(deleting.image, "t")
    deleting.deliver(Delete(BrokerKey(0)))
    assert deleting.decide().changes == []
    assert state(deleting.image, "t") is before


# --- requests of other processes


def reassign(image: ClusterImage, *replicas: int) -> None:
    topics = [ReassignableTopic("t", [ReassignablePartition(0, list(replicas))])]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    image.apply(alter_partition_reassignments(image, request, CLEAN).changes)


def test_a_reassignment_in_the_store_stays_there_until_it_is_complete() -> None:
    """R6, R8"""
    controller = Controller(0, 1, 2)
    image = controller.image
    add_topic(image, "t", (0, 1), (0, 1))
    requested = {T0: (2, 1), T1: (1, 0), TopicPartition("x", 0): (0,)}
    controller.deliver(Put(ReassignPartitionsRecord(requested)))
    controller.settle()
    assert assignment(image, "t") == Assignment((2, 1, 0), (2,), (0,))
    assert assignment(image, "t", 1) == Assignment((1, 0)), "only the order changes"
    assert image.reassign_partitions == ReassignPartitionsRecord({T0: (2, 1)})
    controller.deliver(Put(replace(state(image, "t"), isr=(0, 1, 2), partition_epoch=2)))
    controller.deliver(Put(IsrChangeRecord(1, (T0,))))
    controller.settle()
    assert assignment(image, "t") == Assignment((2, 1))
    assert image.reassign_partitions is None


@pytest.mark.parametrize("replicas", [(), (1, 1), (-1, 0)])
def test_an_impossible_reassignment_in_the_store_is_removed(replicas: tuple[int, ...]) -> None:
    controller = Controller(0, 1)
    add_topic(controller.image, "t", (0, 1))
    controller.deliver(Put(ReassignPartitionsRecord({T0: replicas})))
    controller.settle()
    assert controller.image.reassign_partitions is None
    assert assignment(controller.image, "t") == Assignment((0, 1))


def test_a_request_replaces_a_reassignment_in_the_store() -> None:
    controller = Controller(0, 1, 2)
    image = controller.image
    add_topic(image, "t", (0, 1), (0, 1))
    requested = {T0: (2, 1), T1: (2, 1)}
    controller.deliver(Put(ReassignPartitionsRecord(requested)))
    controller.settle()
    reassign(image, 0, 2)
    assert assignment(image, "t").replicas == (0, 2, 1)
    assert image.reassign_partitions == ReassignPartitionsRecord({T1: (2, 1)})


def test_a_preferred_election_in_the_store() -> None:
    """R6, R8"""
    controller = Controller(0, 1)
    image = controller.image
    add_topic(image, "t", (0, 1), (0, 1))
    set_state(image, "t", 1, (1, 0))
    set_state(image, "t", 1, (1,), partition=1)
    unknown = TopicPartition("x", 0)
    controller.deliver(Put(PreferredElectionRecord((T0, T1, unknown))))
    controller.settle()
    assert [record.leader for record in image.partitions_of("t")] == [0, 1]
    assert image.preferred_election is None


def test_a_topic_that_another_process_has_assigned_gets_states() -> None:
    controller = Controller(0, 1)
    assignments = {0: Assignment((2, 1)), 1: Assignment((2,))}
    controller.deliver(Put(TopicRecord("t", UUID(int=5), assignments)))
    controller.settle()
    assert state(controller.image, "t").leader == 1
    assert T1 not in controller.image.partitions
    controller.deliver(Put(broker(2)))
    controller.settle()
    assert state(controller.image, "t", 1).leader == 2


def test_topics_without_an_id_get_one() -> None:
    image = image_of(0)
    add_topic(image, "t", (0,), topic_id=UUID(int=0))
    add_topic(image, "u", (0,), topic_id=UUID(int=0))
    ids = iter([UUID(int=0), UUID(int=7 << 64), UUID(int=8 << 64)])
    reactions = ControllerReactions(new_topic_id=lambda: next(ids))
    image.apply(reactions.decide(image, CLEAN).changes)
    assert {topic.topic_id.int >> 64 for topic in image.topics.values()} == {7, 8}
    assert set(image.topic_names.values()) == {"t", "u"}


def test_two_changes_of_a_partition_in_one_decision_are_one_step() -> None:
    controller = Controller(0, 1, 2)
    image = controller.image
    add_topic(image, "t", (0, 1))
    before = state(image, "t")
    controller.deliver(Delete(BrokerKey(0)), Put(ReassignPartitionsRecord({T0: (1, 2)})))
    controller.decide()
    after = state(image, "t")
    assert (after.leader_epoch, after.partition_epoch) == (
        before.leader_epoch + 1,
        before.partition_epoch + 1,
    )
    assert assignment(image, "t") == Assignment((1, 2, 0), (2,), (0,))
