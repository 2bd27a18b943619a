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
    produce_values,
    values_in,
)

VERSIONS = [7, 12, 13, 18]
SLOTS = 20


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"max.incremental.fetch.session.cache.slots": str(SLOTS)}


@pytest.fixture(autouse=True)
def no_sessions(broker: RunningBroker) -> None:
    """Frees all slots before each test."""
    broker.call(lambda inside: inside.fetch_sessions._sessions.clear())


def session_count(broker: RunningBroker) -> int:
    return broker.call(lambda inside: len(inside.fetch_sessions))


def create_topic_key(
    client: WireClient, name: str, version: int, partitions: int = 3
) -> str | UUID:
    name = f"{name}-{version}"
    topic_id = make_topic(client, name, partitions)
    return topic_id if version >= 13 else name


def open_session(client: WireClient, version: int, *topics: str | UUID, partitions: int = 3) -> int:
    """Opens a session with some partitions, from offset 0 on; returns its id."""
    offsets = {topic: dict.fromkeys(range(partitions), 0) for topic in topics}
    response = client.request(fetch_request(offsets, session=(0, 0)), version)
    assert response.error_code == 0
    assert response.session_id > 0
    session_id: int = response.session_id
    return session_id


@pytest.mark.parametrize("version", VERSIONS)
def test_only_changed_partitions_are_returned(client: WireClient, version: int) -> None:
    topic = create_topic_key(client, "news", version)
    session_id = open_session(client, version, topic)
    response = client.request(fetch_request({}, session=(session_id, 1)), version)
    assert (response.session_id, response.responses) == (session_id, [])
    produce_values(client, f"news-{version}", b"a", partition=1)
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 2)), version))
    assert list(result) == [(topic, 1)]
    assert values_in(result[topic, 1]) == [b"a"]
    # The client has not advanced its position, so the records are returned again.
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 3)), version))
    assert list(result) == [(topic, 1)]
    request = fetch_request({topic: {1: 1}}, session=(session_id, 4))
    assert partitions_of(client.request(request, version)) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_are_added_and_removed(client: WireClient, version: int) -> None:
    topic = create_topic_key(client, "changing", version)
    added_topic = create_topic_key(client, "added", version)
    session_id = open_session(client, version, topic)
    request = fetch_request(
        {added_topic: {0: 0}}, session=(session_id, 1), forgotten={topic: [0, 2]}
    )
    result = partitions_of(client.request(request, version))
    assert list(result) == [(added_topic, 0)], "an added partition is in the response"
    for partition in range(3):
        produce_values(client, f"changing-{version}", b"x", partition=partition)
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 2)), version))
    assert list(result) == [(topic, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_without_partitions_ends(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = create_topic_key(client, "emptied", version)
    session_id = open_session(client, version, topic)
    request = fetch_request({}, session=(session_id, 1), forgotten={topic: [0, 1, 2]})
    response = client.request(request, version)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert session_count(broker) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_epoch_is_rejected(client: WireClient, version: int) -> None:
    topic = create_topic_key(client, "epochs", version)
    session_id = open_session(client, version, topic)
    for epoch in (2, 7):
        response = client.request(fetch_request({}, session=(session_id, epoch)), version)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (response.session_id, response.responses) == (0, [])
    assert client.request(fetch_request({}, session=(session_id, 1)), version).error_code == 0
    repeated = client.request(fetch_request({}, session=(session_id, 1)), version)
    assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_session_is_rejected(client: WireClient, version: int) -> None:
    response = client.request(fetch_request({}, session=(12345, 1)), version)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_epoch_ends_the_session(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = create_topic_key(client, "final", version)
    session_id = open_session(client, version, topic)
    response = client.request(fetch_request({topic: {0: 0}}, session=(session_id, -1)), version)
    assert (response.error_code, response.session_id) == (0, 0)
    assert list(partitions_of(response)) == [(topic, 0)], "every requested partition is returned"
    assert session_count(broker) == 0
    response = client.request(fetch_request({}, session=(session_id, 1)), version)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_request_replaces_the_session(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = create_topic_key(client, "again", version)
    first = open_session(client, version, topic)
    response = client.request(fetch_request({topic: {0: 0}}, session=(first, 0)), version)
    assert response.session_id not in (0, first)
    assert session_count(broker) == 1


def test_a_session_cannot_switch_from_names_to_ids(client: WireClient) -> None:
    make_topic(client, "by-name")
    session_id = open_session(client, 12, "by-name", partitions=1)
    response = client.request(fetch_request({}, session=(session_id, 1)), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_without_a_free_slot_no_session_is_created(
    broker: RunningBroker, client: WireClient
) -> None:
    """A client without a slot gets the data without a session."""
    topic = create_topic_key(client, "slots", 11)
    ids = [open_session(client, 11, topic) for _ in range(SLOTS)]
    response = client.request(fetch_request({topic: {0: 0}}, session=(0, 0)), 11)
    assert (response.error_code, response.session_id) == (0, 0)
    assert list(partitions_of(response)) == [(topic, 0)]
    assert session_count(broker) == SLOTS
    assert client.request(fetch_request({}, session=(ids[0], 1)), 11).error_code == 0


def test_an_idle_session_is_evicted(broker: RunningBroker, client: WireClient) -> None:
    topic = create_topic_key(client, "evicted", 11)
    ids = [open_session(client, 11, topic) for _ in range(SLOTS)]
    assert client.request(fetch_request({}, session=(ids[0], 1)), 11).error_code == 0

    def make_idle(number: int) -> None:
        broker.call(
            lambda inside: setattr(
                inside.fetch_sessions._sessions[ids[number]], "last_used_ms", -(10**9)
            )
        )

    make_idle(1)
    response = client.request(fetch_request({topic: {0: 0}}, session=(0, 0)), 11)
    assert response.session_id > 0
    evicted = client.request(fetch_request({}, session=(ids[1], 1)), 11)
    assert evicted.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.request(fetch_request({}, session=(ids[0], 2)), 11).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_deleted_topic_has_an_error_in_the_session(client: WireClient, version: int) -> None:
    """Its partitions have an error in every response until the client removes them."""
    topic = create_topic_key(client, "deleted", version, 1)
    session_id = open_session(client, version, topic, partitions=1)
    request = DeleteTopicsRequest([DeleteTopicState(f"deleted-{version}")], timeout_ms=1000)
    assert client.request(request, 6).responses[0].error_code == 0
    unknown_topic_codes = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for epoch in (1, 2):
        result = partitions_of(
            client.request(fetch_request({}, session=(session_id, epoch)), version)
        )
        assert result[topic, 0].error_code in unknown_topic_codes


@pytest.mark.parametrize("version", [13, 18])
def test_a_recreated_topic_is_not_the_topic_of_the_session(
    client: WireClient, version: int
) -> None:
    """Records of the new topic are not returned for the id of the old one."""
    topic = create_topic_key(client, "reborn", version, 1)
    session_id = open_session(client, version, topic, partitions=1)
    request = DeleteTopicsRequest([DeleteTopicState(f"reborn-{version}")], timeout_ms=1000)
    assert client.request(request, 6).responses[0].error_code == 0
    assert create_topic_key(client, "reborn", version, 1) != topic
    produce_values(client, f"reborn-{version}", b"new")
    result = partitions_of(client.request(fetch_request({}, session=(session_id, 1)), version))
    assert result[topic, 0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert not result[topic, 0].records


@pytest.mark.parametrize("version", [4, 5, 6])
def test_older_versions_have_no_sessions(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = create_topic_key(client, "old", version)
    response = client.request(fetch_request({topic: {0: 0}}, session=(0, 0)), version)
    assert response.session_id == 0
    assert session_count(broker) == 0


def test_a_topic_that_was_unknown_when_the_session_began(
    broker: RunningBroker, client: WireClient
) -> None:
    """A broker that has just started learns its topics after the first fetch."""
    topic_ids = [make_topic(client, f"learned-{number}", 1) for number in range(2)]
    for number in range(2):
        produce_values(client, f"learned-{number}", b"a")
    names = broker.call(lambda inside: [inside.image.topic_names.pop(key) for key in topic_ids])
    offsets: dict[str | UUID, dict[int, int]] = {topic_id: {0: 0} for topic_id in topic_ids}
    response = client.request(fetch_request(offsets, session=(0, 0)), 18)
    errors = {key: data.error_code for key, data in partitions_of(response).items()}
    assert errors == {(topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID for topic_id in topic_ids}
    broker.call(lambda inside: inside.image.topic_names.update(zip(topic_ids, names, strict=True)))
    session = (response.session_id, 1)
    result = partitions_of(client.request(fetch_request({}, session=session), 18))
    assert {key: values_in(data) for key, data in result.items()} == {
        (topic_id, 0): [b"a"] for topic_id in topic_ids
    }
