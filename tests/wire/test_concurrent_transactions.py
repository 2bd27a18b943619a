"""Many transactional producers and consumers at a time (P4, C4).

The actions of a producer depend only on the seed; their interleaving does not.
"""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    committed_in,
    fetched_committed,
    wait_for_state,
)
from tests.support.protocol.requests import make_topic, produce_values

PARTITIONS = 3
TRANSACTIONS = 25
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "log.segment.bytes": "1048576",
}


class ProducerHistory:
    """One transactional id: its random transactions and their expected results."""

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.name = f"producer-{number}"
        self.random = random.Random(f"{seed}/{number}")
        self.generation = self.random.choice(list(Generation))
        self.expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """Committed values by partition."""
        self.offset = -1

    def run(self, broker: RunningBroker) -> None:
        with broker.connect(client_id=self.name) as client:
            producer = TxnProducer.started(client, self.name, self.generation)
            for number in range(TRANSACTIONS):
                self._transaction(producer, number)
            wait_until_complete(client, self.name)

    def _transaction(self, producer: TxnProducer, number: int) -> None:
        written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for batch in range(self.random.randint(1, 4)):
            partition = self.random.randrange(PARTITIONS)
            value = b"%d/%d/%d" % (self.number, number, batch)
            producer.write("t", value, partition=partition)
            written[partition].append(value)
        commits_offsets = self.random.random() < 0.5
        if commits_offsets:
            self._commit_offset(producer, number)
        match self.random.choice(["commit", "commit", "abort", "again"]):
            case "commit":
                assert producer.end(commit=True) is ErrorCode.NONE
                for partition, values in enumerate(written):
                    self.expected[partition] += values
                if commits_offsets:
                    self.offset = number
            case "abort":
                assert producer.end(commit=False) is ErrorCode.NONE
            case "again":
                assert producer.init(keep=self.random.random() < 0.5).error_code == 0

    def _commit_offset(self, producer: TxnProducer, offset: int) -> None:
        if producer.adds_itself:
            assert producer.add_offsets(self.name) is ErrorCode.NONE
        topic = TxnOffsetCommitRequestTopic(
            "t", partitions=[TxnOffsetCommitRequestPartition(0, offset)]
        )
        request = TxnOffsetCommitRequest(
            self.name, self.name, producer.producer_id, producer.epoch, topics=[topic]
        )
        response = producer.client.request(request, 4 if producer.adds_itself else 5)
        assert response.topics[0].partitions[0].error_code == 0


def wait_until_complete(client: WireClient, name: str) -> None:
    """Aborts the open transaction by initializing again, which completes all earlier ones."""
    TxnProducer.started(client, name)
    wait_for_state(client, name, "Empty")


def consume(broker: RunningBroker, partition: int, is_finished: Callable[[], bool]) -> list[bytes]:
    """Returns the values that a consumer reads; the last stable offset never decreases."""
    consumed: list[bytes] = []
    position = stable = 0
    with broker.connect() as client:
        is_last = False
        while True:
            data = fetched_committed(client, "t", partition, position)
            assert data.error_code == 0
            assert stable <= data.last_stable_offset <= data.high_watermark
            stable = data.last_stable_offset
            values, position = committed_in(data, position)
            consumed += [value for value in values if value is not None]
            if is_last and position >= stable:
                return consumed
            is_last = is_finished()


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_consumers_read_exactly_the_committed_records(tmp_path: Path, seed: int) -> None:
    """Every committed value is read once and in order."""
    histories = [ProducerHistory(number, seed) for number in range(5)]
    finished = threading.Event()
    with watching(), running_broker(tmp_path, SETTINGS) as broker:
        with broker.connect() as client:
            make_topic(client, "t", PARTITIONS)
            produce_values(client, "t", b"plain")
            assert client.request(FindCoordinatorRequest("any"), 2).error_code == 0
        with ThreadPoolExecutor(len(histories) + PARTITIONS) as pool:
            consumers = [
                pool.submit(consume, broker, partition, finished.is_set)
                for partition in range(PARTITIONS)
            ]
            producers = [pool.submit(history.run, broker) for history in histories]
            try:
                for producer in producers:
                    producer.result(60)
            finally:
                finished.set()
            consumed = [consumer.result(60) for consumer in consumers]
        check(histories, consumed)
        with broker.connect() as client:
            assert [committed(client, "t", index) for index in range(PARTITIONS)] == consumed
            check_offsets(client, histories)
    with running_broker(tmp_path, SETTINGS) as broker, broker.connect() as client:
        for history in histories:
            wait_for_state(client, history.name, "Empty")
        assert [committed(client, "t", index) for index in range(PARTITIONS)] == consumed
        check_offsets(client, histories)


def check(histories: list[ProducerHistory], consumed: list[list[bytes]]) -> None:
    for partition, values in enumerate(consumed):
        for history in histories:
            values_of_producer = [
                value for value in values if value.startswith(b"%d/" % history.number)
            ]
            assert values_of_producer == history.expected[partition], history.generation


def check_offsets(client: WireClient, histories: list[ProducerHistory]) -> None:
    for history in histories:
        request = OffsetFetchRequest(history.name, [OffsetFetchRequestTopic("t", [0])])
        request.require_stable = True
        (result,) = client.request(request, 7).topics[0].partitions
        assert (result.error_code, result.committed_offset) == (0, history.offset)
