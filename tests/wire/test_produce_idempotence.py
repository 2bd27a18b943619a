"""Idempotent producers over the wire, before and after restarts (P3)."""

import time
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.protocol.requests import (
    batch_of,
    fetch_partition,
    make_topic,
    new_producer,
    send_batch,
    values_in,
)


def send(
    client: WireClient, topic: str, producer: tuple[int, int], sequence: int, *values: bytes
) -> tuple[ErrorCode, int]:
    now_ms = time.time_ns() // 1_000_000  # producer state expires after a day
    batch = batch_of(*values, producer=(*producer, sequence), timestamp=now_ms)
    response = send_batch(client, topic, batch)
    return ErrorCode(response.error_code), response.base_offset


def test_a_duplicate_returns_the_first_offset(client: WireClient) -> None:
    """P3: applies to the last five batches; the log does not grow."""
    make_topic(client, "duplicates")
    producer = new_producer(client)
    for sequence in range(0, 12, 2):
        assert send(client, "duplicates", producer, sequence, b"a", b"b") == (0, sequence)
    for sequence in (2, 4, 6, 8, 10):
        assert send(client, "duplicates", producer, sequence, b"a", b"b") == (0, sequence)
    code, _ = send(client, "duplicates", producer, 0, b"a", b"b")
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (
        "only the last five batches are remembered"
    )
    assert fetch_partition(client, "duplicates").high_watermark == 12


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_duplicate_returns_the_largest_timestamp_of_the_first(
    client: WireClient, version: int, kind: str
) -> None:
    """As in Kafka, even if the timestamps are those of the producer."""
    topic = f"times-{kind}-{version}"
    make_topic(client, topic, configs={"message.timestamp.type": kind})
    producer = new_producer(client)
    now_ms = time.time_ns() // 1_000_000
    first = send_batch(
        client, topic, batch_of(b"a", b"b", producer=(*producer, 0), timestamp=now_ms)
    )
    duplicate = send_batch(
        client,
        topic,
        batch_of(b"a", b"b", producer=(*producer, 0), timestamp=now_ms + 50),
        version=version,
    )
    expected = now_ms + 1 if kind == "CreateTime" else first.log_append_time_ms
    assert (duplicate.error_code, duplicate.base_offset) == (0, 0)
    assert duplicate.log_append_time_ms == expected > 0


def test_a_sequence_gap_is_rejected(client: WireClient) -> None:
    make_topic(client, "gaps")
    producer = new_producer(client)
    assert send(client, "gaps", producer, 0, b"a") == (0, 0)
    assert send(client, "gaps", producer, 2, b"c") == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(client, "gaps", producer, 1, b"b") == (0, 1)
    assert values_in(fetch_partition(client, "gaps")) == [b"a", b"b"]


def test_an_old_epoch_is_fenced_and_a_new_one_starts_over(client: WireClient) -> None:
    make_topic(client, "epochs")
    producer_id, epoch = new_producer(client)
    assert send(client, "epochs", (producer_id, epoch), 0, b"a") == (0, 0)
    assert send(client, "epochs", (producer_id, epoch + 1), 0, b"b") == (0, 1)
    code, offset = send(client, "epochs", (producer_id, epoch), 1, b"c")
    assert (code, offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    code, _ = send(client, "epochs", (producer_id, epoch + 2), 5, b"d")
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_are_per_partition(client: WireClient) -> None:
    make_topic(client, "two", 2)
    producer = new_producer(client)
    for partition in (0, 1):
        batch = batch_of(b"a", producer=(*producer, 0))
        assert send_batch(client, "two", batch, partition=partition).base_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_sequences_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    """P3: from the snapshot after a clean stop, or from the log without snapshots."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        make_topic(client, "t")
        producer = new_producer(client)
        assert send(client, "t", producer, 0, b"a", b"b") == (0, 0)
        assert send(client, "t", producer, 2, b"c") == (0, 2)
    if not clean:
        for snapshot in (tmp_path / "data" / "t-0").glob("*.snapshot"):
            snapshot.unlink()
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert send(client, "t", producer, 2, b"c") == (0, 2)
        assert send(client, "t", producer, 4, b"e")[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, "t", producer, 3, b"d") == (0, 3)
        assert values_in(fetch_partition(client, "t")) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("version", [0, 2, 5])
def test_producer_ids_are_unique(client: WireClient, version: int) -> None:
    ids = [new_producer(client, version) for _ in range(5)]
    assert len(set(ids)) == 5
    assert {epoch for _, epoch in ids} == {0}


def test_producer_ids_are_not_reused_after_restarts(tmp_path: Path) -> None:
    """P3: a block of ids is allocated in the store before its first id is used."""
    used_ids: set[int] = set()
    for _ in range(3):
        with running_broker(tmp_path) as broker, broker.connect() as client:
            ids = [new_producer(client)[0] for _ in range(3)]
        assert not used_ids & set(ids)
        used_ids.update(ids)


def test_more_producer_ids_than_a_block(client: WireClient) -> None:
    requests = [InitProducerIdRequest(None, 0) for _ in range(1100)]
    for request in requests:
        client.send(request, 4)
    responses = [client.receive(request, 4) for request in requests]
    assert len({getattr(response, "producer_id", None) for response in responses}) == 1100


@pytest.mark.parametrize("version", [0, 2, 5])
def test_a_transactional_id_without_a_coordinator_is_rejected(
    client: WireClient, version: int
) -> None:
    """No client has looked for a coordinator, so `__transaction_state` does not exist."""
    response = client.request(InitProducerIdRequest("t", 1000), version)
    assert (response.error_code, response.producer_id) == (ErrorCode.NOT_COORDINATOR, -1)
    assert response.producer_epoch == -1


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_producer_id_and_epoch_must_be_given_together(
    client: WireClient, producer_id: int, epoch: int
) -> None:
    response = client.request(InitProducerIdRequest(None, 0, producer_id, epoch), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_producers_are_described(client: WireClient) -> None:
    """P3: producer id, epoch and last sequence; errors are per partition."""
    make_topic(client, "described")
    producer_id, epoch = new_producer(client)
    send(client, "described", (producer_id, epoch), 0, b"a", b"b", b"c")
    request = DescribeProducersRequest(
        [
            DescribeProducersTopicRequest("described", [0, 1]),
            DescribeProducersTopicRequest("unknown", [0]),
        ]
    )
    topics = client.request(request, 0).topics
    result, missing = topics[0].partitions
    assert result.error_code == 0
    (state,) = result.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer_id, epoch, 2)
    assert state.current_txn_start_offset == -1
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_code == topics[1].partitions[0].error_code == unknown
    assert missing.error_message
