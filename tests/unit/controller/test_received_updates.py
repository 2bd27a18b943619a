"""Control requests with values that no partition or broker can have are refused as a whole."""

import pytest

from penstock.controller.received_updates import (
    update_of_leader_and_isr,
    update_of_update_metadata,
)
from penstock.core.errors import ErrorCode, KafkaError
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
from tests.support.cluster.images import image_of


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
