"""StopReplica (5) deletes replicas, whether the broker hosts them or only has their logs."""

import pytest

from penstock.core.ids import TopicPartition
from penstock.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.support.broker.in_process import RunningBroker
from tests.support.protocol.requests import make_topic


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
