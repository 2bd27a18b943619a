"""Fetch of many partitions: full responses, unchanged partitions, records not in memory."""

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
from penstock.storage.file_cache import CachedFile
from penstock.storage.log.log import Log
from penstock.storage.log.read_ahead import ReadAhead
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.requests import (
    fetch_request,
    make_topic,
    partitions_of,
    produce_values,
    values_in,
)

VERSION = 17
RECORD = b"r" * 1000
MAX_BYTES = 3500
"""Enough for three batches with one RECORD each."""


def create_filled_topic(client: WireClient, topic: str, partitions: int) -> UUID:
    topic_id = make_topic(client, topic, partitions)
    for partition in range(partitions):
        produce_values(client, topic, RECORD, partition=partition)
    return topic_id


def fetch_counts(
    client: WireClient, topic: UUID, offsets: dict[int, int], session: tuple[int, int]
) -> tuple[dict[int, int], int]:
    """Returns the number of records in the response by partition, and the session id."""
    request = fetch_request(
        {topic: offsets} if offsets else {}, max_bytes=MAX_BYTES, session=session
    )
    response = client.request(request, VERSION)
    assert response.error_code == 0
    result = partitions_of(response)
    assert {data.error_code for data in result.values()} <= {0}
    return {index: len(values_in(data)) for (_, index), data in result.items()}, response.session_id


def test_the_next_fetch_starts_with_partitions_that_did_not_fit(client: WireClient) -> None:
    """C1: in a session, partitions that did not fit are read first by the next fetch."""
    topic = create_filled_topic(client, "full", 8)
    counts, session = fetch_counts(client, topic, dict.fromkeys(range(8), 0), (0, 0))
    assert counts == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}
    counts, _ = fetch_counts(client, topic, {0: 1, 1: 1, 2: 1}, (session, 1))
    assert counts == {3: 1, 4: 1, 5: 1}
    counts, _ = fetch_counts(client, topic, {3: 1, 4: 1, 5: 1}, (session, 2))
    assert counts == {6: 1, 7: 1}
    counts, _ = fetch_counts(client, topic, {6: 1, 7: 1}, (session, 3))
    assert counts == {}


def test_partitions_that_did_not_fit_are_listed_without_a_session(client: WireClient) -> None:
    """Without a session, every partition is in the response, even if its records did not fit."""
    topic = create_filled_topic(client, "no-session", 5)
    counts, _ = fetch_counts(client, topic, dict.fromkeys(range(5), 0), (0, -1))
    assert counts == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0}


def test_a_session_returns_only_changed_partitions(client: WireClient) -> None:
    """A new high watermark or log start offset counts as a change, with or without records."""
    topic = create_filled_topic(client, "quiet", 3)
    _, session = fetch_counts(client, topic, dict.fromkeys(range(3), 1), (0, 0))
    assert fetch_counts(client, topic, {}, (session, 1))[0] == {}
    produce_values(client, "quiet", RECORD, partition=1)
    assert fetch_counts(client, topic, {}, (session, 2))[0] == {1: 1}
    delete = DeleteRecordsRequest([DeleteRecordsTopic("quiet", [DeleteRecordsPartition(2, 1)])])
    assert client.request(delete, 2).topics[0].partitions[0].low_watermark == 1
    assert fetch_counts(client, topic, {1: 2}, (session, 3))[0] == {2: 0}
    assert fetch_counts(client, topic, {}, (session, 4))[0] == {}


def test_an_unchanged_partition_reports_a_fenced_leader_epoch(
    broker: RunningBroker, client: WireClient
) -> None:
    """R4: the error is sent even if there is nothing to read and nothing has changed."""
    topic = create_filled_topic(client, "fenced", 1)
    request = fetch_request({topic: {0: 1}}, session=(0, 0), leader_epoch=0)
    session = client.request(request, VERSION).session_id
    assert not client.request(fetch_request({}, session=(session, 1)), VERSION).responses

    def raise_leader_epoch(inside: Broker) -> None:
        inside.replicas.find("fenced", 0).partition.leader_epoch = 1

    broker.call(raise_leader_epoch)
    response = client.request(fetch_request({}, session=(session, 2)), VERSION)
    ((_, data),) = partitions_of(response).items()
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_records_that_are_not_in_memory_are_read_by_a_thread(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading records that are not in the page cache never blocks the event loop."""
    topic = create_filled_topic(client, "cold", 2)
    threads: list[str] = []

    class ColdRead:
        def __init__(self, file: CachedFile, run: Callable[[], None]) -> None:
            self.file = file
            self.run = run

    def cold_read(log: Log, offset: int, max_bytes: int) -> ColdRead | None:
        if log.partition != TopicPartition("cold", 1):
            return None
        file = log.local.segments.active.file
        return ColdRead(file, lambda: threads.append(threading.current_thread().name))

    monkeypatch.setattr(ReadAhead, "of", cold_read)
    counts, _ = fetch_counts(client, topic, {0: 0, 1: 0}, (0, -1))
    assert counts == {0: 1, 1: 1}
    (thread,) = threads
    assert thread != "broker under test"
