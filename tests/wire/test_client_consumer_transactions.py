"""Consumers of transactional records and of logs with gaps."""

import random
from collections.abc import Iterator

import pytest

from penstock.client.consumer.consumer import Consumer
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_consumer import at, consumer_of, polled, until, values
from tests.support.coordinator.transaction_client import TxnProducer
from tests.support.protocol.requests import NOW, batch_of, make_topic, produce_values, send_batch


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0.0",
    }


@pytest.fixture
def committed(broker: RunningBroker) -> Iterator[Consumer]:
    with consumer_of(broker, isolation_level="read_committed") as consumer:
        yield consumer


def test_read_committed_skips_aborted_transactions(
    broker: RunningBroker, client: WireClient, committed: Consumer
) -> None:
    """Three producers randomly write, commit and abort."""
    make_topic(client, "mixed")
    rng = random.Random(11)
    producers = [TxnProducer.started(client, f"mixed-{number}") for number in range(3)]
    written: list[list[bytes]] = [[] for _ in producers]
    visible: set[bytes] = set()
    everything: list[bytes] = []
    for step in range(40):
        index = rng.randrange(3)
        producer = producers[index]
        if written[index] and rng.random() < 0.35:
            if rng.random() < 0.5:
                producer.commit()
                visible |= set(written[index])
            else:
                producer.abort()
            written[index] = []
        elif rng.random() < 0.2:
            value = b"plain %d" % step
            produce_values(client, "mixed", value)
            visible.add(value)
            everything.append(value)
        else:
            values_ = [b"%d %d" % (step, number) for number in range(rng.randint(1, 3))]
            producer.write("mixed", *values_)
            written[index] += values_
            everything += values_
    for producer, open_ in zip(producers, written, strict=True):
        if open_:
            producer.abort()
    expected = [item for item in everything if item in visible]
    committed.assign([at("mixed")])
    assert values(polled(committed, len(expected), at_once=3)) == expected
    assert committed.poll(0.1) == []
    end = committed.end_offsets([at("mixed")])[at("mixed")]
    assert committed.position(at("mixed")) == end
    with consumer_of(broker) as consumer:
        consumer.assign([at("mixed")])
        assert values(polled(consumer, len(everything))) == everything
    committed.seek_to_beginning()
    columns: list[bytes] = []

    def poll() -> None:
        columns.extend(committed.poll_arrow(1.0).column("value").to_pylist())

    until(lambda: len(columns) >= len(expected), poll)
    assert columns == expected


def test_an_open_transaction_limits_read_committed(
    broker: RunningBroker, client: WireClient, committed: Consumer
) -> None:
    """C2: a read_committed consumer reads up to the last stable offset."""
    make_topic(client, "open")
    produce_values(client, "open", b"before")
    producer = TxnProducer.started(client, "open")
    producer.write("open", b"in it")
    produce_values(client, "open", b"after")
    committed.assign([at("open")])
    assert values(polled(committed, 1)) == [b"before"]
    assert committed.poll(0.15) == []
    assert committed.end_offsets([at("open")]) == {at("open"): 1}
    assert tuple(committed.watermarks(at("open"))) == (0, 1, 3)
    assert committed.current_lag(at("open")) == 0
    producer.commit()
    assert values(polled(committed, 2)) == [b"in it", b"after"]


def test_gaps_of_compaction_are_skipped(broker: RunningBroker, client: WireClient) -> None:
    """Positions advance over removed records, even at the end of a batch."""
    make_topic(
        client,
        "gaps",
        configs={"cleanup.policy": "compact", "segment.ms": "100"},
    )
    for index in range(6):
        for key in (b"x", b"y"):
            value = b"%s%d" % (key, index)
            # Distant timestamps give every round its own segment; all but the last are compacted.
            batch = batch_of(value, key=key, timestamp=NOW + 1000 * index)
            assert send_batch(client, "gaps", batch).error_code == 0

    def read() -> list[bytes]:
        with consumer_of(broker) as consumer:
            consumer.assign([at("gaps")])
            results: list[bytes] = []
            until(
                lambda: consumer.position(at("gaps")) >= 12,
                lambda: results.extend(values(consumer.poll(0.5))),
            )
            consumer.seek(at("gaps"), 1)
            repeated: list[bytes] = []
            until(
                lambda: consumer.position(at("gaps")) >= 12,
                lambda: repeated.extend(values(consumer.poll(0.5))),
            )
            assert repeated[-1] == results[-1]
            return results

    results: list[list[bytes]] = [read()]
    assert results[0][-2:] == [b"x5", b"y5"]
    until(lambda: len(results[-1]) < 6, lambda: results.append(read()))
    assert results[-1][-2:] == [b"x5", b"y5"]
    assert results[-1] == [item for item in results[0] if item in results[-1]]
