"""Merged control requests have the effect of the requests that they replace."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from penstock.controller.broker_updates import ReplicaStop, broker_updates, full_update
from penstock.controller.control_merging import merge
from penstock.controller.control_requests import (
    ControlRequest,
    ControlRequests,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    Change,
    ControllerRecord,
    Delete,
    PartitionRecord,
    Put,
    TopicKey,
    TopicRecord,
)
from penstock.controller.received_updates import (
    update_of_leader_and_isr,
    update_of_stop_replica,
    update_of_update_metadata,
)
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from penstock.protocol.messages.stop_replica import StopReplicaRequest
from penstock.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.cluster.images import image_of

_BROKER = 1


class _Controller:
    """The controller's image, whose changes become requests to broker 1."""

    def __init__(self) -> None:
        self.image = image_of(0, 1, 2)
        self.image.apply([Put(ControllerRecord(0, 0))])
        self._next_id = 0

    def commit(
        self, changes: Sequence[Change], stops: Sequence[ReplicaStop] = ()
    ) -> list[ControlRequest]:
        updates = broker_updates(self.image, changes, {_BROKER: stops})
        self.image.apply(changes)
        update = updates.get(_BROKER)
        return [] if update is None else ControlRequests(self.image, "PLAINTEXT").of(update)

    def full(self) -> list[ControlRequest]:
        update = full_update(self.image, _BROKER)
        return ControlRequests(self.image, "PLAINTEXT").of(update)

    def create(self, topic: str, partitions: int = 1) -> list[ControlRequest]:
        self._next_id += 1
        assignments = {n: Assignment((1, 2)) for n in range(partitions)}
        return self.commit(
            [
                Put(TopicRecord(topic, UUID(int=self._next_id), assignments)),
                *(Put(PartitionRecord(topic, n, 1, 0, (1, 2), 7, 0)) for n in assignments),
            ]
        )

    def delete(self, topic: str) -> list[ControlRequest]:
        partitions = [record.key for record in self.image.partitions_of(topic)]
        return self.commit([*map(Delete, partitions), Delete(TopicKey(topic))])

    def elect(self, topic: str, partition: int, leader: int) -> list[ControlRequest]:
        state = self.image.partitions[TopicPartition(topic, partition)]
        epochs = state.leader_epoch + 1, state.partition_epoch + 1
        return self.commit(
            [Put(PartitionRecord(topic, partition, leader, epochs[0], (1, 2), 7, epochs[1]))]
        )


class _Broker:
    """What broker 1 knows after the requests that it has received."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.replicas: dict[TopicPartition, tuple[TopicId, int, int]] = {}

    def receive(self, requests: Sequence[ControlRequest]) -> None:
        for request in requests:
            match request:
                case LeaderAndIsrRequest():
                    for state in update_of_leader_and_isr(request).partitions:
                        record = state.record
                        self.replicas[record.key] = (
                            state.topic_id,
                            record.leader,
                            record.leader_epoch,
                        )
                case UpdateMetadataRequest():
                    self.image.apply(update_of_update_metadata(request, self.image).metadata)
                case StopReplicaRequest():
                    for stop in update_of_stop_replica(request).stops:
                        self.replicas.pop(stop.key, None)

    def state(self) -> object:
        image = self.image
        return self.replicas, image.brokers, image.topics, image.partitions


def test_the_last_state_of_a_partition_counts() -> None:
    controller = _Controller()
    merged = merge(controller.create("t", 2), controller.elect("t", 0, 2))
    assert merged is not None
    leader_and_isr, update_metadata = merged
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert isinstance(update_metadata, UpdateMetadataRequest)
    (topic,) = leader_and_isr.topic_states
    states = [(s.partition_index, s.leader, s.leader_epoch) for s in topic.partition_states]
    assert states == [(0, 2, 1), (1, 1, 0)]
    assert all(state.is_new for state in topic.partition_states), "its log must still be created"
    assert sum(len(topic.partition_states) for topic in update_metadata.topic_states) == 2


def test_a_full_request_replaces_earlier_ones() -> None:
    controller = _Controller()
    earlier = controller.create("t")
    merged = merge(earlier, controller.full())
    assert merged is not None
    assert [getattr(request, "type", None) for request in merged] == [2, 2]
    assert isinstance(merged[0], UpdateMetadataRequest)


def test_a_replica_that_is_stopped_is_not_started_before_the_stop() -> None:
    controller = _Controller()
    controller.create("t")
    stop = controller.commit([], [ReplicaStop(TopicPartition("t", 0), 0, delete=False)])
    assert merge(stop, controller.elect("t", 0, 2)) is None
    other = merge(stop, controller.create("other"))
    assert other is not None
    assert len(other) == 3


def test_a_stop_that_deletes_is_kept() -> None:
    controller = _Controller()
    controller.create("t")
    key = TopicPartition("t", 0)
    first = controller.commit([], [ReplicaStop(key, 0, delete=True)])
    second = controller.commit([], [ReplicaStop(key, 1, delete=False)])
    merged = merge(first, second)
    assert merged is not None
    (stop,) = merged
    assert isinstance(stop, StopReplicaRequest)
    assert update_of_stop_replica(stop).stops == [ReplicaStop(key, 1, delete=True)]


def test_other_epochs_are_not_merged() -> None:
    controller = _Controller()
    first = controller.create("t")
    second = controller.elect("t", 0, 2)
    for request in second:
        request.broker_epoch += 1
    assert merge(first, second) is None


@pytest.mark.parametrize("seed", range(60))
def test_merging_has_the_same_effect_as_sending_all(seed: int) -> None:
    rng = random.Random(seed)
    controller, sequential, merging = _Controller(), _Broker(), _Broker()
    queue: list[list[ControlRequest]] = []
    for _ in range(40):
        topics = list(controller.image.topics)
        match rng.randrange(8):
            case 0 | 1:
                name = f"t{rng.randrange(4)}"
                requests = [] if name in topics else controller.create(name, rng.randrange(1, 4))
            case 2 if topics:
                requests = controller.delete(rng.choice(topics))
            case 3:
                requests = controller.full()
            case _ if topics:
                topic = rng.choice(topics)
                count = len(controller.image.topics[topic].assignments)
                requests = controller.elect(topic, rng.randrange(count), rng.choice((1, 2)))
            case _:
                requests = []
        if not requests:
            continue
        sequential.receive(requests)
        merged = merge(queue[-1], requests) if queue else None
        if merged is None:
            queue.append(requests)
        else:
            queue[-1] = merged
        if rng.random() < 0.1:
            for waiting in queue:
                merging.receive(waiting)
            queue.clear()
            assert merging.state() == sequential.state()
    for waiting in queue:
        merging.receive(waiting)
    assert merging.state() == sequential.state()
