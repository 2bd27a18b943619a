"""Merging of requests from the controller that wait for a slow broker.

A broker that is slow, or cannot be reached for a while, gets the requests of several events as one:
the last state of each partition counts. Otherwise the queue would grow with every event, and the
broker would repeat the whole history.
"""

from collections.abc import Iterable, Sequence

from penstock.controller.control_requests import FULL, ControlRequest
from penstock.core.ids import TopicId, TopicPartition
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from penstock.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaTopicState
from penstock.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


class RequestSet:
    """The requests of one event for one broker, at most one of each kind."""

    def __init__(self, requests: Iterable[ControlRequest]) -> None:
        self.leader_and_isr: LeaderAndIsrRequest | None = None
        self.update_metadata: UpdateMetadataRequest | None = None
        self.stop_replica: StopReplicaRequest | None = None
        for request in requests:
            match request:
                case LeaderAndIsrRequest():
                    self.leader_and_isr = request
                case UpdateMetadataRequest():
                    self.update_metadata = request
                case StopReplicaRequest():
                    self.stop_replica = request

    def in_order(self) -> list[ControlRequest]:
        """Returns the requests in the order of `ControlRequests.of`."""
        metadata = self.update_metadata
        requests: list[ControlRequest | None] = [self.leader_and_isr, metadata, self.stop_replica]
        if metadata is not None and metadata.type == FULL:
            requests[:2] = metadata, self.leader_and_isr
        return [request for request in requests if request is not None]


def merge(
    earlier: Sequence[ControlRequest], later: Sequence[ControlRequest]
) -> list[ControlRequest] | None:
    """Returns requests that have the effect of both lists; None if there are none.

    Requests of different controller or broker epochs are not merged. Neither is the state of a
    replica that the earlier requests stop, because StopReplica comes last, nor two topics of the
    same name.
    """
    epochs = {(request.controller_epoch, request.broker_epoch) for request in (*earlier, *later)}
    if len(epochs) > 1:
        return None
    first, second = RequestSet(earlier), RequestSet(later)
    if second.leader_and_isr is not None and first.stop_replica is not None:
        stopped = _stops(first.stop_replica).keys()
        if not stopped.isdisjoint(_states(second.leader_and_isr)):
            return None
    if not _have_same_topic_ids(first.leader_and_isr, second.leader_and_isr):
        return None
    first.leader_and_isr = _merge_leader_and_isr(first.leader_and_isr, second.leader_and_isr)
    first.update_metadata = _merge_metadata(first.update_metadata, second.update_metadata)
    first.stop_replica = _merge_stops(first.stop_replica, second.stop_replica)
    return first.in_order()


def _have_same_topic_ids(
    first: LeaderAndIsrRequest | None, second: LeaderAndIsrRequest | None
) -> bool:
    if first is None or second is None:
        return True
    topic_ids = {topic.topic_name: topic.topic_id for topic in first.topic_states}
    return all(
        topic_ids.get(topic.topic_name, topic.topic_id) == topic.topic_id
        for topic in second.topic_states
    )


# --- LeaderAndIsr


def _states(request: LeaderAndIsrRequest) -> dict[TopicPartition, LeaderAndIsrPartitionState]:
    return {
        TopicPartition(topic.topic_name, state.partition_index): state
        for topic in request.topic_states
        for state in topic.partition_states
    }


