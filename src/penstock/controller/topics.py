"""Creation of topics, and of additional partitions for existing ones (M1, R1, E1)."""

from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    Change,
    ConfigRecord,
    PartitionRecord,
    Put,
    TopicRecord,
)
from penstock.controller.partition_state_machine import new_partition
from penstock.controller.placement import (
    PlacementStart,
    check_assignment,
    place_added_partitions,
    place_replicas,
    racks_of,
)
from penstock.controller.result import ControllerResult
from penstock.controller.topic_names import (
    CLUSTER_METADATA_TOPIC,
    NameCollisions,
    check_topic_name,
    duplicate_topic_error,
    unknown_topic_error,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicId
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""The limit of Kafka's controller: a typing error must not stop it."""

_RESERVED_IDS: Final = frozenset(TopicId(int=number) for number in range(100))


class NewTopicRules(NamedTuple):
    """The inputs of topic creation beside the image."""

    num_partitions: int
    """`num.partitions`, for a topic that does not specify it."""
    replication_factor: int
    """`default.replication.factor`, for a topic that does not specify it."""
    validate_configs: Callable[[Mapping[str, str]], None]
    """Raises a KafkaError for invalid topic settings."""
    new_topic_id: Callable[[], TopicId]
    """Returns a random id."""
    placement_start: PlacementStart


def generate_topic_id(new_topic_id: Callable[[], TopicId], taken: Container[TopicId]) -> TopicId:
    """Returns an id that is neither reserved nor in use, and does not start with a dash in text."""
    while True:
        topic_id = new_topic_id()
        has_dash = topic_id.bytes[0] >> 2 == 62  # '-' in URL-safe base64
        if topic_id not in _RESERVED_IDS and topic_id not in taken and not has_dash:
            return topic_id


class _PartitionBudget:
    """The number of partitions that a request may still create."""

    def __init__(self) -> None:
        self._remaining = MAX_PARTITIONS_PER_REQUEST

    def take(self, partitions: int) -> None:
        if partitions > self._remaining:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{partitions} more partitions exceed the limit of {MAX_PARTITIONS_PER_REQUEST} "
                "in one request",
                remedy="create fewer, or use several requests",
            )
        self._remaining -= partitions


# --- CreateTopics


def create_topics(
    image: ClusterImage, request: CreateTopicsRequest, rules: NewTopicRules
) -> ControllerResult[CreateTopicsResponse]:
    """Creates all valid topics; each topic has its own result.

    The `configs` of a result are left empty: the handler adds them, with defaults and permissions.
    """
    counts = Counter(topic.name for topic in request.topics)
    names = NameCollisions(image.topics)
    budget = _PartitionBudget()
    ids = set(image.topic_names)
    changes: list[Change] = []
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise duplicate_topic_error(topic.name)
            _check_new_name(image, topic.name)
            names.check(topic.name)
            values = _configs(topic, rules.validate_configs)
            replicas = _replicas(image, topic, rules, budget)
        except KafkaError as error:
            results[topic.name] = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            continue
        names.add(topic.name)
        topic_id = generate_topic_id(rules.new_topic_id, ids)
        ids.add(topic_id)
        changes += new_topic(image, topic.name, topic_id, replicas, values)
        results[topic.name] = CreatableTopicResult(
            name=topic.name,
            topic_id=ZERO_UUID if request.validate_only else topic_id,
            error_message=None,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
        )
        start = rules.placement_start
        start = start._replace(broker_index=start.broker_index + len(replicas))
        rules = rules._replace(placement_start=start)
    response = CreateTopicsResponse(topics=list(results.values()))
    return ControllerResult([] if request.validate_only else changes, response)


def new_topic(
    image: ClusterImage,
    topic: str,
    topic_id: TopicId,
    replicas: list[tuple[int, ...]],
    configs: Mapping[str, str],
) -> list[Change]:
    """Returns the changes that create a topic whose partitions have these replicas."""
    assignments = {number: Assignment(brokers) for number, brokers in enumerate(replicas)}
    changes: list[Change] = [Put(TopicRecord(topic, topic_id, assignments))]
    if configs:
        changes.append(Put(ConfigRecord((("topics", topic),), configs)))
    return changes + [Put(state) for state in _new_partitions(image, topic, 0, replicas)]


def _new_partitions(
    image: ClusterImage, topic: str, first: int, replicas: list[tuple[int, ...]]
) -> list[PartitionRecord]:
    return [
        new_partition(topic, number, brokers, image.brokers, image.controller_epoch)
        for number, brokers in enumerate(replicas, first)
    ]


