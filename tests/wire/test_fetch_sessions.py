"""Incremental fetch sessions over the wire (KIP-227)."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.requests import (
    fetch_request,
    make_topic,
    partitions_of,
    produced,
    values_in,
)

VERSIONS = [7, 12, 13, 18]
SLOTS = 20


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"max.incremental.fetch.session.cache.slots": str(SLOTS)}


@pytest.fixture(autouse=True)
def no_sessions(broker: RunningBroker) -> None:
    """Each test finds all slots free."""
    broker.call(lambda inside: inside.fetch_sessions._sessions.clear())


def sessions(broker: RunningBroker) -> int:
    return broker.call(lambda inside: len(inside.fetch_sessions))


def topic_of(client: WireClient, name: str, version: int, partitions: int = 3) -> str | UUID:
    name = f"{name}-{version}"
    topic_id = make_topic(client, name, partitions)
    return topic_id if version >= 13 else name


def opened(client: WireClient, version: int, *topics: str | UUID, partitions: int = 3) -> int:
    """A session with some partitions, from offset 0 on; its id."""
    wanted = {topic: dict.fromkeys(range(partitions), 0) for topic in topics}
    response = client.request(fetch_request(wanted, session=(0, 0)), version)
    assert response.error_code == 0
    assert response.session_id > 0
    session_id: int = response.session_id
    return session_id


@pytest.mark.parametrize("version", VERSIONS)
def test_only_news_are_told(client: WireClient, version: int) -> None:
    topic = topic_of(client, "news", version)
    session_id = opened(client, version, topic)
    response = client.request(fetch_request({}, session=(session_id, 1)), version)
    assert (response.session_id, response.responses) == (session_id, [])
    produced(client, f"news-{version}", b"a", partition=1)
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 2)), version))
    assert list(result) == [(topic, 1)]
    assert values_in(result[topic, 1]) == [b"a"]
    # The client has not moved on, so the records are there again.
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 3)), version))
    assert list(result) == [(topic, 1)]
    request = fetch_request({topic: {1: 1}}, session=(session_id, 4))
    assert partitions_of(client.request(request, version)) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_come_and_go(client: WireClient, version: int) -> None:
    topic = topic_of(client, "changing", version)
    other = topic_of(client, "added", version)
    session_id = opened(client, version, topic)
    request = fetch_request({other: {0: 0}}, session=(session_id, 1), forgotten={topic: [0, 2]})
    result = partitions_of(client.request(request, version))
    assert list(result) == [(other, 0)], "what is new in the session is news"
    for partition in range(3):
        produced(client, f"changing-{version}", b"x", partition=partition)
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 2)), version))
    assert list(result) == [(topic, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_without_partitions_ends(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = topic_of(client, "emptied", version)
    session_id = opened(client, version, topic)
    request = fetch_request({}, session=(session_id, 1), forgotten={topic: [0, 1, 2]})
    response = client.request(request, version)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert sessions(broker) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_epoch(client: WireClient, version: int) -> None:
    topic = topic_of(client, "epochs", version)
    session_id = opened(client, version, topic)
    for epoch in (2, 7):
        response = client.request(fetch_request({}, session=(session_id, epoch)), version)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (response.session_id, response.responses) == (0, [])
    assert client.request(fetch_request({}, session=(session_id, 1)), version).error_code == 0
    again = client.request(fetch_request({}, session=(session_id, 1)), version)
    assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_session(client: WireClient, version: int) -> None:
    response = client.request(fetch_request({}, session=(12345, 1)), version)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_epoch_ends_the_session(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = topic_of(client, "final", version)
    session_id = opened(client, version, topic)
    response = client.request(fetch_request({topic: {0: 0}}, session=(session_id, -1)), version)
    assert (response.error_code, response.session_id) == (0, 0)
    assert list(partitions_of(response)) == [(topic, 0)], "all that is asked for is told"
    assert sessions(broker) == 0
    response = client.request(fetch_request({}, session=(session_id, 1)), version)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_request_takes_the_place_of_the_session(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = topic_of(client, "again", version)
    first = opened(client, version, topic)
    response = client.request(fetch_request({topic: {0: 0}}, session=(first, 0)), version)
    assert response.session_id not in (0, first)
    assert sessions(broker) == 1


def test_names_and_ids_do_not_mix(client: WireClient) -> None:
    make_topic(client, "by-name")
    session_id = opened(client, 12, "by-name", partitions=1)
    response = client.request(fetch_request({}, session=(session_id, 1)), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_all_slots_taken(broker: RunningBroker, client: WireClient) -> None:
    """Who comes too late does without a session, and is served all the same."""
    topic = topic_of(client, "slots", 11)
    ids = [opened(client, 11, topic) for _ in range(SLOTS)]
    response = client.request(fetch_request({topic: {0: 0}}, session=(0, 0)), 11)
    assert (response.error_code, response.session_id) == (0, 0)
    assert list(partitions_of(response)) == [(topic, 0)]
    assert sessions(broker) == SLOTS
    assert client.request(fetch_request({}, session=(ids[0], 1)), 11).error_code == 0


def test_who_was_silent_for_long_is_evicted(broker: RunningBroker, client: WireClient) -> None:
    topic = topic_of(client, "evicted", 11)
    ids = [opened(client, 11, topic) for _ in range(SLOTS)]
    assert client.request(fetch_request({}, session=(ids[0], 1)), 11).error_code == 0

    def silence(number: int) -> None:
        broker.call(
            lambda inside: setattr(
                inside.fetch_sessions._sessions[ids[number]], "last_used_ms", -(10**9)
            )
        )

    silence(1)
    response = client.request(fetch_request({topic: {0: 0}}, session=(0, 0)), 11)
    assert response.session_id > 0
    gone = client.request(fetch_request({}, session=(ids[1], 1)), 11)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.request(fetch_request({}, session=(ids[0], 2)), 11).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_deleted_in_a_session(client: WireClient, version: int) -> None:
    """Its partitions answer with an error, every time, until the client forgets them."""
    topic = topic_of(client, "deleted", version, 1)
    session_id = opened(client, version, topic, partitions=1)
    request = DeleteTopicsRequest([DeleteTopicState(f"deleted-{version}")], timeout_ms=1000)
    assert client.request(request, 6).responses[0].error_code == 0
    gone = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for epoch in (1, 2):
        result = partitions_of(
            client.request(fetch_request({}, session=(session_id, epoch)), version)
        )
        assert result[topic, 0].error_code in gone


@pytest.mark.parametrize("version", [13, 18])
def test_a_topic_that_is_made_again_is_another(client: WireClient, version: int) -> None:
    """The records of the new topic are not handed out under the id of the old one."""
    topic = topic_of(client, "reborn", version, 1)
    session_id = opened(client, version, topic, partitions=1)
    request = DeleteTopicsRequest([DeleteTopicState(f"reborn-{version}")], timeout_ms=1000)
    assert client.request(request, 6).responses[0].error_code == 0
    assert topic_of(client, "reborn", version, 1) != topic
    produced(client, f"reborn-{version}", b"new")
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 1)), version))
    assert result[topic, 0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert not result[topic, 0].records


@pytest.mark.parametrize("version", [4, 5, 6])
def test_older_versions_have_no_sessions(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = topic_of(client, "old", version)
    response = client.request(fetch_request({topic: {0: 0}}, session=(0, 0)), version)
    assert response.session_id == 0
    assert sessions(broker) == 0