def _merge_leader_and_isr(
    first: LeaderAndIsrRequest | None, second: LeaderAndIsrRequest | None
) -> LeaderAndIsrRequest | None:
    if first is None or second is None:
        return first or second
    is_full = FULL in (first.type, second.type)
    earlier_states, later_states = _states(first), _states(second)
    if second.type == FULL:
        # What a full request lacks is no longer on the broker.
        earlier_states = {
            key: state for key, state in earlier_states.items() if key in later_states
        }
    states = earlier_states | later_states
    topic_ids = {
        topic.topic_name: topic.topic_id for topic in (*first.topic_states, *second.topic_states)
    }
    topics: dict[str, LeaderAndIsrTopicState] = {}
    for key, state in states.items():
        earlier = earlier_states.get(key)
        if earlier is not None and earlier.is_new and not state.is_new:
            state = _as_new(state)
        topic = topics.get(key.topic)
        if topic is None:
            topic = LeaderAndIsrTopicState(key.topic, topic_ids[key.topic], [])
            topics[key.topic] = topic
        topic.partition_states.append(state)
    leaders = {leader.broker_id: leader for leader in (*first.live_leaders, *second.live_leaders)}
    return LeaderAndIsrRequest(
        controller_id=second.controller_id,
        controller_epoch=second.controller_epoch,
        broker_epoch=second.broker_epoch,
        type=FULL if is_full else second.type,
        topic_states=list(topics.values()),
        live_leaders=list(leaders.values()),
    )


def _as_new(state: LeaderAndIsrPartitionState) -> LeaderAndIsrPartitionState:
    fields = {name: getattr(state, name) for name in state.__struct_fields__}
    return LeaderAndIsrPartitionState(**{**fields, "is_new": True})


# --- UpdateMetadata

_StateKey = tuple[str, TopicId, int]


def _metadata_states(
    request: UpdateMetadataRequest,
) -> dict[_StateKey, UpdateMetadataPartitionState]:
    return {
        (topic.topic_name, topic.topic_id, state.partition_index): state
        for topic in request.topic_states
        for state in topic.partition_states
    }


def _merge_metadata(
    first: UpdateMetadataRequest | None, second: UpdateMetadataRequest | None
) -> UpdateMetadataRequest | None:
    """The deletion of a topic has no topic id, so it keeps its place between the old topic and a
    new one of the same name: brokers apply the states of a request in order."""
    if first is None or second is None:
        return first or second
    if second.type == FULL:
        return second
    states = _metadata_states(first)
    for key, state in _metadata_states(second).items():
        states.pop(key, None)
        states[key] = state
    topics: list[UpdateMetadataTopicState] = []
    for (name, topic_id, _), state in states.items():
        if not topics or (topics[-1].topic_name, topics[-1].topic_id) != (name, topic_id):
            topics.append(UpdateMetadataTopicState(name, topic_id, []))
        topics[-1].partition_states.append(state)
    return UpdateMetadataRequest(
        controller_id=second.controller_id,
        type=first.type,
        controller_epoch=second.controller_epoch,
        broker_epoch=second.broker_epoch,
        topic_states=topics,
        live_brokers=second.live_brokers,
    )


# --- StopReplica


def _stops(request: StopReplicaRequest) -> dict[TopicPartition, bool]:
    return {
        TopicPartition(topic.topic_name, state.partition_index): state.delete_partition
        for topic in request.topic_states
        for state in topic.partition_states
    }


def _merge_stops(
    first: StopReplicaRequest | None, second: StopReplicaRequest | None
) -> StopReplicaRequest | None:
    """A replica that both stop is deleted if either does; the later epoch counts."""
    if first is None or second is None:
        return first or second
    deleted = _stops(first)
    states = {
        TopicPartition(topic.topic_name, state.partition_index): state
        for request in (first, second)
        for topic in request.topic_states
        for state in topic.partition_states
    }
    topics: dict[str, StopReplicaTopicState] = {}
    for key, state in states.items():
        if deleted.get(key) and not state.delete_partition:
            state = type(state)(state.partition_index, state.leader_epoch, True)
        topic = topics.setdefault(key.topic, StopReplicaTopicState(key.topic, []))
        topic.partition_states.append(state)
    return StopReplicaRequest(
        controller_id=second.controller_id,
        controller_epoch=second.controller_epoch,
        broker_epoch=second.broker_epoch,
        topic_states=list(topics.values()),
    )
