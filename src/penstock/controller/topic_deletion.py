"""Topics that go, by name or by id."""

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
    """Removes topics by name or id: their partitions, settings and the topics themselves.

    A result has both name and id where the topic is known: whether the client may see the name it
    did not give is for the handler to say.
    """
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    names = [_name_of(image, topic) for topic in wanted]
    times = Counter(name for name in names if name is not None)
    changes: list[Change] = []
    results: dict[tuple[str | None, TopicId], DeletableTopicResult] = {}
    for topic, name in zip(wanted, names, strict=True):
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            record = _deletable(image, topic, name)
            result.name, result.topic_id = record.topic, record.topic_id
            if times[record.topic] > 1:
                raise duplicate_topic_error(record.topic)
            changes += delete_topic(image, record.topic)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[result.name, result.topic_id] = result
    return ControllerResult(changes, DeleteTopicsResponse(responses=list(results.values())))


def delete_topic(image: ClusterImage, topic: str) -> list[Change]:
    """Everything that is kept of a topic that exists, children before parents."""
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


def _deletable(image: ClusterImage, topic: DeleteTopicState, name: str | None) -> TopicRecord:
    by_id = topic.topic_id != ZERO_UUID
    if by_id == (topic.name is not None):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"A topic to delete is named either by name or by id: {topic.name!r} and "
            f"{topic.topic_id} were given.",
        )
    if name is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"There is no topic with id {topic.topic_id}. It may have been deleted already.",
        )
    if name not in image.topics:
        raise unknown_topic_error(name)
    return image.topics[name]