def _check_new_name(image: ClusterImage, name: str) -> None:
    check_topic_name(name)
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"topic name {name} is reserved for the cluster",
            remedy="choose another name",
        )
    if image.is_deleting(name):
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{name}' is marked for deletion",
            remedy="create it when all its replicas are deleted; brokers that are down delay that",
        )
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _configs(
    topic: CreatableTopic, validate: Callable[[Mapping[str, str]], None]
) -> dict[str, str]:
    values: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"setting {config.name} has no value",
                remedy="give it one, or leave it out",
            )
        values[config.name] = config.value
    validate(values)
    return values


def _replicas(
    image: ClusterImage, topic: CreatableTopic, rules: NewTopicRules, budget: _PartitionBudget
) -> list[tuple[int, ...]]:
    if topic.assignments:
        return _assigned_replicas(image, topic, budget)
    if topic.replication_factor == 0 or topic.replication_factor < -1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor} is not possible",
            remedy="use at least 1, or -1 for the default of the broker",
        )
    if topic.num_partitions == 0 or topic.num_partitions < -1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.num_partitions} partitions are not possible",
            remedy="use at least 1, or -1 for the default of the broker",
        )
    count = rules.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = (
        rules.replication_factor if topic.replication_factor == -1 else topic.replication_factor
    )
    budget.take(count)
    return place_replicas(racks_of(image), count, factor, rules.placement_start)


def _assigned_replicas(
    image: ClusterImage, topic: CreatableTopic, budget: _PartitionBudget
) -> list[tuple[int, ...]]:
    for value, name in (
        (topic.replication_factor, "the replication factor"),
        (topic.num_partitions, "the number of partitions"),
    ):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is {value} although the replicas are assigned explicitly",
                remedy="use -1",
            )
    budget.take(len(topic.assignments))
    replicas: dict[int, tuple[int, ...]] = {}
    factor = len(topic.assignments[0].broker_ids)
    for assignment in topic.assignments:
        if assignment.partition_index in replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {assignment.partition_index} has two assignments",
                remedy="remove one",
            )
        check_assignment(image, assignment.broker_ids, factor)
        replicas[assignment.partition_index] = tuple(assignment.broker_ids)
    if sorted(replicas) != list(range(len(replicas))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions {sorted(replicas)} are not numbered from 0 without a gap",
        )
    return [replicas[number] for number in range(len(replicas))]


# --- CreatePartitions


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, start: PlacementStart
) -> ControllerResult[CreatePartitionsResponse]:
    """Adds partitions to topics; each topic has its own result."""
    counts = Counter(topic.name for topic in request.topics)
    budget = _PartitionBudget()
    changes: list[Change] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if counts[topic.name] > 1:
                raise duplicate_topic_error(topic.name)
            changes += _add_partitions(image, topic, start, budget)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[topic.name] = result
    response = CreatePartitionsResponse(results=list(results.values()))
    return ControllerResult([] if request.validate_only else changes, response)


def _add_partitions(
    image: ClusterImage,
    topic: CreatePartitionsTopic,
    start: PlacementStart,
    budget: _PartitionBudget,
) -> list[Change]:
    record = image.topics.get(topic.name)
    if record is None:
        raise unknown_topic_error(topic.name)
    if image.is_deleting(topic.name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic '{topic.name}' is being deleted"
        )
    if any(current.is_reassigning for current in record.assignments.values()):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"topic '{topic.name}' is being reassigned",
            remedy="add partitions when that is complete",
        )
    first = len(record.assignments)
    if topic.count <= first:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic '{topic.name}' already has {first} partitions, and {topic.count} is no "
            "increase: partitions can only be added",
        )
    added = topic.count - first
    budget.take(added)
    if topic.assignments is None:
        replicas = place_added_partitions(image, topic.name, added, start)
    else:
        if len(topic.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions are added, but {len(topic.assignments)} are assigned",
                remedy="assign each new partition, or none",
            )
        factor = len(record.assignments[0].replicas)
        for assignment in topic.assignments:
            check_assignment(image, assignment.broker_ids, factor)
        replicas = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    assignments = dict(record.assignments)
    assignments |= {number: Assignment(brokers) for number, brokers in enumerate(replicas, first)}
    changes: list[Change] = [Put(replace(record, assignments=assignments))]
    return changes + [Put(state) for state in _new_partitions(image, topic.name, first, replicas)]
