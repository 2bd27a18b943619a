"""Deletion of topics, by name or by id."""

from collections import Counter

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ConfigKey, Delete, TopicKey, TopicRecord
from penstock.controller.result import ControllerResult
from penstock.controller.topic_names import duplicate_topic_error, unknown_topic_error
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


def delete_topics(
    image: ClusterImage, request: DeleteTopicsRequest
) -> ControllerResult[DeleteTopicsResponse]:
    """Deletes topics by name or id, with their partitions and settings.

    A result has both the name and the id of an existing topic. The handler decides whether the
    client may see a name that it did not send.
    """
    requested = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    names = [_name_of(image, topic) for topic in requested]
    times = Counter(name for name in names if name is not None)
    changes: list[Change] = []
    results: dict[tuple[str | None, TopicId], DeletableTopicResult] = {}
    for topic, name in zip(requested, names, strict=True):
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            record = _topic_to_delete(image, topic, name)
            result.name, result.topic_id = record.topic, record.topic_id
            if times[record.topic] > 1:
                raise duplicate_topic_error(record.topic)
            changes += delete_topic(image, record.topic)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[result.name, result.topic_id] = result
    return ControllerResult(changes, DeleteTopicsResponse(responses=list(results.values())))


def delete_topic(image: ClusterImage, topic: str) -> list[Change]:
    """Returns the deletions of all records of an existing topic, children before parents."""
    changes: list[Change] = [
        Delete(TopicPartition(topic, number)) for number in sorted(image.topics[topic].assignments)
    ]
    settings = ConfigKey((("topics", topic),))
    if settings in image.configs:
        changes.append(Delete(settings))
    return [*changes, Delete(TopicKey(topic))]


def _name_of(image: ClusterImage, topic: DeleteTopicState) -> str | None:
    if topic.name is not None:
        return topic.name
    return image.topic_names.get(topic.topic_id)


def _topic_to_delete(image: ClusterImage, topic: DeleteTopicState, name: str | None) -> TopicRecord:
    by_id = topic.topic_id != ZERO_UUID
    if by_id == (topic.name is not None):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a topic to delete needs either a name or an id, not name {topic.name!r} and "
            f"id {topic.topic_id}",
        )
    if name is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"no topic has the id {topic.topic_id}: it may have been deleted already",
        )
    if name not in image.topics:
        raise unknown_topic_error(name)
    return image.topics[name]
