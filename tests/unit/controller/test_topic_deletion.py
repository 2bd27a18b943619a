"""Topics that go."""

from uuid import UUID

import pytest

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    ControllerRecord,
    Delete,
    Put,
    TopicDeletionRecord,
    TopicKey,
)
from penstock.controller.topic_deletion import delete_topics
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.cluster.images import add_topic, check_committable, image_of

T_ID = UUID(int=0x500)


@pytest.fixture
def image() -> ClusterImage:
    """Only the controller's own broker has replicas of t and u."""
    image = image_of(0, 1)
    image.apply([Put(ControllerRecord(0, 0))])
    add_topic(image, "t", (0,), (0,), topic_id=T_ID, configs={"retention.ms": "1"})
    add_topic(image, "u", (0,))
    return image


def delete(image: ClusterImage, request: DeleteTopicsRequest) -> list[DeletableTopicResult]:
    result = delete_topics(image, request)
    check_committable(result.changes)
    image.apply(result.changes)
    return result.response.responses


@pytest.mark.parametrize(
    "request_",
    [
        DeleteTopicsRequest(topic_names=["t"]),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=T_ID)]),
    ],
)
def test_by_name_and_by_id(image: ClusterImage, request_: DeleteTopicsRequest) -> None:
    (result,) = delete(image, request_)
    assert result.error_code == ErrorCode.NONE
    assert (result.name, result.topic_id) == ("t", T_ID)
    assert list(image.topics) == ["u"]
    assert [key.topic for key in image.partitions] == ["u"]
    assert not image.configs
    assert T_ID not in image.topic_names


def test_children_go_before_their_parent(image: ClusterImage) -> None:
    changes = delete_topics(image, DeleteTopicsRequest(topic_names=["t"])).changes
    assert changes[-1] == Delete(TopicKey("t"))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (DeleteTopicState(name="x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (DeleteTopicState(topic_id=UUID(int=77)), ErrorCode.UNKNOWN_TOPIC_ID),
        (DeleteTopicState(), ErrorCode.INVALID_REQUEST),
        (DeleteTopicState(name="t", topic_id=T_ID), ErrorCode.INVALID_REQUEST),
    ],
)
def test_topics_that_cannot_be_deleted(
    image: ClusterImage, topic: DeleteTopicState, code: ErrorCode
) -> None:
    (result,) = delete(image, DeleteTopicsRequest(topics=[topic]))
    assert result.error_code == code
    assert result.error_message
    assert len(image.topics) == 2


def test_one_of_two_is_unknown(image: ClusterImage) -> None:
    results = delete(image, DeleteTopicsRequest(topic_names=["x", "u"]))
    assert [r.error_code for r in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert list(image.topics) == ["t"]


def test_the_same_topic_by_name_and_by_id(image: ClusterImage) -> None:
    topics = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=T_ID)]
    (result,) = delete(image, DeleteTopicsRequest(topics=topics))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "t" in image.topics


@pytest.mark.parametrize("replicas", [(1,), (0, 1)])
def test_replicas_on_other_brokers_are_deleted_before_the_topic(
    image: ClusterImage, replicas: tuple[int, ...]
) -> None:
    add_topic(image, "v", (0,), replicas)
    (result,) = delete(image, DeleteTopicsRequest(topic_names=["v"]))
    assert result.error_code == ErrorCode.NONE
    assert image.topic_deletions == {"v": TopicDeletionRecord("v")}
    assert "v" in image.topics
    (result,) = delete(image, DeleteTopicsRequest(topic_names=["v"]))
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
