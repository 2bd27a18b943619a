"""Transactions of a broker that stops or is killed: fully committed or fully aborted (P4, S7)."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    described,
    fetched_committed,
    nowhere,
    uncommitted,
    until_ready,
    wait_for_state,
)
from tests.support.protocol.requests import make_topic

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
KILLS = 2
both_generations = pytest.mark.parametrize(
    "generation", Generation, ids=lambda generation: generation.name
)


def reconnect(producer: TxnProducer, client: WireClient) -> TxnProducer:
    """Lets the producer continue with another connection."""
    producer.client = client
    return producer


def lose_markers(broker: RunningBroker, but: Iterable[TopicPartition] = ()) -> None:
    """Writes markers only to the partitions in `but` until the broker stops."""
    allowed = frozenset(but)

    def hook(inside: Broker) -> None:
        write = inside.txn_markers.write

        async def write_allowed(
            marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
        ) -> dict[TopicPartition, ErrorCode]:
            requested = list(partitions)
            result = await write(
                marker, [partition for partition in requested if partition in allowed]
            )
            return {
                partition: result.get(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                for partition in requested
            }

        inside.txn_markers.write = write_allowed  # type: ignore[method-assign]
        inside.txn_markers.write_at_once = nowhere  # type: ignore[method-assign]

    broker.call(hook)


@both_generations
@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_continues_after_a_restart(
    tmp_path: Path, generation: Generation, commit: bool
) -> None:
    """Its producer continues after the restart."""
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t", 2)
            producer = TxnProducer.started(client, "x", generation)
            producer.write("t", b"before")
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            wait_for_state(client, "x", "Ongoing")
            assert fetched_committed(client, "t").last_stable_offset == 0
            reconnect(producer, client).write("t", b"after")
            producer.write("t", b"new", partition=1)
            (producer.commit if commit else producer.abort)()
            assert committed(client, "t") == ([b"before", b"after"] if commit else [])
            assert committed(client, "t", 1) == ([b"new"] if commit else [])
            producer.write("t", b"next")
            producer.commit()


@both_generations
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("written", [(), (0,), (0, 1)])
def test_a_prepared_transaction_completes_after_a_restart(
    tmp_path: Path, generation: Generation, commit: bool, written: tuple[int, ...]
) -> None:
    """The missing markers are written, whichever exist already."""
    marked_partitions = [TopicPartition("t", index) for index in written]
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t", 3)
            producer = TxnProducer.started(client, "x", generation)
            for partition in range(3):
                producer.write("t", b"x", partition=partition)
            lose_markers(broker, marked_partitions)
            assert producer.end(commit=commit) is ErrorCode.NONE
            state = "PrepareCommit" if commit else "PrepareAbort"
            assert described(client, "x").transaction_state == state
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            wait_for_state(client, "x", "CompleteCommit" if commit else "CompleteAbort")
            for partition in range(3):
                assert committed(client, "t", partition) == ([b"x"] if commit else [])
                data = fetched_committed(client, "t", partition)
                assert data.last_stable_offset == data.high_watermark
            reconnect(producer, client).write("t", b"y")
            producer.commit()
            assert committed(client, "t")[-1] == b"y"


@both_generations
def test_an_end_can_be_repeated_after_a_restart(tmp_path: Path, generation: Generation) -> None:
    """The response was lost with the connection."""
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t")
            producer = TxnProducer.started(client, "x", generation)
            producer.write("t", b"x")
            lose_markers(broker)
            request = producer.end_request(commit=True)
            assert client.request(request, producer.versions.end).error_code == 0
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            response = until_ready(client, request, producer.versions.end)
            assert response.error_code == 0
            if generation is Generation.V2:
                assert response.producer_epoch == producer.epoch + 1
            wait_for_state(client, "x", "CompleteCommit")
            assert committed(client, "t") == [b"x"]


def test_producer_ids_and_epochs_survive_a_restart(tmp_path: Path) -> None:
    """Epochs continue after the restart, and no producer id is allocated twice."""
    with watching():
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            make_topic(client, "t")
            producers = [TxnProducer.started(client, f"x{index}") for index in range(5)]
            for producer in producers:
                producer.write("t", b"x")
                producer.commit()
        with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
            for producer in producers:
                wait_for_state(client, producer.transactional_id, "CompleteCommit")
                reopened = TxnProducer.started(client, producer.transactional_id)
                assert (reopened.producer_id, reopened.epoch) == (producer.producer_id, 2)
                code = reconnect(producer, client).end(commit=False)
                assert code is ErrorCode.PRODUCER_FENCED
            new = TxnProducer.started(client, "new")
            assert new.producer_id > max(producer.producer_id for producer in producers)


def test_a_transaction_that_timed_out_during_downtime_is_aborted(tmp_path: Path) -> None:
    """The coordinator aborts it when it first looks for expired transactions."""
    settings = {
        **SETTINGS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
    }
    quick = {**SETTINGS, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    with watching():
        with running_broker(tmp_path, settings) as broker, broker.connect() as client:
            make_topic(client, "t")
            producer = TxnProducer.started(client, "x", timeout_ms=1)
            producer.write("t", b"x")
        with running_broker(tmp_path, quick) as broker, broker.connect() as client:
            wait_for_state(client, "x", "CompleteAbort")
            assert committed(client, "t") == []
            data = fetched_committed(client, "t")
            assert data.last_stable_offset == data.high_watermark


def test_a_compacted_transaction_log_is_loaded(tmp_path: Path) -> None:
    """S5: the cleaner retains the last record of every id, which is sufficient."""
    settings = {
        **SETTINGS,
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": "10",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    state = TopicPartition("__transaction_state", 0)
    with watching():
        with running_broker(tmp_path, settings) as broker, broker.connect() as client:
            make_topic(client, "t")
            producers = [TxnProducer.started(client, f"x{index}") for index in range(3)]
            for _ in range(10):
                for producer in producers:
                    producer.write("t", b"done")
                    producer.commit()
            producers[1].write("t", b"open")
            records = len(uncommitted(client, "__transaction_state"))
            end = broker.call(lambda inside: roll(inside, state))
            deadline = time.monotonic() + 15
            while (broker.call(lambda inside: inside.cleaner.first_dirty_offset(state)) or 0) < end:
                assert time.monotonic() < deadline, "the log is not cleaned"
                time.sleep(0.01)
            assert len(uncommitted(client, "__transaction_state")) == 3 < records
        with running_broker(tmp_path, settings) as broker, broker.connect() as client:
            wait_for_state(client, "x1", "Ongoing")
            reconnect(producers[1], client).commit()
            for number in (0, 2):
                transaction = described(client, f"x{number}")
                assert transaction.transaction_state == "CompleteCommit"
                assert transaction.producer_epoch == 10
            assert committed(client, "t") == [b"done"] * 30 + [b"open"]


def roll(inside: Broker, partition: TopicPartition) -> int:
    log = inside.replicas.find(*partition).log
    log.roll()
    return log.log_end_offset


# --- kill -9


def connect(broker: PenstockBroker) -> WireClient:
    host, port = broker.bootstrap.rsplit(":", 1)
    return WireClient((host, int(port)))


@both_generations
def test_transactions_are_atomic_when_the_broker_is_killed(
    tmp_path: Path, generation: Generation
) -> None:
    """S7: every value is in both partitions or in none, and every acknowledged commit is stored."""
    broker = PenstockBroker(tmp_path, SETTINGS)
    acknowledged: list[bytes] = []
    attempts = 0

    def produce_until_killed(client: WireClient, is_running: threading.Event) -> None:
        nonlocal attempts
        with client:
            try:
                producer = TxnProducer.started(client, "x", generation)
                while True:
                    value = b"%d" % attempts
                    attempts += 1
                    for partition in (0, 1):
                        producer.write("t", value, partition=partition)
                    commit = attempts % 3 != 0
                    assert producer.end(commit=commit) is ErrorCode.NONE
                    if commit:
                        acknowledged.append(value)
                    if attempts % 10 == 0:
                        is_running.set()
            except ConnectionError:
                return

    with broker:
        with connect(broker) as client:
            make_topic(client, "t", 2)
        for _ in range(KILLS):
            is_running = threading.Event()
            thread = threading.Thread(
                target=produce_until_killed, args=(connect(broker), is_running)
            )
            thread.start()
            assert is_running.wait(20)
            broker.kill()
            thread.join(20)
            broker.start()
        with connect(broker) as client:
            response = until_ready(
                client, InitProducerIdRequest("x", 60_000), generation.value.init
            )
            assert response.error_code == 0
            first, second = committed(client, "t"), committed(client, "t", 1)
            assert first == second
            assert set(acknowledged) <= set(first)
            assert len(first) == len(set(first))
            # A commit whose response was lost may have succeeded, once per kill.
            assert len(first) - len(acknowledged) <= KILLS
            for partition in (0, 1):
                data = fetched_committed(client, "t", partition)
                assert data.last_stable_offset == data.high_watermark
    assert "Traceback" not in broker.log.read_text()
