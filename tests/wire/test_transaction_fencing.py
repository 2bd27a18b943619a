"""Fencing of transactional producers (P4, KIP-360, KIP-890)."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.coordinator.txn.metadata import TransactionMetadata, record_of
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    find_coordinator,
    latest,
    nowhere,
    produce_request,
    txn_batch,
    uncommitted,
    until_ready,
    wait_for_state,
)
from tests.support.protocol.requests import make_topic

both_generations = pytest.mark.parametrize(
    "generation", Generation, ids=lambda generation: generation.name
)
LAST_EPOCH = 32_767


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {"transaction.state.log.num.partitions": "3", "transaction.max.timeout.ms": "70000"}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic and transactional id that no other test uses."""
    text: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in text)


# --- another producer


@both_generations
def test_a_second_producer_fences_the_first(
    client: WireClient, name: str, generation: Generation
) -> None:
    """The open transaction of the first producer is aborted and cannot be committed any more."""
    make_topic(client, name)
    old = TxnProducer.started(client, name, generation)
    old.write(name, b"old")
    new = TxnProducer(client, name, generation)
    first = client.request(InitProducerIdRequest(name, 60_000), new.versions.init)
    assert ErrorCode(first.error_code) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (first.producer_id, first.producer_epoch) == (-1, -1)
    assert new.init().error_code == 0
    assert new.producer_id == old.producer_id
    assert new.epoch == old.epoch + 2, "one epoch to fence with, and one to continue with"
    assert fetched_committed(client, name).last_stable_offset == 2
    response = old.send(name, b"late")
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    for version in range(6):
        code = client.request(old.end_request(commit=True), version).error_code
        expected_code = (
            ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert ErrorCode(code) is expected_code
    for version in range(4):
        old.versions = old.versions._replace(add=version)
        expected_code = (
            ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert old.add({name: [0]}) is expected_code
    for version in range(5):
        expected_code = (
            ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert old.add_offsets("g", version) is expected_code
    for version in (3, 4, 5):
        init_request = InitProducerIdRequest(name, 60_000, old.producer_id, old.epoch)
        expected_code = (
            ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert ErrorCode(client.request(init_request, version).error_code) is expected_code
    new.write(name, b"new")
    new.commit()
    assert committed(client, name) == [b"new"]
    assert uncommitted(client, name) == [b"old", b"new"]


@both_generations
def test_a_second_producer_without_an_open_transaction(
    client: WireClient, name: str, generation: Generation
) -> None:
    make_topic(client, name)
    old = TxnProducer.started(client, name, generation)
    old.write(name, b"old")
    old.commit()
    before = old.epoch
    new = TxnProducer.started(client, name, generation)
    assert (new.producer_id, new.epoch) == (old.producer_id, before + 1)
    new.write(name, b"new")
    assert ErrorCode(old.send(name, b"late").error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.end(commit=False) is ErrorCode.PRODUCER_FENCED
    new.commit()
    assert committed(client, name) == [b"old", b"new"]


def test_the_producer_id_of_another_transactional_id_is_rejected(
    client: WireClient, name: str
) -> None:
    """INVALID_PRODUCER_ID_MAPPING: the producer id belongs to another transactional id."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, Generation.V1)
    another = TxnProducer.started(client, f"{name}-other")
    producer.producer_id = another.producer_id
    for version in range(6):
        code = client.request(producer.end_request(commit=True), version).error_code
        assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.add({name: [0]}) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.add_offsets("g") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for version in (11, 12):
        code = producer.send(name, b"x", version=version).error_code
        assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.init(keep=True).error_code == ErrorCode.PRODUCER_FENCED


# --- the same producer, again (KIP-360)


@both_generations
def test_a_producer_continues_with_the_next_epoch_after_an_error(
    client: WireClient, name: str, generation: Generation
) -> None:
    """It sends its current epoch to get the next one; a repeated request has the same result."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    request = InitProducerIdRequest(name, 60_000, producer.producer_id, producer.epoch)
    for _ in range(2):
        response = client.request(request, producer.versions.init)
        assert (response.error_code, response.producer_epoch) == (0, 1)
    producer.take_over(response)
    producer.write(name, b"x")
    producer.commit()
    assert committed(client, name) == [b"x"]


@both_generations
def test_initializing_again_aborts_the_open_transaction(
    client: WireClient, name: str, generation: Generation
) -> None:
    """Its open transaction is aborted, and it continues with the epoch that fenced it."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"x")
    before = producer.epoch
    response = producer.init(keep=True)
    assert (response.error_code, response.producer_epoch) == (0, before + 1)
    producer.write(name, b"y")
    producer.commit()
    assert committed(client, name) == [b"y"]


def test_an_expired_producer_gets_a_new_producer_id(client: WireClient, name: str) -> None:
    """The coordinator has no state to compare the producer id and epoch with."""
    find_coordinator(client, name)
    response = client.request(InitProducerIdRequest(name, 60_000, 123_456, 7), 4)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    assert response.producer_id != 123_456


# --- the last epoch


def set_epoch(broker: RunningBroker, name: str, epoch: int) -> None:
    """Sets the epoch of a transactional id, as if it had been read from a record."""

    def change(inside: Broker) -> None:
        transactions = inside.transactions
        partition = transactions.partition_for(name)
        assert partition is not None
        shard = transactions._shards[partition]
        assert shard is not None
        metadata: TransactionMetadata = shard.transactions[name]
        shard.apply(record_of(replace(metadata, producer_epoch=epoch), 2))

    broker.call(change)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_the_last_epoch_returns_a_new_producer_id(
    broker: RunningBroker, client: WireClient, name: str, commit: bool
) -> None:
    """Version 2: at the end of a transaction; a repeated request gets the same response."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    set_epoch(broker, name, LAST_EPOCH - 2)
    producer.epoch = LAST_EPOCH - 2
    producer.write(name, b"a")
    producer.commit()
    assert producer.epoch == LAST_EPOCH - 1
    producer.write(name, b"b")
    old = producer.producer_id
    request = producer.end_request(commit=commit)
    first = client.request(request, 5)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != old
    wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
    repeated = client.request(request, 5)
    assert (repeated.error_code, repeated.producer_id, repeated.producer_epoch) == (
        0,
        first.producer_id,
        0,
    )
    producer.take_over(repeated)
    producer.write(name, b"c")
    producer.commit()
    assert producer.epoch == 1
    assert committed(client, name) == ([b"a", b"b", b"c"] if commit else [b"a", b"c"])
    for epoch in (LAST_EPOCH - 1, LAST_EPOCH):
        batch = txn_batch(old, epoch, 9, b"late")
        late = client.request(produce_request(name, {(name, 0): batch}), 12)
        code = late.responses[0].partition_responses[0].error_code
        assert ErrorCode(code) in (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )


@both_generations
def test_initializing_after_the_last_epoch_returns_a_new_producer_id(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation
) -> None:
    """InitProducerId returns a new producer id and aborts the open transaction first."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    set_epoch(broker, name, LAST_EPOCH - 1)
    producer.epoch = LAST_EPOCH - 1
    producer.write(name, b"a")
    new = TxnProducer.started(client, name, generation)
    assert new.producer_id != producer.producer_id
    assert new.epoch <= 1
    assert committed(client, name) == []
    assert fetched_committed(client, name).last_stable_offset == 2
    assert ErrorCode(producer.send(name, b"late").error_code) in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )
    new.write(name, b"b")
    new.commit()
    assert committed(client, name) == [b"b"]


# --- markers between the verification and the append


class PausedVerification:
    """Delays the coordinator's response to the verification of a first batch."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self.verified = threading.Event()
        self._resume: asyncio.Event

    def __enter__(self) -> "PausedVerification":
        self._broker.call(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        def unhook(inside: Broker) -> None:
            del inside.transactions.add_partitions
            self._resume.set()

        self._broker.call(unhook)

    def _hook(self, inside: Broker) -> None:
        add_partitions = inside.transactions.add_partitions
        self._resume = asyncio.Event()

        async def delayed(*args: Any, **kwargs: Any) -> Any:
            response = await add_partitions(*args, **kwargs)
            self.verified.set()
            await self._resume.wait()
            return response

        inside.transactions.add_partitions = delayed  # type: ignore[method-assign]

    def release(self) -> None:
        self._broker.call(lambda _: self._resume.set())


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_before_the_first_append_rejects_the_batch(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation, commit: bool
) -> None:
    """The transaction ends while its first batch waits: the batch is rejected and nothing hangs."""
    make_topic(client, name, 2)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"elsewhere", partition=1)
    if generation is Generation.V1:
        assert producer.add({name: [0]}) is ErrorCode.NONE
    with (
        ThreadPoolExecutor(1) as pool,
        PausedVerification(broker) as paused,
        broker.connect() as second,
    ):
        batch = producer.batch(name, b"late")
        request = produce_request(name, {(name, 0): batch})
        sending = pool.submit(second.request, request, producer.versions.produce)
        assert paused.verified.wait(10)
        assert producer.end(commit=commit) is ErrorCode.NONE
        wait_for_state(client, name, "CompleteCommit" if commit else "CompleteAbort")
        paused.release()
        code = sending.result(10).responses[0].partition_responses[0].error_code
    expected_code = (
        ErrorCode.INVALID_TXN_STATE
        if generation is Generation.V1
        else ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert ErrorCode(code) is expected_code
    data = fetched_committed(client, name)
    assert data.last_stable_offset == data.high_watermark == 1, "the marker"
    producer.write(name, b"next")
    producer.commit()
    assert committed(client, name) == [b"next"]


def test_a_late_marker_does_not_end_the_next_transaction(
    broker: RunningBroker, client: WireClient, name: str
) -> None:
    """Version 2: the marker arrives while the first batch of the next transaction waits."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name)
    producer.write(name, b"a")
    release = broker.call(lambda inside: hold_markers(inside))
    assert producer.end(commit=True) is ErrorCode.NONE
    with ThreadPoolExecutor(1) as pool, broker.connect() as second:
        batch = producer.batch(name, b"b")
        request = produce_request(name, {(name, 0): batch})
        code = client.request(request, 12).responses[0].partition_responses[0].error_code
        assert ErrorCode(code) is ErrorCode.CONCURRENT_TRANSACTIONS, (
            "it waited as long as configured"
        )

        def send_until_accepted() -> int:
            while True:
                response = second.request(request, 12).responses[0].partition_responses[0]
                if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    code: int = response.error_code
                    return code

        sending = pool.submit(send_until_accepted)
        time.sleep(0.05)
        broker.call(lambda _: release())
        assert sending.result(10) == 0
    assert producer.end(commit=True) is ErrorCode.NONE
    wait_for_state(client, name, "CompleteCommit")
    assert committed(client, name) == [b"a", b"b"]


def hold_markers(inside: Broker) -> Callable[[], None]:
    """Delays markers until the returned function is called."""
    write = inside.txn_markers.write
    resume = asyncio.Event()

    async def delayed(marker: WritableTxnMarker, partitions: Any) -> Any:
        await resume.wait()
        return await write(marker, partitions)

    inside.txn_markers.write = delayed  # type: ignore[method-assign]
    inside.txn_markers.write_at_once = nowhere  # type: ignore[method-assign]

    def release() -> None:
        del inside.txn_markers.write, inside.txn_markers.write_at_once
        resume.set()

    return release


@both_generations
def test_requests_are_retriable_while_markers_are_written(
    broker: RunningBroker, client: WireClient, name: str, generation: Generation
) -> None:
    """Other requests must be retried until the markers are written, and the outcome is final."""
    make_topic(client, name)
    producer = TxnProducer.started(client, name, generation)
    producer.write(name, b"a")
    release = broker.call(lambda inside: hold_markers(inside))
    end = producer.end_request(commit=True)
    assert client.request(end, producer.versions.end).error_code == 0
    assert described(client, name).transaction_state == "PrepareCommit"
    assert committed(client, name) == []
    for commit in (True, False):
        end.committed = commit
        code = client.request(end, producer.versions.end).error_code
        assert ErrorCode(code) is ErrorCode.CONCURRENT_TRANSACTIONS
    code = client.request(InitProducerIdRequest(name, 60_000), producer.versions.init).error_code
    assert ErrorCode(code) is ErrorCode.CONCURRENT_TRANSACTIONS
    broker.call(lambda _: release())
    wait_for_state(client, name, "CompleteCommit")
    assert committed(client, name) == [b"a"]


# --- timeouts


@pytest.mark.parametrize("version", range(6))
def test_the_transaction_timeout_is_limited(client: WireClient, name: str, version: int) -> None:
    """`transaction.max.timeout.ms` is 70 s here."""
    find_coordinator(client, name)
    for timeout_ms, code in (
        (70_000, ErrorCode.NONE),
        (70_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ):
        response = until_ready(client, InitProducerIdRequest(name, timeout_ms), version)
        assert ErrorCode(response.error_code) is code


QUICK = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    "transactional.id.expiration.ms": "150",
}


@both_generations
def test_a_transaction_that_times_out_is_aborted(tmp_path: Path, generation: Generation) -> None:
    """The coordinator aborts it and fences its producer, which must initialize again."""
    settings = {**QUICK, "transactional.id.expiration.ms": "600000"}
    with watching(), running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t", 2)
        producer = TxnProducer.started(client, "slow", generation, timeout_ms=100)
        producer.write("t", b"x")
        assert committed(client, "t") == []
        state = wait_for_state(client, "slow", "CompleteAbort")
        assert state.producer_epoch == producer.epoch + 1
        data = fetched_committed(client, "t")
        assert data.last_stable_offset == data.high_watermark == 2
        for partition in (0, 1):
            code = producer.send("t", b"late", partition=partition).error_code
            assert ErrorCode(code) is ErrorCode.INVALID_PRODUCER_EPOCH
        # Version 2 cannot distinguish it from the end of a transaction whose response was lost.
        end_code = producer.end(commit=True)
        if generation is Generation.V1:
            assert end_code is ErrorCode.PRODUCER_FENCED
        else:
            assert end_code is ErrorCode.INVALID_TXN_STATE
        producer.timeout_ms = 60_000
        assert producer.init(keep=True).error_code == 0
        producer.write("t", b"y")
        producer.commit()
        assert committed(client, "t") == [b"y"]
        assert latest(client, "t", 0, 1) == 0


def test_unused_transactional_ids_expire(tmp_path: Path) -> None:
    """`transactional.id.expiration.ms` does not apply while a transaction is open."""
    with watching(), running_broker(tmp_path, QUICK) as broker, broker.connect() as client:
        make_topic(client, "t")
        for generation in Generation:
            TxnProducer.started(client, generation.name, generation)
        busy = TxnProducer.started(client, "busy")
        busy.write("t", b"x")
        deadline = time.monotonic() + 10
        for generation in Generation:
            while described(client, generation.name).error_code == 0:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            code = described(client, generation.name).error_code
            assert ErrorCode(code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert described(client, "busy").transaction_state == "Ongoing"
        busy.commit()
        assert committed(client, "t") == [b"x"]
    with running_broker(tmp_path, QUICK) as broker, broker.connect() as client:
        old = TxnProducer(client, "V2")
        assert old.init().producer_epoch == 0, "the transactional id starts from epoch 0"


def test_a_marker_for_an_unknown_partition_has_an_error(broker: RunningBroker) -> None:
    """The error is per partition."""
    marker = WritableTxnMarker(77, 0, True, coordinator_epoch=0)
    nowhere = TopicPartition("nowhere", 0)
    written = broker.wait(lambda inside: inside.txn_markers.write(marker, [nowhere]))
    assert written == {nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
