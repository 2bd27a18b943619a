"""The controller sends each broker one update after an event."""

import pytest
from msgspec.structs import replace

from penstock.controller.broker_updates import (
    EPOCH_DURING_DELETE,
    BrokerUpdate,
    PartitionUpdate,
    ReplicaStop,
    broker_updates,
    full_update,
    full_updates,
    metadata_changes,
)
from penstock.controller.control_requests import (
    ControlRequests,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    Change,
    ControllerRecord,
    Delete,
    PartitionRecord,
    Put,
    TopicDeletionKey,
    TopicDeletionRecord,
    TopicKey,
)
from penstock.controller.received_updates import (
    update_of_leader_and_isr,
)
from penstock.controller.topic_deletion import delete_topic
from penstock.controller.topics import new_topic
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.support.cluster.images import (
    CLEAN,
    add_topic,
    broker,
    broker_down,
    broker_up,
    image_of,
    state,
)

T0 = TopicPartition("t", 0)


def cluster(*broker_ids: int) -> ClusterImage:
    image = image_of(*broker_ids)
    image.apply([Put(ControllerRecord(1, 0))])
    return image


def keys(update: BrokerUpdate) -> list[TopicPartition]:
    return [partition.record.key for partition in update.partitions]


def test_a_new_topic_is_announced_to_all_brokers_and_created_by_its_replicas() -> None:
    image = cluster(0, 1, 2)
    changes = new_topic(image, "t", TopicId(int=5), [(0, 1), (1, 0)], {})
    updates = broker_updates(image, changes)
    assert sorted(updates) == [0, 1, 2]
    assert keys(updates[0]) == keys(updates[1]) == [T0, TopicPartition("t", 1)]
    assert all(partition.is_new for partition in updates[0].partitions)
    assert updates[2].partitions == ()
    assert all(update.metadata == changes for update in updates.values())
    assert updates[0].metadata is updates[2].metadata
    assert updates[0][:3] == (1, 7, 1)
    assert not any(update.is_full or update.stops for update in updates.values())


def test_the_isr_of_a_leader_is_announced_but_not_sent_back_to_the_replicas() -> None:
    image = cluster(0, 1)
    add_topic(image, "t", (0, 1))
    shrunk: list[Change] = [Put(replace(state(image, "t"), isr=(0,), partition_epoch=1))]
    updates = broker_updates(image, shrunk)
    assert [update.partitions for update in updates.values()] == [(), ()]
    assert [update.metadata for update in updates.values()] == [shrunk, shrunk]


def test_settings_alone_concern_no_broker() -> None:
    image = cluster(0)
    assert broker_updates(image, [Put(ControllerRecord(1, 0))]) == {}


def test_the_replicas_of_a_failed_broker_move_and_the_broker_gets_nothing() -> None:
    image = cluster(0, 1, 2)
    add_topic(image, "t", (0, 1), (1, 2), (0, 2))
    updates = broker_updates(image, broker_down(image, [0], CLEAN))
    assert sorted(updates) == [1, 2]
    assert keys(updates[1]) == [T0]
    assert keys(updates[2]) == [TopicPartition("t", 2)]
    assert not updates[1].partitions[0].is_new
    assert Delete(BrokerKey(0)) in updates[1].metadata


@pytest.mark.parametrize("registered", [(1,), (1, 2)])
def test_a_broker_that_registers_gets_nothing_before_the_controller_has_reacted(
    registered: tuple[int, ...],
) -> None:
    image = cluster(*registered)
    add_topic(image, "t", (1, 2), (1,))
    updates = broker_updates(image, [Put(broker(2, 5))])
    assert list(updates) == [1]
    assert not updates[1].is_full
    assert updates[1].metadata == [Put(broker(2, 5))]


def test_the_full_update_of_a_broker() -> None:
    image = cluster(1)
    add_topic(image, "t", (1, 2), (1,))
    image.apply(broker_up(image, broker(2, 5), CLEAN))
    update = full_update(image, 2)
    assert update.is_full
    assert update.broker_epoch == 5
    assert keys(update) == [T0]


def test_a_reassignment_creates_new_replicas_and_deletes_removed_ones() -> None:
    image = cluster(0, 1, 2)
    topic_id = add_topic(image, "t", (0, 1))
    during = Assignment((1, 2, 0), adding=(2,), removing=(0,))
    topic = replace(image.topics["t"], assignments={0: during})
    moved = replace(state(image, "t"), leader_epoch=1, partition_epoch=1)
    started: list[Change] = [Put(topic), Put(moved)]
    updates = broker_updates(image, started)
    assert updates[2].partitions == [PartitionUpdate(moved, during, topic_id, True)]
    assert updates[0].partitions == [PartitionUpdate(moved, during, topic_id, False)]
    image.apply(started)
    after = Assignment((1, 2))
    done = replace(moved, leader=1, isr=(1, 2), leader_epoch=2, partition_epoch=2)
    updates = broker_updates(image, [Put(replace(topic, assignments={0: after})), Put(done)])
    assert updates[0].stops == [ReplicaStop(T0, 2, delete=True)]
    assert updates[0].partitions == ()
    assert updates[1].partitions == [PartitionUpdate(done, after, topic_id, False)]
    assert updates[1].stops == updates[2].stops == ()


