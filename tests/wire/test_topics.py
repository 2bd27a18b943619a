"""CreateTopics, DeleteTopics and CreatePartitions over the wire (M1, R1, E1)."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.admin import TOPIC, describe
from tests.support.protocol.requests import make_topic, produce_values

VERSIONS = range(8)
SOME_VERSIONS = [0, 4, 7]


def create(client: WireClient, topic: CreatableTopic, version: int = 7, **options: bool) -> Any:
    """Returns the result for one topic."""
    request = CreateTopicsRequest([topic], timeout_ms=5000, **options)
    (result,) = client.request(request, version).topics
    assert result.name == topic.name
    return result


def partitions(client: WireClient, name: str) -> list[Any]:
    """Returns the partitions in Metadata; empty if the topic does not exist."""
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    result: list[Any] = client.request(request, 9).topics[0].partitions
    return sorted(result, key=lambda partition: partition.partition_index)


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_created_in_every_version(client: WireClient, version: int) -> None:
    name = f"every-{version}"
    configs = [CreatableTopicConfig("retention.ms", "1234567")]
    result = create(client, CreatableTopic(name, 3, 1, configs=configs), version)
    assert result.error_code == 0
    assert not result.error_message
    assert (result.topic_id != ZERO_UUID) == (version >= 7)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs_by_name = {config.name: config.value for config in result.configs}
        assert configs_by_name["retention.ms"] == "1234567"
        assert "cleanup.policy" in configs_by_name
    assert len(partitions(client, name)) == 3
    assert describe(client, TOPIC, name, ["retention.ms"])["retention.ms"].value == "1234567"
    assert produce_values(client, name, b"a", partition=2) == 0


@pytest.mark.parametrize("version", range(1, 8))
def test_validate_only_creates_no_topic(client: WireClient, version: int) -> None:
    name = f"validated-{version}"
    result = create(client, CreatableTopic(name, 2, 1), version, validate_only=True)
    assert (result.error_code, result.topic_id) == (0, ZERO_UUID)
    assert partitions(client, name) == []
    result = create(client, CreatableTopic(name, 2, 9), version, validate_only=True)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_more_replicas_than_brokers_are_rejected(client: WireClient, version: int) -> None:
    """E1."""
    result = create(client, CreatableTopic(f"replicas-{version}", 1, 3), version)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    if version >= 1:
        assert "3" in result.error_message
    assert partitions(client, f"replicas-{version}") == []


@pytest.mark.parametrize("version", [4, 7])
def test_the_defaults_of_the_broker_apply(client: WireClient, version: int) -> None:
    result = create(client, CreatableTopic(f"defaults-{version}", -1, -1), version)
    assert result.error_code == 0
    assert len(partitions(client, f"defaults-{version}")) == 1


@pytest.mark.parametrize("version", SOME_VERSIONS)
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic("zero", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("negative", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("no-replicas", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("huge", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION),
        (
            CreatableTopic("bad-config", 1, 1, configs=[CreatableTopicConfig("nonsense", "1")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            CreatableTopic("bad-value", 1, 1, configs=[CreatableTopicConfig("retention.ms", "x")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            CreatableTopic("null", 1, 1, configs=[CreatableTopicConfig("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
        ),
    ],
    ids=lambda value: value.name[:10] if isinstance(value, CreatableTopic) else "",
)
def test_an_invalid_topic_is_rejected(
    client: WireClient, version: int, topic: CreatableTopic, code: ErrorCode
) -> None:
    result = create(client, topic, version)
    assert result.error_code == code
    assert bool(result.error_message) == (version >= 1)


@pytest.mark.parametrize("version", [1, 4, 7])
@pytest.mark.parametrize("letter", ["x", "é", "\0"])
def test_error_messages_truncate_long_names(client: WireClient, version: int, letter: str) -> None:
    """The name has the maximum length of a string, so a message that quotes it would be longer."""
    name = letter * (32767 // len(letter.encode()))
    result = create(client, CreatableTopic(name, 1, 1), version)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert 0 < len(result.error_message) <= 1000


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_existing_and_colliding_names_are_rejected(client: WireClient, version: int) -> None:
    make_topic(client, f"taken.{version}")
    result = create(client, CreatableTopic(f"taken.{version}", 1, 1), version)
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    result = create(client, CreatableTopic(f"taken_{version}", 1, 1), version)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, "metrics cannot tell them apart"


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_duplicate_names_in_a_request_are_rejected(client: WireClient, version: int) -> None:
    duplicates = [CreatableTopic(f"twice-{version}", 1, 1)] * 2
    valid_topic = CreatableTopic(f"once-{version}", 1, 1)
    response = client.request(
        CreateTopicsRequest([*duplicates, valid_topic], timeout_ms=5000), version
    )
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {f"twice-{version}": ErrorCode.INVALID_REQUEST, f"once-{version}": 0}


def assigned_topic(name: str, assignments: dict[int, list[int]]) -> CreatableTopic:
    return CreatableTopic(
        name,
        -1,
        -1,
        assignments=[CreatableReplicaAssignment(*assignment) for assignment in assignments.items()],
    )


@pytest.mark.parametrize("version", SOME_VERSIONS)
def test_manual_replica_assignments(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    node = broker.app.broker.broker_id
    valid = assigned_topic(f"assigned-{version}", {1: [node], 0: [node]})
    assert create(client, valid, version).error_code == 0
    assert [partition.replica_nodes for partition in partitions(client, valid.name)] == [
        [node],
        [node],
    ]
    invalid_assignments: list[dict[int, list[int]]] = [
        {0: [node], 2: [node]},
        {0: [99]},
        {0: [node, node]},
        {0: []},
        {-1: [node]},
    ]
    for index, assignment in enumerate(invalid_assignments):
        result = create(client, assigned_topic(f"wrong-{version}-{index}", assignment), version)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    conflicting = assigned_topic(f"both-{version}", {0: [node]})
    conflicting.num_partitions = 1
    assert create(client, conflicting, version).error_code == ErrorCode.INVALID_REQUEST


# --- DeleteTopics


def delete(client: WireClient, version: int, *topics: str | UUID) -> list[Any]:
    request = DeleteTopicsRequest(timeout_ms=5000)
    if version >= 6:
        request.topics = [
            DeleteTopicState(topic) if isinstance(topic, str) else DeleteTopicState(None, topic)
            for topic in topics
        ]
    else:
        request.topic_names = [topic for topic in topics if isinstance(topic, str)]
    responses: list[Any] = client.request(request, version).responses
    return responses


@pytest.mark.parametrize("version", range(7))
def test_topics_are_deleted_in_every_version(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    name = f"deleted-{version}"
    topic_id = make_topic(client, name, 2)
    produce_values(client, name, b"a")
    missing, deleted = sorted(delete(client, version, "missing", name), key=lambda r: -r.error_code)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bool(missing.error_message) == (version >= 5)
    assert (deleted.name, deleted.error_code) == (name, 0)
    assert deleted.topic_id == (topic_id if version >= 6 else ZERO_UUID)
    assert partitions(client, name) == []
    assert not [key for key in broker.app.broker.image.partitions if key.topic == name]
    # The name can be used again, and no data of the old topic remains.
    assert make_topic(client, name, 1) != topic_id
    assert produce_values(client, name, b"b") == 0


def test_topics_are_deleted_by_id(client: WireClient) -> None:
    topic_id = make_topic(client, "by-id")
    unknown, deleted = sorted(delete(client, 6, topic_id, UUID(int=3)), key=lambda r: -r.error_code)
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("by-id", topic_id, 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_given_by_name_and_by_id_is_not_deleted(client: WireClient) -> None:
    topic_id = make_topic(client, "doubly")
    assert {item.error_code for item in delete(client, 6, "doubly", topic_id)} == {
        ErrorCode.INVALID_REQUEST
    }
    assert len(partitions(client, "doubly")) == 1


@pytest.fixture(scope="module")
def broker_without_deletion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"delete.topic.enable": "false"}
    with running_broker(tmp_path_factory.mktemp("keeper"), settings) as running:
        yield running


@pytest.mark.parametrize("version", [0, 2, 3, 6])
def test_deletion_can_be_disabled(broker_without_deletion: RunningBroker, version: int) -> None:
    with broker_without_deletion.connect() as client:
        make_topic(client, f"retained-{version}")
        (result,) = delete(client, version, f"retained-{version}")
        old_code = ErrorCode.INVALID_REQUEST
        assert result.error_code == (
            ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else old_code
        )
        if version >= 5:
            assert "delete.topic.enable" in result.error_message
        assert len(partitions(client, f"retained-{version}")) == 1


# --- CreatePartitions


def create_partitions(
    client: WireClient,
    version: int,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> Any:
    assignment_fields = None
    if assignments is not None:
        assignment_fields = [CreatePartitionsAssignment(assignment) for assignment in assignments]
    request = CreatePartitionsRequest(
        [CreatePartitionsTopic(name, count, assignment_fields)], 5000, validate_only
    )
    (result,) = client.request(request, version).results
    assert result.name == name
    return result


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_but_never_removed(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """M1: the count can be raised, never lowered."""
    name = f"growing-{version}"
    node = broker.app.broker.broker_id
    make_topic(client, name)
    produce_values(client, name, b"a")
    assert create_partitions(client, version, name, 3, validate_only=True).error_code == 0
    assert len(partitions(client, name)) == 1
    assert create_partitions(client, version, name, 3).error_code == 0
    assert len(partitions(client, name)) == 3
    assert produce_values(client, name, b"b", partition=2) == 0
    assert produce_values(client, name, b"b", partition=0) == 1
    assert create_partitions(client, version, name, 4, [[node]]).error_code == 0
    for count in (4, 2, 0, -1):
        result = create_partitions(client, version, name, count)
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
        assert result.error_message
    assert len(partitions(client, name)) == 4


@pytest.mark.parametrize("version", range(4))
def test_invalid_new_partitions_are_rejected(client: WireClient, version: int) -> None:
    make_topic(client, name := f"stuck-{version}")
    unknown = create_partitions(client, version, "unknown", 2)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for assignments in ([[99]], [[0], [0]], [[0, 0]]):
        result = create_partitions(client, version, name, 2, assignments)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(partitions(client, name)) == 1
