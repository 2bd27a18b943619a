"""Updates from requests: offline replicas; impossible values are refused as a whole."""

import pytest

from penstock.controller.broker_updates import BrokerUpdate, full_update
from penstock.controller.control_requests import ControlRequests
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Put
from penstock.controller.received_updates import (
    update_of_leader_and_isr,
    update_of_update_metadata,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.cluster.images import add_topic, image_of, state


@pytest.mark.parametrize(
    ("topic", "partition", "leader_epoch", "code"),
    [
        ("orders", 0, -1, ErrorCode.INVALID_REQUEST),
        ("orders", -1, 0, ErrorCode.INVALID_REQUEST),
        ("", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("../orders", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_leader_and_isr_of_an_impossible_partition(
    topic: str, partition: int, leader_epoch: int, code: ErrorCode
) -> None:
    """A log with such values cannot be created; its directory would be taken for broken."""
    state = LeaderAndIsrPartitionState(
        topic_name=topic, partition_index=partition, leader_epoch=leader_epoch
    )
    grouped = LeaderAndIsrRequest(
        topic_states=[LeaderAndIsrTopicState(topic, partition_states=[state])]
    )
    for request in (grouped, LeaderAndIsrRequest(ungrouped_partition_states=[state])):
        with pytest.raises(KafkaError) as raised:
            update_of_leader_and_isr(request)
        assert raised.value.code is code


@pytest.mark.parametrize(("topic", "partition"), [("orders", -1), ("../orders", 0), ("", 0)])
def test_metadata_of_an_impossible_partition(topic: str, partition: int) -> None:
    state = UpdateMetadataPartitionState(partition_index=partition)
    request = UpdateMetadataRequest(
        topic_states=[UpdateMetadataTopicState(topic, partition_states=[state])]
    )
    with pytest.raises(KafkaError):
        update_of_update_metadata(request, image_of(0))


def test_metadata_with_an_unknown_security_protocol() -> None:
    endpoint = UpdateMetadataEndpoint(port=9092, host="h", listener="L", security_protocol=9)
    request = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(3, endpoints=[endpoint])])
    with pytest.raises(KafkaError, match=r"broker 3 .*unknown security protocol 9"):
        update_of_update_metadata(request, image_of(0))


def test_offline_replicas_of_live_brokers_are_received() -> None:
    sender = image_of(0, 1)
    add_topic(sender, "t", (0, 1, 7), (1, 0))
    keys = TopicPartition("t", 0), TopicPartition("t", 1)
    offline = {keys[0]: frozenset({1}), keys[1]: frozenset({0})}
    full = full_update(sender, 0)

    def received(
        update: BrokerUpdate, offline: dict[TopicPartition, frozenset[int]]
    ) -> BrokerUpdate:
        request = ControlRequests(sender, "PLAINTEXT", offline).of(update)[0]
        assert isinstance(request, UpdateMetadataRequest)
        return update_of_update_metadata(request, receiver)

    receiver = ClusterImage()
    first = received(full, offline)
    assert first.offline_replicas == offline, "broker 7 is down"
    assert first.offline_replicas is not None
    receiver.offline_replicas = first.offline_replicas
    assert received(full, offline).offline_replicas is None
    delta = BrokerUpdate(1, 1, 1, metadata=[Put(state(sender, "t", 1))])
    assert received(delta, {}).offline_replicas == {keys[0]: frozenset({1})}
    assert received(full, {}).offline_replicas == {}


@pytest.mark.parametrize("is_full", [False, True])
def test_metadata_that_arrives_late_does_not_replace_newer_metadata(is_full: bool) -> None:
    """A controller sends a request again on a new connection; the first may still be handled."""
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    topic = image.topics["t"]
    partition = UpdateMetadataPartitionState(
        partition_index=0, leader=1, leader_epoch=4, isr=[1], zk_version=7, replicas=[1]
    )
    request = UpdateMetadataRequest(
        type=int(is_full),
        topic_states=[UpdateMetadataTopicState("t", topic.topic_id, [partition])],
        live_brokers=[UpdateMetadataBroker(0), UpdateMetadataBroker(1)],
    )
    image.apply(update_of_update_metadata(request, image).metadata)
    for leader_epoch, partition_epoch in ((3, 9), (4, 6)):
        partition.leader_epoch, partition.zk_version = leader_epoch, partition_epoch
        partition.leader, partition.replicas = 0, [0, 1]
        image.apply(update_of_update_metadata(request, image).metadata)
        assert (state(image, "t").leader, state(image, "t").partition_epoch) == (1, 7)
        assert image.topics["t"].assignments[0].replicas == (1,)