def test_replicas_of_a_topic_that_is_deleted_at_once_are_deleted() -> None:
    image = cluster(0, 1)
    add_topic(image, "t", (0, 1), (1,))
    updates = broker_updates(image, delete_topic(image, "t"))
    assert updates[0].stops == [ReplicaStop(T0, EPOCH_DURING_DELETE, delete=True)]
    assert [stop.key.partition for stop in updates[1].stops] == [0, 1]
    assert updates[0].metadata[-1] == Delete(TopicKey("t"))


def test_additional_stops_are_sent_even_without_changes() -> None:
    image = cluster(0, 1)
    stop = ReplicaStop(T0, 3, delete=False)
    updates = broker_updates(image, [], {0: [stop], 9: [stop]})
    assert updates == {0: BrokerUpdate(1, 7, 1, metadata=[], stops=[stop])}


def test_a_new_controller_sends_everything_to_all() -> None:
    image = cluster(0, 1)
    add_topic(image, "t", (0, 1), (1,), (0,))
    updates = full_updates(image)
    assert keys(updates[0]) == [T0, TopicPartition("t", 2)]
    assert keys(updates[1]) == [T0, TopicPartition("t", 1)]
    assert updates[0].metadata is updates[1].metadata
    assert len(updates[0].metadata) == 2 + 1 + 3
    assert updates == {0: full_update(image, 0), 1: full_update(image, 1)}


def test_a_full_update_removes_what_it_does_not_contain() -> None:
    image = cluster(0, 1)
    add_topic(image, "t", (0, 1))
    current = cluster(0, 2)
    add_topic(current, "t", (0, 1), topic_id=image.topics["t"].topic_id)
    add_topic(current, "gone", (2,))
    current.apply(metadata_changes(current, full_update(image, 0)))
    assert current.brokers == image.brokers
    assert current.topics == image.topics
    assert current.partitions == image.partitions
    assert current.controller_epoch == 7
    changes: list[Change] = [Put(state(image, "t"))]
    assert metadata_changes(current, BrokerUpdate(1, 7, 1, metadata=changes)) is changes


def test_a_full_leader_and_isr_request_does_not_change_the_metadata() -> None:
    image = cluster(0, 1)
    add_topic(image, "t", (0, 1))
    requests = ControlRequests(image, "PLAINTEXT").of(full_update(image, 1))
    (request,) = [request for request in requests if isinstance(request, LeaderAndIsrRequest)]
    update = update_of_leader_and_isr(request)
    assert update.is_full
    assert metadata_changes(image, update) == ()


def test_a_topic_disappears_when_its_deletion_is_requested() -> None:
    image = cluster(0, 1, 2)
    add_topic(image, "t", (0, 1), (1, 0))
    requested: list[Change] = [Put(TopicDeletionRecord("t"))]
    updates = broker_updates(image, requested)
    deletions: list[Change] = [
        Delete(T0),
        Delete(TopicPartition("t", 1)),
        Delete(TopicKey("t")),
    ]
    assert sorted(updates) == [0, 1, 2]
    assert all(update == BrokerUpdate(1, 7, 1, (), deletions) for update in updates.values())
    image.apply(requested)
    assert full_updates(image)[0].partitions == []
    assert [c.record for c in full_updates(image)[0].metadata if isinstance(c, Put)] == [
        broker(0),
        broker(1),
        broker(2),
    ]
    completed = [*delete_topic(image, "t"), Delete(TopicDeletionKey("t"))]
    assert broker_updates(image, completed) == {}


def test_a_topic_reappears_when_its_deletion_is_not_possible() -> None:
    image = cluster(0)
    add_topic(image, "t", (0,))
    image.apply([Put(TopicDeletionRecord("t"))])
    updates = broker_updates(image, [Delete(TopicDeletionKey("t"))])
    assert updates[0].metadata == [Put(image.topics["t"]), Put(state(image, "t"))]


def test_a_reassignment_of_a_topic_that_is_being_deleted_continues() -> None:
    image = cluster(0, 1)
    add_topic(image, "t", (0,))
    image.apply([Put(TopicDeletionRecord("t"))])
    moved = replace(state(image, "t"), leader_epoch=1, partition_epoch=1)
    topic = replace(image.topics["t"], assignments={0: Assignment((1, 0), (1,), (0,))})
    updates = broker_updates(image, [Put(topic), Put(moved)])
    assert keys(updates[0]) == keys(updates[1]) == [T0]
    assert updates[0].metadata == updates[1].metadata == []


def test_one_event_with_ten_thousand_partitions_is_one_update_for_each_broker() -> None:
    image = cluster(0, 1, 2)
    add_topic(image, "t", *([(0, 1, 2), (1, 2, 0), (2, 0, 1)] * 3334))
    updates = broker_updates(image, broker_down(image, [2], CLEAN))
    assert [len(update.partitions) for update in updates.values()] == [10_002, 10_002]
    puts = [c for c in updates[0].metadata if isinstance(c, Put)]
    assert len([c for c in puts if isinstance(c.record, PartitionRecord)]) == 10_002


def test_partitions_with_other_offline_replicas_are_announced_again() -> None:
    image = cluster(0, 1, 2)
    add_topic(image, "t", (0, 1), (1, 2))
    updates = broker_updates(image, [], changed_replicas=[T0, TopicPartition("deleted", 0)])
    assert sorted(updates) == [0, 1, 2]
    assert updates[2].metadata == [Put(state(image, "t"))]
    assert not updates[0].partitions, "replicas know their states already"
