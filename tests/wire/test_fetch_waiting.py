"""Long polls: what ends a wait, and what does not (C1)."""

import time

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchRequest
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.protocol.requests import (
    batch_of,
    fetch_request,
    make_topic,
    partitions_of,
    produced,
    received,
    values_in,
)

LONG_MS = 15_000
"""Longer than any of these tests may take."""
SIZE = len(batch_of(b"1"))


def waiters(broker: RunningBroker, topic: str, *, committed: bool = False) -> int:
    def count(inside: object) -> int:
        replica = broker.app.broker.replicas.find(topic, 0)
        return len(replica.delayed_committed_fetches if committed else replica.delayed_fetches)

    return broker.call(count)


def begin(
    broker: RunningBroker, client: WireClient, request: FetchRequest, topic: str, version: int = 11
) -> None:
    """Sends a fetch that must wait, and makes sure that it does."""
    client.send(request, version)
    committed = request.isolation_level == 1
    while not waiters(broker, topic, committed=committed):
        time.sleep(0.001)


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("isolation", [0, 1])
def test_a_produce_wakes_it(
    broker: RunningBroker, client: WireClient, version: int, isolation: int
) -> None:
    topic = f"woken-{version}-{isolation}"
    make_topic(client, topic)
    request = fetch_request({topic: {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1, isolation=isolation)
    with broker.connect() as waiting:
        begin(broker, waiting, request, topic, version)
        produced(client, topic, b"news")
        (data,) = partitions_of(received(waiting, request, version)).values()
    assert values_in(data) == [b"news"]
    assert waiters(broker, topic, committed=bool(isolation)) == 0


def test_it_waits_for_min_bytes(broker: RunningBroker, client: WireClient) -> None:
    """Two small batches are not enough, the third is; all three come at once."""
    make_topic(client, "enough")
    request = fetch_request({"enough": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=3 * SIZE)
    with broker.connect() as waiting:
        begin(broker, waiting, request, "enough")
        for value in (b"1", b"2"):
            produced(client, "enough", value)
            assert waiters(broker, "enough") == 1
        produced(client, "enough", b"3")
        (data,) = partitions_of(received(waiting, request, 11)).values()
    assert values_in(data) == [b"1", b"2", b"3"]


def test_what_is_there_already_counts(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "part")
    produced(client, "part", b"1")
    request = fetch_request({"part": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=2 * SIZE)
    with broker.connect() as waiting:
        begin(broker, waiting, request, "part")
        produced(client, "part", b"2")
        (data,) = partitions_of(received(waiting, request, 11)).values()
    assert values_in(data) == [b"1", b"2"]


def test_bytes_of_all_partitions_count(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "spread", 2)
    request = fetch_request({"spread": {0: 0, 1: 0}}, max_wait_ms=LONG_MS, min_bytes=2 * SIZE)
    with broker.connect() as waiting:
        begin(broker, waiting, request, "spread")
        produced(client, "spread", b"1", partition=0)
        produced(client, "spread", b"2", partition=1)
        result = partitions_of(received(waiting, request, 11))
    assert [values_in(data) for data in result.values()] == [[b"1"], [b"2"]]


def test_more_than_fits_is_not_waited_for(client: WireClient) -> None:
    """min_bytes above max_bytes: a full response is sent at once, as Kafka's does."""
    make_topic(client, "full")
    produced(client, "full", b"x" * 1000)
    begun = time.monotonic()
    request = fetch_request({"full": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=100_000, max_bytes=500)
    (data,) = partitions_of(client.request(request, 11)).values()
    assert values_in(data) == [b"x" * 1000]
    assert time.monotonic() - begun < LONG_MS / 2000


@pytest.mark.parametrize("version", [4, 11, 12])
def test_without_data_it_lasts_as_long_as_it_was_asked_to(client: WireClient, version: int) -> None:
    """C1: no busy loop on an empty topic."""
    make_topic(client, f"silent-{version}")
    request = fetch_request({f"silent-{version}": {0: 0}}, max_wait_ms=150, min_bytes=1)
    begun = time.monotonic()
    (data,) = partitions_of(client.request(request, version)).values()
    assert time.monotonic() - begun >= 0.149
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (LONG_MS, 0), (-1, 1)])
def test_what_does_not_want_to_wait_does_not(
    client: WireClient, max_wait_ms: int, min_bytes: int
) -> None:
    topic = f"now-{max_wait_ms}-{min_bytes}"
    make_topic(client, topic)
    begun = time.monotonic()
    client.request(fetch_request({topic: {0: 0}}, max_wait_ms=max_wait_ms, min_bytes=min_bytes), 11)
    assert time.monotonic() - begun < LONG_MS / 2000


def test_an_error_does_not_wait(client: WireClient) -> None:
    make_topic(client, "error")
    begun = time.monotonic()
    request = fetch_request({"error": {0: 5}}, max_wait_ms=LONG_MS, min_bytes=1)
    (data,) = partitions_of(client.request(request, 11)).values()
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - begun < LONG_MS / 2000


@pytest.mark.parametrize("version", [11, 13])
def test_the_deletion_of_the_topic_wakes_it(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = f"deleted-{version}"
    topic_id = make_topic(client, topic)
    wanted = topic_id if version >= 13 else topic
    request = fetch_request({wanted: {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1)
    with broker.connect() as waiting:
        begin(broker, waiting, request, topic, version)
        deletion = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=1000)
        assert client.request(deletion, 6).responses[0].error_code == 0
        (data,) = partitions_of(received(waiting, request, version)).values()
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_records_wakes_it(broker: RunningBroker, client: WireClient) -> None:
    """A consumer at the end hears of the new start."""
    make_topic(client, "shortened")
    produced(client, "shortened", b"1", b"2")
    request = fetch_request({"shortened": {0: 2}}, max_wait_ms=LONG_MS, min_bytes=1)
    with broker.connect() as waiting:
        begin(broker, waiting, request, "shortened")
        partition = DeleteRecordsPartition(0, 2)
        deletion = DeleteRecordsRequest([DeleteRecordsTopic("shortened", [partition])], 1000)
        assert client.request(deletion, 2).topics[0].partitions[0].low_watermark == 2
        (data,) = partitions_of(received(waiting, request, 11)).values()
    assert (data.error_code, data.log_start_offset) == (0, 2)


@pytest.mark.parametrize("isolation", [0, 1])
def test_who_hangs_up_waits_no_longer(
    broker: RunningBroker, client: WireClient, isolation: int
) -> None:
    """A client that goes away while it waits, however long it wanted to, leaves nothing behind."""
    topic = f"gone-{isolation}"
    make_topic(client, topic)
    request = fetch_request(
        {topic: {0: 0}}, max_wait_ms=2**31 - 1, min_bytes=1, isolation=isolation
    )
    with broker.connect() as waiting:
        begin(broker, waiting, request, topic)
    while waiters(broker, topic, committed=bool(isolation)):
        time.sleep(0.001)
    assert produced(client, topic, b"1") == 0


def test_requests_behind_a_wait_are_served_and_answered_in_order(
    broker: RunningBroker, client: WireClient
) -> None:
    """The produce behind a fetch on the same connection is what ends its wait."""
    make_topic(client, "behind")
    request = fetch_request({"behind": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1)
    with broker.connect() as both:
        begin(broker, both, request, "behind")
        later = fetch_request({"behind": {0: 0}})
        produced(client, "behind", b"1")
        both.send(later, 11)
        for item in (request, later):
            (data,) = partitions_of(received(both, item, 11)).values()
            assert values_in(data) == [b"1"]


def test_many_wait_and_all_are_woken(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "crowd")
    clients = [broker.connect() for _ in range(20)]
    request = fetch_request({"crowd": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1)
    try:
        for entry in clients:
            entry.send(request, 11)
        while waiters(broker, "crowd") < len(clients):
            time.sleep(0.001)
        produced(client, "crowd", b"1")
        for element in clients:
            (data,) = partitions_of(received(element, request, 11)).values()
            assert values_in(data) == [b"1"]
    finally:
        for item in clients:
            item.close()
