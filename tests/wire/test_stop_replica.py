"""The controller removes replicas: by StopReplica (5), or because LeaderAndIsr (4) lacks them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.controller.broker_updates import PartitionUpdate
from penstock.controller.control_requests import FULL, ControlRequest
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from penstock.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from penstock.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker
from tests.support.cluster.brokers import running_member
from tests.support.protocol.requests import make_topic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with watching(), running_member(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize("is_hosted", [True, False])
def test_the_log_of_a_deleted_replica_is_deleted(broker: RunningBroker, is_hosted: bool) -> None:
    """A broker that has restarted may be told to delete a replica before it hosts it."""
    topic = f"stopped-{is_hosted}".lower()
    key = TopicPartition(topic, 0)
    with broker.connect() as client:
        make_topic(client, topic)
        if not is_hosted:
            broker.call(lambda running: running.replicas.by_topic.pop(topic))
        request = StopReplicaRequest(
            controller_epoch=broker.call(lambda running: running.image.controller_epoch),
            topic_states=[StopReplicaTopicState(topic, [StopReplicaPartitionState(0, -2, True)])],
        )
        response = client.request(request, 4)
    assert response.error_code == 0
    assert [error.error_code for error in response.partition_errors] == [0]
    assert broker.call(lambda running: running.logs.get(key)) is None
    assert topic not in broker.call(lambda running: running.replicas.by_topic)


def test_a_replica_that_a_full_request_lacks_is_stopped_and_keeps_its_log(
    tmp_path: Path,
) -> None:
    """It was removed while the broker had no session."""
    key = TopicPartition("kept", 0)
    with running_member(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "kept")
        epoch = broker.call(lambda running: running.image.controller_epoch)
        for request_type, is_hosted in ((0, True), (FULL, False)):
            request = LeaderAndIsrRequest(controller_epoch=epoch, type=request_type)
            assert client.request(request, 7).error_code == 0
            assert broker.call(lambda b: "kept" in b.replicas.by_topic) == is_hosted
        assert broker.call(lambda running: running.logs.get(key)) is not None
        assert broker.call(lambda running: "kept" in running.image.topics)


def test_a_late_update_ends_no_leadership(broker: RunningBroker) -> None:
    """The coordinators of a partition stay where it is led: an old update changes nothing."""
    key = TopicPartition("late", 0)
    changes: list[tuple[list[TopicPartition], list[TopicPartition]]] = []
    with broker.connect() as client:
        make_topic(client, key.topic)

    async def apply(running: Broker) -> None:
        topic, record = running.image.topics[key.topic], running.image.partitions[key]
        running.replicas.leadership_listeners.append(
            lambda led, followed: changes.append((list(led), list(followed)))
        )
        try:
            for update in (
                replace(record, leader_epoch=3, partition_epoch=3),
                replace(record, leader=9, leader_epoch=2, partition_epoch=2),
            ):
                await running.replicas.apply_updates(
                    [PartitionUpdate(update, topic.assignments[0], topic.topic_id, False)]
                )
        finally:
            running.replicas.leadership_listeners.pop()

    broker.wait(apply)
    assert changes == [([key], []), ([key], [])]


_STOPPED = StopReplicaTopicState("recreated", [StopReplicaPartitionState(0, -2, True)])


@pytest.mark.parametrize(
    ("late_request", "version"),
    [
        (StopReplicaRequest(topic_states=[_STOPPED]), 4),
        (LeaderAndIsrRequest(type=FULL), 7),
        (UpdateMetadataRequest(type=FULL), 8),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_late_request_that_was_sent_again_on_another_connection_is_refused(
    tmp_path: Path, late_request: ControlRequest, version: int
) -> None:
    """It may concern a topic that has been deleted and created again since."""
    key = TopicPartition("recreated", 0)
    with (
        running_member(tmp_path) as broker,
        broker.connect() as older,
        broker.connect() as newer,
    ):
        make_topic(older, key.topic)
        late_request.controller_epoch = epoch = broker.call(lambda b: b.image.controller_epoch)
        assert newer.request(StopReplicaRequest(controller_epoch=epoch), 4).error_code == 0
        with pytest.raises(ConnectionError):
            older.request(late_request, version)
        assert broker.call(lambda b: b.logs.get(key)) is not None
        assert broker.call(lambda b: key.topic in b.replicas.by_topic)
        assert broker.call(lambda b: key in b.image.partitions)
        assert newer.request(late_request, version).error_code == 0
        assert not broker.call(
            lambda b: (
                b.logs.get(key) is not None
                and key.topic in b.replicas.by_topic
                and key in b.image.partitions
            )
        )
