"""Fetch over many partitions: full responses, quiet partitions, records that are not in memory."""

import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.storage.log.log import Log
from penstock.storage.log.read_ahead import ReadAhead
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.requests import (
    fetch_request,
    make_topic,
    partitions_of,
    produced,
    values_in,
)

VERSION = 17
RECORD = b"r" * 1000
ROOM = 3500
"""For three of the batches that hold one RECORD."""


def filled(client: WireClient, topic: str, partitions: int) -> UUID:
    topic_id = make_topic(client, topic, partitions)
    for partition in range(partitions):
        produced(client, topic, RECORD, partition=partition)
    return topic_id


def told(
    client: WireClient, topic: UUID, offsets: dict[int, int], session: tuple[int, int]
) -> tuple[dict[int, int], int]:
    """How many records came from each partition in the response, and the session's id."""
    request = fetch_request({topic: offsets} if offsets else {}, max_bytes=ROOM, session=session)
    response = client.request(request, VERSION)
    assert response.error_code == 0
    result = partitions_of(response)
    assert {data.error_code for data in result.values()} <= {0}
    return {index: len(values_in(data)) for (_, index), data in result.items()}, response.session_id


def test_a_full_answer_leaves_the_rest_to_the_next(client: WireClient) -> None:
    """C1: in a session, partitions that did not fit are not looked at, and come first next."""
    topic = filled(client, "full", 8)
    response, session = told(client, topic, dict.fromkeys(range(8), 0), (0, 0))
    assert response == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}
    response, _ = told(client, topic, {0: 1, 1: 1, 2: 1}, (session, 1))
    assert response == {3: 1, 4: 1, 5: 1}
    response, _ = told(client, topic, {3: 1, 4: 1, 5: 1}, (session, 2))
    assert response == {6: 1, 7: 1}
    response, _ = told(client, topic, {6: 1, 7: 1}, (session, 3))
    assert response == {}


def test_what_did_not_fit_is_found_without_a_session(client: WireClient) -> None:
    """Without a session every partition is in the response, also those that had no room."""
    topic = filled(client, "no-session", 5)
    response, _ = told(client, topic, dict.fromkeys(range(5), 0), (0, -1))
    assert response == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0}


def test_a_quiet_partition_is_told_when_it_changes(client: WireClient) -> None:
    """The high watermark and the log start offset are news, records or not."""
    topic = filled(client, "quiet", 3)
    _, session = told(client, topic, dict.fromkeys(range(3), 1), (0, 0))
    assert told(client, topic, {}, (session, 1))[0] == {}
    produced(client, "quiet", RECORD, partition=1)
    assert told(client, topic, {}, (session, 2))[0] == {1: 1}
    delete = DeleteRecordsRequest([DeleteRecordsTopic("quiet", [DeleteRecordsPartition(2, 1)])])
    assert client.request(delete, 2).topics[0].partitions[0].low_watermark == 1
    assert told(client, topic, {1: 2}, (session, 3))[0] == {2: 0}
    assert told(client, topic, {}, (session, 4))[0] == {}


def test_a_leader_epoch_that_grew_old_is_told_to_quiet_partitions(
    broker: RunningBroker, client: WireClient
) -> None:
    """R4: nothing to read and no news, but a client that is behind the leader must hear of it."""
    topic = filled(client, "fenced", 1)
    request = fetch_request({topic: {0: 1}}, session=(0, 0), leader_epoch=0)
    session = client.request(request, VERSION).session_id
    assert not client.request(fetch_request({}, session=(session, 1)), VERSION).responses

    def renew(inside: Broker) -> None:
        inside.replicas.find("fenced", 0).partition.leader_epoch = 1

    broker.call(renew)
    response = client.request(fetch_request({}, session=(session, 2)), VERSION)
    ((_, data),) = partitions_of(response).items()
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_what_is_not_in_memory_is_read_by_a_thread(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that are long out of the page cache never hold up the event loop."""
    topic = filled(client, "cold", 2)
    threads: list[str] = []

    class Cold:
        def __init__(self, run: Callable[[], None]) -> None:
            self.run = run

    def of(log: Log, offset: int, max_bytes: int) -> Cold | None:
        if log.partition != TopicPartition("cold", 1):
            return None
        return Cold(lambda: threads.append(threading.current_thread().name))

    monkeypatch.setattr(ReadAhead, "of", of)
    response, _ = told(client, topic, {0: 0, 1: 0}, (0, -1))
    assert response == {0: 1, 1: 1}
    (thread,) = threads
    assert thread != "broker under test"
