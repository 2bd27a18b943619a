"""Levels of the feature `transaction.version`, and a coordinator that cannot write (P4)."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.metadata.features import TRANSACTION_VERSION
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.enums import UpgradeType
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    nowhere,
    uncommitted,
    wait_for_state,
)
from tests.support.protocol.admin import TOPIC, alter
from tests.support.protocol.requests import make_topic

STATE = "__transaction_state"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
}
both_generations = pytest.mark.parametrize(
    "generation", Generation, ids=lambda generation: generation.name
)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return SETTINGS


def set_level(client: WireClient, level: int) -> None:
    for upgrade_type in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE):
        update = FeatureUpdateKey(TRANSACTION_VERSION, level, upgrade_type=upgrade_type)
        response = client.request(UpdateFeaturesRequest(feature_updates=[update]), 2)
        if response.error_code == 0:
            return
    raise AssertionError(response.error_message)


@pytest.fixture(params=[0, 1, 2])
def level(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[int]:
    """Sets the level of the feature during the test."""
    feature_level: int = request.param
    with broker.connect() as client:
        if feature_level != 2:
            set_level(client, feature_level)
        yield feature_level
        if feature_level != 2:
            set_level(client, 2)


@both_generations
def test_transactions_at_every_level(
    client: WireClient, level: int, generation: Generation
) -> None:
    """The request version decides what a client supports; records have the format of the level."""
    name = f"level-{level}-{generation.name}"
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"a")
    producer.commit()
    producer.write(name, b"b")
    producer.abort()
    producer.write(name, b"c")
    next_producer = TxnProducer.started(client, name, generation)
    assert next_producer.epoch == producer.epoch + 2
    late = producer.send(name, b"late")
    assert ErrorCode(late.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(commit=True) is ErrorCode.PRODUCER_FENCED
    next_producer.write(name, b"d")
    next_producer.commit()
    assert committed(client, name) == [b"a", b"d"]
    last = uncommitted(client, STATE)[-1]
    assert last is not None
    assert int.from_bytes(last[:2], "big") == (1 if level else 0)


@both_generations
def test_timeouts_at_every_level(client: WireClient, level: int, generation: Generation) -> None:
    name = f"timeout-{level}-{generation.name}"
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation, timeout_ms=50)
    producer.write(name, b"x")
    state = wait_for_state(client, name, "CompleteAbort")
    assert state.producer_epoch == producer.epoch + 1
    data = fetched_committed(client, name)
    assert data.last_stable_offset == data.high_watermark == 2
    late = producer.send(name, b"late")
    assert ErrorCode(late.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("before", "after"), [(0, 2), (1, 2), (2, 1), (2, 0)])
@both_generations
def test_the_level_changes_during_a_transaction(
    tmp_path: Path, before: int, after: int, generation: Generation
) -> None:
    """The transaction continues, even after a restart."""
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t")
            if before != 2:
                set_level(client, before)
            producer = TxnProducer.started(client, "x", generation)
            producer.write("t", b"a")
            set_level(client, after)
            producer.write("t", b"b")
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            wait_for_state(client, "x", "Ongoing")
            producer.client = client
            producer.write("t", b"c")
            producer.commit()
            assert committed(client, "t") == [b"a", b"b", b"c"]
            producer.write("t", b"d")
            producer.abort()
            assert committed(client, "t") == [b"a", b"b", b"c"]


# --- a coordinator that cannot write


def test_a_too_large_transaction_record_adds_no_partitions(client: WireClient) -> None:
    """The transaction is unchanged, without the new partitions."""
    make_topic(client, "large", 60)
    producer = TxnProducer.started(client, "large", Generation.V1)
    producer.write("large", b"x")
    alter(client, TOPIC, STATE, {"max.message.bytes": "200"})
    try:
        code = producer.add({"large": range(60)})
        assert code is ErrorCode.UNKNOWN_SERVER_ERROR
        (topic,) = described(client, "large").topics
        assert topic.partitions == [0]
    finally:
        alter(client, TOPIC, STATE, {"max.message.bytes": None})
    assert producer.add({"large": range(60)}) is ErrorCode.NONE
    producer.commit()
    assert committed(client, "large") == [b"x"]


def test_a_transaction_stays_open_if_its_end_cannot_be_written(client: WireClient) -> None:
    """The transaction stays open, and the response has an error."""
    make_topic(client, "end")
    producer = TxnProducer.started(client, "end")
    producer.write("end", b"x")
    alter(client, TOPIC, STATE, {"max.message.bytes": "20"})
    try:
        assert producer.end(commit=True) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert described(client, "end").transaction_state == "Ongoing"
        assert committed(client, "end") == []
    finally:
        alter(client, TOPIC, STATE, {"max.message.bytes": None})
    producer.commit()
    assert committed(client, "end") == [b"x"]


def test_the_completion_is_retried_if_it_cannot_be_written(
    broker: RunningBroker, client: WireClient
) -> None:
    """The markers are written; the completion is written later."""
    make_topic(client, "completion")
    producer = TxnProducer.started(client, "completion")
    producer.write("completion", b"x")

    def limit(inside: Broker, size: int) -> None:
        log = inside.replicas.find(STATE, 0).log
        log.config = replace(log.config, max_message_bytes=size)

    def hook(inside: Broker) -> None:
        write = inside.txn_markers.write

        async def write_then_limit(
            marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
        ) -> dict[TopicPartition, ErrorCode]:
            del inside.txn_markers.write, inside.txn_markers.write_at_once
            written = await write(marker, partitions)
            limit(inside, 20)
            return written

        inside.txn_markers.write = write_then_limit  # type: ignore[method-assign]
        inside.txn_markers.write_at_once = nowhere  # type: ignore[method-assign]

    broker.call(hook)
    assert producer.end(commit=True) is ErrorCode.NONE
    deadline = time.monotonic() + 10
    while committed(client, "completion") != [b"x"]:
        assert time.monotonic() < deadline, "the marker is not written"
        time.sleep(0.001)
    assert described(client, "completion").transaction_state == "PrepareCommit"
    early = producer.send("completion", b"y")
    assert ErrorCode(early.error_code) is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.call(lambda inside: limit(inside, 1_000_000))
    wait_for_state(client, "completion", "CompleteCommit")
    producer.write("completion", b"y")
    producer.commit()
    assert committed(client, "completion") == [b"x", b"y"]
