"""Long polls: events that end the wait of a fetch (C1)."""

import time
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchRequest
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.protocol.requests import (
    batch_of,
    fetch_request,
    make_topic,
    partitions_of,
    produce_values,
    receive_response,
    values_in,
)

LONG_MS = 15_000
"""Longer than any of these tests takes."""
SIZE = len(batch_of(b"1"))


def waiting_fetches(broker: RunningBroker, topic: str, *, committed: bool = False) -> int:
    def count(inside: object) -> int:
        replica = broker.app.broker.replicas.find(topic, 0)
        return len(replica.delayed_committed_fetches if committed else replica.delayed_fetches)

    return broker.call(count)


def send_waiting_fetch(
    broker: RunningBroker, client: WireClient, request: FetchRequest, topic: str, version: int = 11
) -> None:
    """Sends a fetch and waits until it is in purgatory."""
    client.send(request, version)
    committed = request.isolation_level == 1
    while not waiting_fetches(broker, topic, committed=committed):
        time.sleep(0.001)


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("isolation", [0, 1])
def test_a_produce_completes_a_waiting_fetch(
    broker: RunningBroker, client: WireClient, version: int, isolation: int
) -> None:
    topic = f"woken-{version}-{isolation}"
    make_topic(client, topic)
    request = fetch_request({topic: {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1, isolation=isolation)
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, topic, version)
        produce_values(client, topic, b"news")
        (data,) = partitions_of(receive_response(waiting, request, version)).values()
    assert values_in(data) == [b"news"]
    assert waiting_fetches(broker, topic, committed=bool(isolation)) == 0


def test_a_fetch_waits_for_min_bytes(broker: RunningBroker, client: WireClient) -> None:
    """Two small batches are not enough; with the third, all three are returned."""
    make_topic(client, "enough")
    request = fetch_request({"enough": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=3 * SIZE)
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, "enough")
        for value in (b"1", b"2"):
            produce_values(client, "enough", value)
            assert waiting_fetches(broker, "enough") == 1
        produce_values(client, "enough", b"3")
        (data,) = partitions_of(receive_response(waiting, request, 11)).values()
    assert values_in(data) == [b"1", b"2", b"3"]


def test_existing_records_count_towards_min_bytes(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "part")
    produce_values(client, "part", b"1")
    request = fetch_request({"part": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=2 * SIZE)
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, "part")
        produce_values(client, "part", b"2")
        (data,) = partitions_of(receive_response(waiting, request, 11)).values()
    assert values_in(data) == [b"1", b"2"]


def test_the_bytes_of_all_partitions_count_towards_min_bytes(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "spread", 2)
    request = fetch_request({"spread": {0: 0, 1: 0}}, max_wait_ms=LONG_MS, min_bytes=2 * SIZE)
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, "spread")
        produce_values(client, "spread", b"1", partition=0)
        produce_values(client, "spread", b"2", partition=1)
        result = partitions_of(receive_response(waiting, request, 11))
    assert [values_in(data) for data in result.values()] == [[b"1"], [b"2"]]


def test_a_full_response_does_not_wait_for_min_bytes(client: WireClient) -> None:
    """If min_bytes is larger than max_bytes, a full response is sent at once, as in Kafka."""
    make_topic(client, "full")
    produce_values(client, "full", b"x" * 1000)
    started = time.monotonic()
    request = fetch_request({"full": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=100_000, max_bytes=500)
    (data,) = partitions_of(client.request(request, 11)).values()
    assert values_in(data) == [b"x" * 1000]
    assert time.monotonic() - started < LONG_MS / 2000


@pytest.mark.parametrize("partitions", [1, 3])
def test_min_bytes_above_the_brokers_fetch_max_bytes(tmp_path: Path, partitions: int) -> None:
    """A response never has more than the broker's fetch.max.bytes: a full one does not wait."""
    settings = {"fetch.max.bytes": "2000"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "bounded", partitions)
        offsets = dict.fromkeys(range(partitions), 0)
        request = fetch_request({"bounded": offsets}, max_wait_ms=LONG_MS, min_bytes=100_000)
        with broker.connect() as waiting:
            send_waiting_fetch(broker, waiting, request, "bounded")
            produce_values(client, "bounded", b"x" * 800)
            assert waiting_fetches(broker, "bounded") == 1
            for number in range(3):
                partition = number % partitions
                produce_values(client, "bounded", b"x" * 1000, partition=partition)
            response = partitions_of(receive_response(waiting, request, 11))
        assert sum(len(values_in(data)) for data in response.values()) == 2
        started = time.monotonic()
        response = partitions_of(client.request(request, 11))
        assert sum(len(values_in(data)) for data in response.values()) >= 1
        assert time.monotonic() - started < LONG_MS / 2000


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_without_data_waits_for_max_wait_ms(client: WireClient, version: int) -> None:
    """C1: no busy loop on an empty topic."""
    make_topic(client, f"silent-{version}")
    request = fetch_request({f"silent-{version}": {0: 0}}, max_wait_ms=150, min_bytes=1)
    started = time.monotonic()
    (data,) = partitions_of(client.request(request, version)).values()
    assert time.monotonic() - started >= 0.149
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (LONG_MS, 0), (-1, 1)])
def test_a_fetch_without_a_wait_returns_at_once(
    client: WireClient, max_wait_ms: int, min_bytes: int
) -> None:
    topic = f"now-{max_wait_ms}-{min_bytes}"
    make_topic(client, topic)
    started = time.monotonic()
    client.request(fetch_request({topic: {0: 0}}, max_wait_ms=max_wait_ms, min_bytes=min_bytes), 11)
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_fetch_with_an_error_returns_at_once(client: WireClient) -> None:
    make_topic(client, "error")
    started = time.monotonic()
    request = fetch_request({"error": {0: 5}}, max_wait_ms=LONG_MS, min_bytes=1)
    (data,) = partitions_of(client.request(request, 11)).values()
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - started < LONG_MS / 2000


