"""New topics and more partitions."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Assignment
from penstock.controller.placement import PlacementStart
from penstock.controller.result import ControllerResult
from penstock.controller.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    create_partitions,
    create_topics,
    generate_topic_id,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tests.support.cluster.images import (
    add_topic,
    assignment,
    check_committable,
    image_of,
    new_topic_rules,
    set_assignment,
    state,
)


def create(
    image: ClusterImage, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    result = create_topics(image, request, new_topic_rules(3, 2))
    check_committable(result.changes)
    image.apply(result.changes)
    return result.response.topics


def create_topic(image: ClusterImage, topic: CreatableTopic) -> ErrorCode:
    (result,) = create(image, topic)
    code = ErrorCode(result.error_code)
    assert (code == ErrorCode.NONE) == (topic.name in image.topics or not result.error_message)
    return code


def test_a_topic_with_everything() -> None:
    """R1: the first replica leads, all are in sync."""
    image = image_of(0, 1, 2)
    settings = [CreatableTopicConfig("retention.ms", "5")]
    (result,) = create(image, CreatableTopic("t", 2, 3, configs=settings))
    assert result.error_code == ErrorCode.NONE
    assert result.error_message is None
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    assert image.topic_names[result.topic_id] == "t"
    assert image.config("topics", "t") == {"retention.ms": "5"}
    for number in range(2):
        partition = state(image, "t", number)
        replicas = assignment(image, "t", number).replicas
        assert partition.isr == replicas
        assert partition.leader == replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch, partition.controller_epoch) == (
            0,
            0,
            7,
        )


def test_defaults() -> None:
    image = image_of(0, 1)
    (result,) = create(image, CreatableTopic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (3, 2)


def test_validate_only_changes_nothing() -> None:
    image = image_of(0)
    (result,) = create(image, CreatableTopic("t", 4, 1), validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert result.num_partitions == 4
    assert result.topic_id == ZERO_UUID
    assert not image.topics


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "ä", "t\n", "x" * 250, "a/b"], ids=lambda name: repr(name)[:9]
)
def test_names_that_cannot_be(name: str) -> None:
    image = image_of(0)
    (result,) = create(image, CreatableTopic(name, 1, 1))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message
    assert not image.topics


@pytest.mark.parametrize("name", ["x" * 249, "__consumer_offsets", "A.b_c-9", "..."])
def test_names_that_can_be(name: str) -> None:
    assert create_topic(image_of(0), CreatableTopic(name, 1, 1)) == ErrorCode.NONE


def test_names_that_metrics_cannot_tell_apart() -> None:
    image = image_of(0)
    add_topic(image, "a.b", (0,))
    assert create_topic(image, CreatableTopic("a_b", 1, 1)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    first, second = create(image, CreatableTopic("c_d", 1, 1), CreatableTopic("c.d", 1, 1))
    assert first.error_code == ErrorCode.NONE
    assert second.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "c_d" in (second.error_message or "")


def test_topic_that_exists() -> None:
    image = image_of(0)
    add_topic(image, "t.x", (0,))
    (result,) = create(image, CreatableTopic("t.x", 1, 1))
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.error_message == "Topic 't.x' already exists."


def test_kraft_metadata_topic() -> None:
    (result,) = create(image_of(0), CreatableTopic("__cluster_metadata", 1, 1))
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_twice_in_a_request_spoils_only_itself() -> None:
    image = image_of(0)
    t = CreatableTopic("t", 1, 1)
    results = create(image, t, CreatableTopic("u", 1, 1), t)
    assert [(r.name, r.error_code) for r in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", ErrorCode.NONE),
    ]
    assert list(image.topics) == ["u"]


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
        (MAX_PARTITIONS_PER_REQUEST + 1, 1, ErrorCode.POLICY_VIOLATION),
        (2**31 - 1, 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_counts_that_cannot_be(partitions: int, factor: int, code: ErrorCode) -> None:
    """E1 among them."""
    (result,) = create(image_of(0, 1), CreatableTopic("t", partitions, factor))
    assert result.error_code == code
    assert result.error_message


def test_factor_larger_than_the_brokers_that_are_up() -> None:
    """E1: the message says how many are up and what to do."""
    (result,) = create(image_of(0, 1), CreatableTopic("t", 1, 3))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == (
        "replication factor 3 is larger than the 2 brokers that are up: "
        "start more brokers, or use a replication factor of 2 or less"
    )


def test_partitions_of_all_topics_of_a_request_count() -> None:
    image = image_of(0)
    half = MAX_PARTITIONS_PER_REQUEST // 2 + 1
    first, second = create(image, CreatableTopic("t", half, 1), CreatableTopic("u", half, 1))
    assert first.error_code == ErrorCode.NONE
    assert second.error_code == ErrorCode.POLICY_VIOLATION


def assigned(*replicas: tuple[int, list[int]], count: int = -1, factor: int = -1) -> CreatableTopic:
    rows = [CreatableReplicaAssignment(number, brokers) for number, brokers in replicas]
    return CreatableTopic("t", count, factor, assignments=rows)


def test_explicit_assignment() -> None:
    image = image_of(0, 1, 2)
    (result,) = create(image, assigned((1, [2, 0]), (0, [1, 2])))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert assignment(image, "t", 0) == Assignment((1, 2))
    assert assignment(image, "t", 1) == Assignment((2, 0))
    assert state(image, "t", 1).leader == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned((0, [0]), count=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [0]), factor=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [0, 0])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [0]), (0, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [0]), (1, [0, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [0]), (2, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((-1, [0])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assignments_that_cannot_be(topic: CreatableTopic, code: ErrorCode) -> None:
    assert create_topic(image_of(0, 1), topic) == code


def test_settings_are_validated() -> None:
    def refuse(values: Mapping[str, str]) -> None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"bad: {dict(values)}")

    rules = new_topic_rules()._replace(validate_configs=refuse)
    topic = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("a", "b")])
    changes, response, _ = create_topics(image_of(0), CreateTopicsRequest(topics=[topic]), rules)
    assert not changes
    assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG
    assert response.topics[0].error_message == "bad: {'a': 'b'}"


def test_setting_without_value() -> None:
    topic = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("a", None)])
    assert create_topic(image_of(0), topic) == ErrorCode.INVALID_CONFIG


def test_topics_of_a_request_do_not_all_begin_at_the_same_broker() -> None:
    """R5: leaders are spread."""
    image = image_of(0, 1, 2)
    create(image, *(CreatableTopic(f"t{n}", 1, 1) for n in range(3)))
    assert {state(image, f"t{n}").leader for n in range(3)} == {0, 1, 2}


def test_reserved_ids_and_ids_in_use_are_not_assigned() -> None:
    dash = UUID(bytes=bytes([62 << 2]) + bytes(15))
    drawn = iter([UUID(int=0), UUID(int=1), UUID(int=99), dash, UUID(int=500), UUID(int=501)])
    assert generate_topic_id(lambda: next(drawn), {UUID(int=500)}) == UUID(int=501)


def test_topics_of_a_request_have_different_ids() -> None:
    drawn = iter([UUID(int=500), UUID(int=500), UUID(int=501)])
    rules = new_topic_rules()._replace(new_topic_id=lambda: next(drawn))
    topics = [CreatableTopic("t", 1, 1), CreatableTopic("u", 1, 1)]
    response = create_topics(image_of(0), CreateTopicsRequest(topics=topics), rules).response
    assert [result.topic_id.int for result in response.topics] == [500, 501]


# --- CreatePartitions


def more(
    image: ClusterImage, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> ControllerResult[CreatePartitionsResponse]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    result = create_partitions(image, request, PlacementStart(0, 0))
    check_committable(result.changes)
    return result


def code_of(image: ClusterImage, topic: CreatePartitionsTopic) -> ErrorCode:
    changes, response, _ = more(image, topic)
    assert not changes
    assert response.results[0].error_message
    return ErrorCode(response.results[0].error_code)


def test_more_partitions() -> None:
    """M1: the partitions that were there stay as they are."""
    image = image_of(0, 1)
    topic_id = add_topic(image, "t", (0, 1))
    before = state(image, "t")
    changes, response, _ = more(image, CreatePartitionsTopic("t", 3, None))
    image.apply(changes)
    assert response.results[0].error_code == ErrorCode.NONE
    assert response.results[0].error_message is None
    assert state(image, "t") is before
    assert image.topics["t"].topic_id == topic_id
    assert [r.isr for r in image.partitions_of("t")] == [(0, 1), (1, 0), (0, 1)]


def test_added_partitions_with_explicit_replicas() -> None:
    image = image_of(0, 1)
    add_topic(image, "t", (0,))
    assignments = [CreatePartitionsAssignment([1]), CreatePartitionsAssignment([0])]
    image.apply(more(image, CreatePartitionsTopic("t", 3, assignments)).changes)
    assert [record.leader for record in image.partitions_of("t")] == [0, 1, 0]


def test_more_partitions_validate_only() -> None:
    image = image_of(0)
    add_topic(image, "t", (0,))
    changes, response, _ = more(image, CreatePartitionsTopic("t", 2, None), validate_only=True)
    assert not changes
    assert response.results[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("u", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 2**31 - 1, None, ErrorCode.POLICY_VIOLATION),
        ("t", 3, [[0, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [[0, 5]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    image = image_of(0, 1)
    add_topic(image, "t", (0, 1))
    rows = None if assignments is None else [CreatePartitionsAssignment(a) for a in assignments]
    assert code_of(image, CreatePartitionsTopic(name, count, rows)) == code


def test_more_partitions_with_too_few_brokers() -> None:
    """E1"""
    image = image_of(0)
    add_topic(image, "t", (0, 1))
    topic = CreatePartitionsTopic("t", 2, None)
    assert code_of(image, topic) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_more_partitions_while_a_topic_moves() -> None:
    image = image_of(0, 1)
    add_topic(image, "t", (1, 0))
    set_assignment(image, "t", Assignment((1, 0), (1,), (0,)))
    topic = CreatePartitionsTopic("t", 2, None)
    assert code_of(image, topic) == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_more_partitions_twice_in_a_request() -> None:
    image = image_of(0)
    add_topic(image, "t", (0,))
    topic = CreatePartitionsTopic("t", 2, None)
    changes, response, _ = more(image, topic, topic)
    assert not changes
    assert [r.error_code for r in response.results] == [ErrorCode.INVALID_REQUEST]
