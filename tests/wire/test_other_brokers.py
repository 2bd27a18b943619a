"""Requests that another broker would serve: its leaders, listeners, and the controller (R6)."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.controller.metadata import BrokerRecord, Endpoint, Put, SecurityProtocol
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.update_features import UpdateFeaturesRequest
from tests.support.broker.in_process import RunningBroker, running_broker
from tests.support.protocol.requests import make_topic

# --- leaders on other brokers


@pytest.fixture(scope="module")
def led_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose topic t is led by broker 7, which has no listener OUT."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
    }
    with running_broker(tmp_path_factory.mktemp("elsewhere"), settings) as broker:
        with broker.connect() as client:
            make_topic(client, "t", 1)
        broker.call(_move_leader)
        yield broker


def _move_leader(broker: Broker) -> None:
    endpoint = Endpoint("PLAINTEXT", "localhost", 1, SecurityProtocol.PLAINTEXT)
    state = broker.image.partitions[TopicPartition("t", 0)]
    broker.image.apply(
        [
            Put(BrokerRecord(7, (endpoint,), None, 0, {}, 1)),
            Put(replace(state, leader=7, leader_epoch=state.leader_epoch + 1, isr=(0, 7))),
        ]
    )


@pytest.mark.parametrize(
    ("listener", "version", "expected"),
    [
        ("PLAINTEXT", 12, (ErrorCode.NONE, 7)),
        ("OUT", 12, (ErrorCode.LISTENER_NOT_FOUND, -1)),
        ("OUT", 5, (ErrorCode.LEADER_NOT_AVAILABLE, -1)),
    ],
)
def test_a_leader_without_the_listener_of_the_client(
    led_elsewhere: RunningBroker, listener: str, version: int, expected: tuple[ErrorCode, int]
) -> None:
    with led_elsewhere.connect(listener) as client:
        metadata = client.request(MetadataRequest([MetadataRequestTopic(name="t")]), version)
        (partition,) = metadata.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == expected
        assert [broker.node_id for broker in metadata.brokers] == (
            [0, 7] if listener == "PLAINTEXT" else [0]
        )
        if version == 12:
            described = client.request(
                DescribeTopicPartitionsRequest([DescribeTopicPartitionsTopicRequest("t")]), 0
            )
            (partition,) = described.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == expected


# --- requests to the controller


@pytest.fixture
def follower(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    """A broker that is not the controller."""

    async def run(host: ControllerHost, *arguments: object) -> NoReturn:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "broker 7 is the controller")

    monkeypatch.setattr(ControllerHost, "run", run)
    return broker


@pytest.mark.parametrize(
    ("request_", "version", "errors_of"),
    [
        (
            CreateTopicsRequest([CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1)]),
            7,
            lambda response: [topic.error_code for topic in response.topics],
        ),
        (
            DeleteTopicsRequest(topics=[DeleteTopicState("a"), DeleteTopicState("b")]),
            6,
            lambda response: [topic.error_code for topic in response.responses],
        ),
        (
            CreatePartitionsRequest([CreatePartitionsTopic(name, 2) for name in "ab"]),
            3,
            lambda response: [topic.error_code for topic in response.results],
        ),
        (
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name, 1) for name in "ab"]
            ),
            0,
            lambda response: [result.error_code for result in response.results],
        ),
        (
            ElectLeadersRequest(0, [ElectLeadersTopicPartitions("t", [0, 1])]),
            2,
            lambda response: [
                partition.error_code
                for topic in response.replica_election_results
                for partition in topic.partition_result
            ],
        ),
        (AlterPartitionReassignmentsRequest(), 0, lambda response: [response.error_code] * 2),
        (ListPartitionReassignmentsRequest(), 0, lambda response: [response.error_code] * 2),
        (UpdateFeaturesRequest(), 1, lambda response: [response.error_code] * 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_only_the_controller_serves(
    follower: RunningBroker,
    request_: Message,
    version: int,
    errors_of: Callable[[Any], list[int]],
) -> None:
    with follower.connect() as client:
        response = client.request(request_, version)
        assert errors_of(response) == [ErrorCode.NOT_CONTROLLER] * 2


def test_a_connection_survives_the_refusal(follower: RunningBroker) -> None:
    with follower.connect() as client:
        for _ in range(2):
            response = client.request(CreateTopicsRequest([CreatableTopic("a", 1, 1)]), 0)
            assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
