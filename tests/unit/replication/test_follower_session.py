"""Fetch sessions of followers with more partitions than a request may name (R2)."""

from uuid import UUID

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.core.ids import TopicPartition
from penstock.protocol.codec import decoder, encode
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from penstock.replication.follower_fetch_state import PartitionFetchState
from penstock.replication.follower_session import (
    MAX_PARTITIONS,
    FetcherSettings,
    ReplicaFetchSession,
)
from tests.sim.replication_log import SimLog

SETTINGS = FetcherSettings(1)
WAIT_MS = SETTINGS.replica_fetch_wait_max_ms


def states(count: int) -> list[PartitionFetchState]:
    """Partitions of different topics."""
    return [
        PartitionFetchState(TopicPartition(f"t{n}", 0), UUID(int=n + 1), 3, SimLog())
        for n in range(count)
    ]


def session_of(fetched: list[PartitionFetchState], max_partitions: int) -> ReplicaFetchSession:
    session = ReplicaFetchSession(SETTINGS, max_partitions)
    for state in fetched:
        session.put(state)
    return session


def build(session: ReplicaFetchSession) -> FetchRequest:
    request, offline = session.build(broker_epoch=1)
    assert request is not None
    assert not offline
    return request


def named(request: FetchRequest) -> list[int]:
    return [topic.topic_id.int - 1 for topic in request.topics]


def respond(session: ReplicaFetchSession, request: FetchRequest, session_id: int = 9) -> None:
    """The leader responds to all named partitions of a full request, and to none of others."""
    topics = request.topics if request.session_epoch == 0 else []
    session.handle_response(
        FetchResponse(
            session_id=session_id,
            responses=[
                FetchableTopicResponse(topic_id=topic.topic_id, partitions=[FetchPartitionData(0)])
                for topic in topics
            ],
        )
    )


def test_the_next_requests_of_the_session_name_the_others() -> None:
    session = session_of(states(5), 2)
    seen = []
    for _ in range(4):
        request = build(session)
        seen.append((request.session_id, request.session_epoch, named(request)))
        is_complete = len(seen) >= 3
        assert request.max_wait_ms == (WAIT_MS if is_complete else 0)
        respond(session, request)
    assert seen == [(0, 0, [0, 1]), (9, 1, [2, 3]), (9, 2, [4]), (9, 3, [])]


def test_changes_meanwhile_come_after_them() -> None:
    fetched = states(5)
    session = session_of(fetched, 2)
    respond(session, build(session))
    session.put(fetched[0])
    session.drop(fetched[3])
    assert named(build(session)) == [2, 4]
    respond(session, FetchRequest(session_epoch=1))
    assert named(build(session)) == [0]


def test_dropped_partitions_are_part_of_the_limit() -> None:
    fetched = states(4)
    session = session_of(fetched, 2)
    for _ in range(2):
        respond(session, build(session))
    for state in fetched[:3]:
        session.drop(state)
    session.put(fetched[3])
    seen = []
    for _ in range(3):
        request = build(session)
        forgotten = [topic.topic_id.int - 1 for topic in request.forgotten_topics_data]
        seen.append((named(request), forgotten))
        respond(session, request)
    assert seen == [([3], [0]), ([], [1, 2]), ([], [])]


def test_after_an_error_the_session_starts_over() -> None:
    session = session_of(states(3), 2)
    respond(session, build(session))
    build(session)
    session.handle_failure()
    request = build(session)
    assert (request.session_epoch, named(request)) == (0, [0, 1])
    respond(session, request)
    assert named(build(session)) == [2]


def test_a_leader_without_sessions_is_asked_for_all_in_turn() -> None:
    session = session_of(states(5), 2)
    seen: list[list[int]] = []
    for _ in range(3):
        request = build(session)
        # It does not poll as fast as it can.
        assert request.max_wait_ms == (WAIT_MS if seen else 0)
        seen.append(named(request))
        respond(session, request, session_id=0)
    assert seen == [[0, 1], [2, 3], [4, 0]]


@pytest.mark.parametrize("version", [15, 17])
def test_a_leader_accepts_the_largest_request(version: int) -> None:
    session = session_of(states(MAX_PARTITIONS + 1), MAX_PARTITIONS)
    request = build(session)
    assert len(request.topics) == MAX_PARTITIONS
    max_elements = BrokerConfig.from_properties({}).int("socket.request.max.elements")
    decoder(FetchRequest, version)(memoryview(encode(request, version)), 0, max_elements)
