"""KIP-227: the consumer's fetch session against a model of the broker's."""

from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consumer.fetch_session import (
    FetchRequestData,
    FetchSessionHandler,
    PartitionRequest,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)

IDS = {"a": UUID(int=1), "b": UUID(int=2), "c": UUID(int=3)}
PARTITIONS = [TopicPartition(topic, index) for topic in IDS for index in range(3)]


def partition_request(offset: int = 0, topic_id: UUID = ZERO_UUID) -> PartitionRequest:
    return PartitionRequest(topic_id, offset, 1000, 0)


def partition_requests(
    offsets: dict[TopicPartition, int],
) -> dict[TopicPartition, PartitionRequest]:
    return {key: partition_request(offset, IDS[key.topic]) for key, offset in offsets.items()}


class BrokerSession:
    """A model of the fetch sessions of a broker."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[tuple[UUID, int], int]]] = {}
        self.next_id = 100
        self.has_room = True

    def serve(self, request: FetchRequestData) -> FetchResponse:
        session_id, epoch = request.session_id, request.epoch
        if epoch in (0, -1):
            self.sessions.pop(session_id, None)
            partitions: dict[tuple[UUID, int], int] = {}
        elif session_id not in self.sessions:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        else:
            expected, partitions = self.sessions[session_id]
            if epoch != expected:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for removed in request.forgotten_topics(13):
            for index in removed.partitions:
                del partitions[removed.topic_id, index]
        for topic in request.topics():
            for partition in topic.partitions:
                partitions[topic.topic_id, partition.partition] = partition.fetch_offset
        if epoch == 0 and self.has_room:
            session_id, self.next_id = self.next_id, self.next_id + 1
        elif epoch == 0:
            return fetch_response(partitions, 0)
        self.sessions[session_id] = (epoch + 1, partitions)
        # An incremental response has only changed partitions; here, those with even offsets.
        received = [
            partition_data
            for partition_data in partitions
            if epoch == 0 or partitions[partition_data] % 2 == 0
        ]
        return fetch_response(received, session_id)


def fetch_response(partitions: Iterable[tuple[UUID, int]], session_id: int) -> FetchResponse:
    topics: dict[UUID, FetchableTopicResponse] = {}
    for topic_id, index in partitions:
        topics.setdefault(
            topic_id, FetchableTopicResponse(topic_id=topic_id, partitions=[])
        ).partitions.append(FetchPartitionData(partition_index=index))
    return FetchResponse(session_id=session_id, responses=list(topics.values()))


steps = st.tuples(
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 5)),
    st.sampled_from(
        ["delivered", "delivered", "delivered", "lost", "request lost", "evicted", "full"]
    ),
)


@given(st.lists(steps, max_size=30))
def test_both_sides_agree_on_the_session_whatever_is_lost(
    history: list[tuple[dict[TopicPartition, int], str]],
) -> None:
    session, broker = FetchSessionHandler(), BrokerSession()
    agreed = False
    for offsets, outcome in history:
        broker.has_room = outcome != "full"
        if outcome == "evicted":
            broker.sessions.clear()
        request = session.build(partition_requests(offsets))
        if outcome == "request lost":
            session.handle_error()
            continue
        response = broker.serve(request)
        if outcome == "lost":
            session.handle_error()
            agreed = False
            continue
        is_accepted = request.session_id in broker.sessions or request.epoch == 0
        results = session.handle_response(response)
        if not is_accepted:
            assert results is None
            agreed = False
        elif results is not None:
            assert set(results) <= set(offsets)
            if response.session_id:
                assert broker.sessions[response.session_id][1] == {
                    (IDS[key.topic], key.partition): offset for key, offset in offsets.items()
                }
                agreed = True
        # Whatever happened, a session that both have is never out of step.
        if agreed and session.session_id in broker.sessions and not session.is_full:
            assert broker.sessions[session.session_id][0] == session.epoch


def test_only_changes_are_sent() -> None:
    session = FetchSessionHandler()
    first = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
    request = session.build(partition_requests(dict.fromkeys(first, 0)))
    assert (request.session_id, request.epoch) == (0, 0)
    assert list(request.to_send) == list(first)
    results = session.handle_response(
        fetch_response([(IDS["a"], 0), (IDS["a"], 1), (IDS["b"], 0)], 7)
    )
    assert results is not None
    assert set(results) == set(first)
    request = session.build(
        partition_requests({first[0]: 5, first[1]: 0, TopicPartition("c", 0): 0})
    )
    assert (request.session_id, request.epoch) == (7, 1)
    assert list(request.to_send) == [TopicPartition("c", 0), first[0]]
    assert request.to_forget == ((IDS["b"], first[2]),)
    assert set(request.partitions) == {first[0], first[1], TopicPartition("c", 0)}
    assert session.handle_response(fetch_response([], 7)) == {}
    assert session.build(session.partitions).to_send == {}


def test_a_recreated_topic_is_replaced() -> None:
    session = FetchSessionHandler()
    partition = TopicPartition("a", 0)
    session.build({partition: partition_request(4, UUID(int=1))})
    session.handle_response(fetch_response([(UUID(int=1), 0)], 7))
    request = session.build({partition: partition_request(0, UUID(int=9))})
    assert request.to_replace == ((UUID(int=1), partition),)
    assert [topic.topic_id for topic in request.forgotten_topics(13)] == [UUID(int=1)]
    assert request.forgotten_topics(12) == []
    assert [topic_data.topic_id for topic_data in request.topics()] == [UUID(int=9)]


@pytest.mark.parametrize(("topic_ids", "uses"), [((1, 2), True), ((1, 0), False), ((0, 0), False)])
def test_topic_ids_are_used_if_all_are_known(topic_ids: tuple[int, int], uses: bool) -> None:
    session = FetchSessionHandler()
    requested = {
        TopicPartition(topic, 0): partition_request(0, UUID(int=number))
        for topic, number in zip("ab", topic_ids, strict=True)
    }
    assert session.build(requested).uses_topic_ids is uses


def test_responses_of_old_brokers_have_topic_names() -> None:
    session = FetchSessionHandler()
    partition = TopicPartition("a", 3)
    session.build({partition: partition_request()})
    data = FetchPartitionData(partition_index=3)
    results = session.handle_response(
        FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=[data])])
    )
    assert results == {partition: data}
    assert session.is_full  # a broker without sessions gets everything each time


def test_a_throttled_or_unexpected_response_restarts_the_session() -> None:
    session = FetchSessionHandler()
    session.build(partition_requests({TopicPartition("a", 0): 0}))
    assert session.handle_response(FetchResponse(throttle_time_ms=10)) is None
    assert (session.session_id, session.epoch) == (0, 0)
    session.build(partition_requests({TopicPartition("a", 0): 0}))
    assert session.handle_response(fetch_response([(UUID(int=77), 0)], 5)) is None


def test_epochs_wrap() -> None:
    session = FetchSessionHandler()
    session.build(partition_requests({TopicPartition("a", 0): 0}))
    session.handle_response(fetch_response([(IDS["a"], 0)], 7))
    session.epoch = 2**31 - 1
    session.handle_response(fetch_response([], 7))
    assert session.epoch == 1


def test_closing_ends_the_session() -> None:
    session = FetchSessionHandler()
    session.build(partition_requests({TopicPartition("a", 0): 0}))
    session.handle_response(fetch_response([(IDS["a"], 0)], 7))
    request = session.closing_request()
    assert (request.session_id, request.epoch, dict(request.to_send)) == (7, -1, {})
