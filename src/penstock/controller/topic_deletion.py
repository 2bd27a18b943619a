"""Deletion of topics: the request, by name or by id, and the progress of its replicas.

A topic is deleted as in Apache Kafka. A `TopicDeletionRecord` requests it; from then on the topic
does not exist for clients. The controller stops all replicas with StopReplica. When every broker
has deleted its replicas, the records of the topic and the request are deleted in one commit. A
broker that is down is waited for, and so is a reassignment. A topic that only the controller's own
broker has is deleted at once.
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from penstock.controller.broker_updates import EPOCH_DURING_DELETE, ReplicaStop, ReplicaStops
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    ConfigKey,
    Delete,
    Put,
    TopicDeletionKey,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
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
    """Requests the deletion of topics, by name or id, with their partitions and settings.

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
            changes += request_deletion(image, record)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[result.name, result.topic_id] = result
    return ControllerResult(changes, DeleteTopicsResponse(responses=list(results.values())))


def request_deletion(image: ClusterImage, topic: TopicRecord) -> list[Change]:
    """Returns the changes that start the deletion of a topic, or do it if one broker has it all."""
    own_replicas = (image.controller_id,)
    if all(assignment.replicas == own_replicas for assignment in topic.assignments.values()):
        return delete_topic(image, topic.topic)
    return [Put(TopicDeletionRecord(topic.topic))]


def delete_topic(image: ClusterImage, topic: str) -> list[Change]:
    """Returns the deletions of all records of an existing topic, children before parents."""
    changes: list[Change] = [
        Delete(key)
        for number in sorted(image.topics[topic].assignments)
        if (key := TopicPartition(topic, number)) in image.partitions
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
        raise unknown_topic_id_error(topic.topic_id)
    if not image.has_topic(name):
        raise unknown_topic_error(name)
    return image.topics[name]


def unknown_topic_id_error(topic_id: TopicId) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"no topic has the id {topic_id}: it may have been deleted already",
    )


# --- progress


class _ReplicaState(Enum):
    STARTED = auto()
    """StopReplica has been sent."""
    DELETED = auto()
    FAILED = auto()
    """The broker could not delete it; it is retried when the broker has registered again, or says
    that a log directory has failed or has room."""


class DeletionStep(NamedTuple):
    """The next step of the deletion of topics, as far as brokers are up."""

    changes: list[Change]
    """The records of topics whose replicas are all deleted, and requests that are void."""
    stops: dict[int, list[ReplicaStop]]


class TopicDeletions:
    """The replicas of deleted topics that brokers have deleted, or are deleting.

    A new controller starts without that knowledge and stops all replicas again, which succeeds for
    those that are deleted already.
    """

    def __init__(self, is_enabled: bool = True) -> None:
        """`is_enabled` is `delete.topic.enable`; without it requests are removed."""
        self._is_enabled = is_enabled
        self._replicas: dict[str, dict[tuple[int, int], _ReplicaState]] = {}
        """By topic, then by partition and broker."""

    def next_step(self, image: ClusterImage) -> DeletionStep:
        """Returns the stops of replicas that can be deleted, and the topics that are complete.

        Offline replicas are stopped too: they may never have had a log, for lack of room.
        """
        step = DeletionStep([], {})
        for topic in image.topic_deletions:
            record = image.topics.get(topic)
            if record is None or not self._is_enabled:
                step.changes.append(Delete(TopicDeletionKey(topic)))
            elif any(assignment.is_reassigning for assignment in record.assignments.values()):
                continue
            elif self._add_stops(record, image, step.stops):
                step.changes.extend(delete_topic(image, topic))
                step.changes.append(Delete(TopicDeletionKey(topic)))
        return step

    def _add_stops(
        self,
        topic: TopicRecord,
        image: ClusterImage,
        stops: dict[int, list[ReplicaStop]],
    ) -> bool:
        """Returns whether all replicas are deleted."""
        states = self._replicas.get(topic.topic, {})
        is_complete = True
        for number, assignment in topic.assignments.items():
            key = TopicPartition(topic.topic, number)
            for broker_id in assignment.replicas:
                state = states.get((number, broker_id))
                if state is _ReplicaState.DELETED:
                    continue
                is_complete = False
                if state is None and broker_id in image.brokers:
                    stop = ReplicaStop(key, EPOCH_DURING_DELETE, delete=True)
                    stops.setdefault(broker_id, []).append(stop)
        return is_complete

    def start(self, stops: ReplicaStops) -> None:
        """Notes the stops of a step that are being sent."""
        for broker_id, broker_stops in stops.items():
            for stop in broker_stops:
                states = self._replicas.setdefault(stop.key.topic, {})
                states[stop.key.partition, broker_id] = _ReplicaState.STARTED

    def complete(self, broker_id: int, errors: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Notes the response to StopReplica; returns whether it concerns a deletion."""
        is_relevant = False
        for key, error in errors.items():
            states = self._replicas.get(key.topic, {})
            if states.get((key.partition, broker_id)) is _ReplicaState.STARTED:
                is_deleted = error is ErrorCode.NONE
                states[key.partition, broker_id] = (
                    _ReplicaState.DELETED if is_deleted else _ReplicaState.FAILED
                )
                is_relevant = True
        return is_relevant

    def restart_broker(self, broker_id: int) -> None:
        """Forgets the unfinished deletions of a broker that has failed or registered again."""
        for states in self._replicas.values():
            for replica, state in list(states.items()):
                if replica[1] == broker_id and state is not _ReplicaState.DELETED:
                    del states[replica]

    def forget_topic(self, topic: str) -> None:
        self._replicas.pop(topic, None)