@pytest.mark.parametrize("version", [11, 13])
def test_deleting_the_topic_completes_a_waiting_fetch(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    topic = f"deleted-{version}"
    topic_id = make_topic(client, topic)
    topic_key = topic_id if version >= 13 else topic
    request = fetch_request({topic_key: {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1)
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, topic, version)
        deletion = DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=1000)
        assert client.request(deletion, 6).responses[0].error_code == 0
        (data,) = partitions_of(receive_response(waiting, request, version)).values()
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_records_completes_a_waiting_fetch(
    broker: RunningBroker, client: WireClient
) -> None:
    """A consumer at the log end is notified of the new log start offset."""
    make_topic(client, "shortened")
    produce_values(client, "shortened", b"1", b"2")
    request = fetch_request({"shortened": {0: 2}}, max_wait_ms=LONG_MS, min_bytes=1)
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, "shortened")
        partition = DeleteRecordsPartition(0, 2)
        deletion = DeleteRecordsRequest([DeleteRecordsTopic("shortened", [partition])], 1000)
        assert client.request(deletion, 2).topics[0].partitions[0].low_watermark == 2
        (data,) = partitions_of(receive_response(waiting, request, 11)).values()
    assert (data.error_code, data.log_start_offset) == (0, 2)


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_waiting_fetch_is_removed_when_its_client_disconnects(
    broker: RunningBroker, client: WireClient, isolation: int
) -> None:
    """The fetch is removed when its client disconnects, whatever its max_wait_ms."""
    topic = f"disconnected-{isolation}"
    make_topic(client, topic)
    request = fetch_request(
        {topic: {0: 0}}, max_wait_ms=2**31 - 1, min_bytes=1, isolation=isolation
    )
    with broker.connect() as waiting:
        send_waiting_fetch(broker, waiting, request, topic)
    while waiting_fetches(broker, topic, committed=bool(isolation)):
        time.sleep(0.001)
    assert produce_values(client, topic, b"1") == 0


def test_responses_after_a_waiting_fetch_keep_their_order(
    broker: RunningBroker, client: WireClient
) -> None:
    """A fetch on the same connection as a waiting one gets its response after it."""
    make_topic(client, "behind")
    request = fetch_request({"behind": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1)
    with broker.connect() as consumer:
        send_waiting_fetch(broker, consumer, request, "behind")
        later = fetch_request({"behind": {0: 0}})
        produce_values(client, "behind", b"1")
        consumer.send(later, 11)
        for item in (request, later):
            (data,) = partitions_of(receive_response(consumer, item, 11)).values()
            assert values_in(data) == [b"1"]


def test_a_produce_completes_many_waiting_fetches(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "crowd")
    clients = [broker.connect() for _ in range(20)]
    request = fetch_request({"crowd": {0: 0}}, max_wait_ms=LONG_MS, min_bytes=1)
    try:
        for consumer in clients:
            consumer.send(request, 11)
        while waiting_fetches(broker, "crowd") < len(clients):
            time.sleep(0.001)
        produce_values(client, "crowd", b"1")
        for consumer in clients:
            (data,) = partitions_of(receive_response(consumer, request, 11)).values()
            assert values_in(data) == [b"1"]
    finally:
        for item in clients:
            item.close()
