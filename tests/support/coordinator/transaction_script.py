"""Scripted transactions against a broker that may die, and their expected outcomes."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from penstock.core.errors import ErrorCode
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker.in_process import TIMEOUT_S, WireClient
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    committed,
    fetched_committed,
    find_coordinator,
    wait_for_state,
)
from tests.support.protocol.requests import make_topic

T = TypeVar("T")
TARGET = "target"
PARTITIONS = range(3)
SOURCE = "source"
"""Its partitions stand for transactions: offsets that one commits are of the partition with its
number."""
MOST_TRANSACTIONS = 10
GROUP = "group"
GROUP_PARTITIONS = 2
NO_OFFSET = -1
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": str(GROUP_PARTITIONS),
    "log.index.size.max.bytes": "4096",
    "group.initial.rebalance.delay.ms": "0",
}
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
TIMEOUT_MS = 1
"""Of every transaction: whether one is aborted for it depends only on whether the broker looks."""


class BrokerDiedError(Exception):
    """The broker has died, which ends the script."""


@dataclass
class Transaction:
    number: int
    transactional_id: str
    has_offset: bool = False
    commits: bool | None = None
    """Whether it was to commit; None if its end was not requested."""
    acknowledged: bool = False
    """Whether its producer received the response to its end."""

    @property
    def value(self) -> bytes:
        return b"%d" % self.number


@dataclass
class Account:
    """The operations of the script so far."""

    transactions: list[Transaction] = field(default_factory=list)
    written: list[tuple[int, Transaction]] = field(default_factory=list)
    """The partition and the transaction of every record that was acknowledged, in order."""


class ScriptRunner:
    """Runs transactions, request by request, and records their outcomes.

    `connect` returns a connection; `died` is called when that breaks: it makes a broker that can be
    connected to, and the request is sent once more, or it raises.
    """

    def __init__(
        self,
        connect: Callable[[], WireClient],
        died: Callable[[], None],
        account: Account | None = None,
    ) -> None:
        self.account = account or Account()
        self.producers: dict[str, TxnProducer] = {}
        self._connect = connect
        self._died = died
        self._client: WireClient | None = None

    def do(self, work: Callable[[WireClient], T]) -> T:
        """Runs the work, again if the broker died during it."""
        while True:
            try:
                if self._client is None:
                    self._client = self._connect()
                    for producer in self.producers.values():
                        producer.client = self._client
                return work(self._client)
            except ConnectionError:
                self.close()
                self._died()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- transactions

    def make_topics(self) -> None:
        self.do(lambda client: make_topic(client, TARGET, len(PARTITIONS)))
        self.do(lambda client: make_topic(client, SOURCE, MOST_TRANSACTIONS))
        self.do(lambda client: client.request(FindCoordinatorRequest(GROUP), 2))
        self.do(lambda client: find_coordinator(client, "any"))

    def producer(
        self,
        transactional_id: str,
        generation: Generation = Generation.V2,
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """A new producer of this transactional id."""
        self.producers[transactional_id] = self.do(
            lambda client: TxnProducer.started(
                client, transactional_id, generation, timeout_ms=timeout_ms
            )
        )

    def begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(len(self.account.transactions), transactional_id)
        self.account.transactions.append(transaction)
        return transaction

    def write(self, transaction: Transaction, partitions: Iterable[int] = PARTITIONS) -> None:
        producer = self.producers[transaction.transactional_id]
        for partition in partitions:
            self.do(partial(_write, producer, transaction.value, partition))
            self.account.written.append((partition, transaction))

    def commit_offset(self, transaction: Transaction) -> None:
        producer = self.producers[transaction.transactional_id]
        if producer.adds_itself:
            assert self.do(lambda _: producer.add_offsets(GROUP)) is ErrorCode.NONE
        self.do(lambda client: _commit_offset(client, producer, transaction.number))
        transaction.has_offset = True

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Requests the end and waits for the response."""
        producer = self.producers[transaction.transactional_id]
        transaction.commits = commit
        code = self.do(lambda _: producer.end(commit=commit))
        assert code is ErrorCode.NONE, code
        transaction.acknowledged = True

    def finish(self, transaction: Transaction) -> None:
        """Waits until all partitions have the end marker."""
        state = "CompleteCommit" if transaction.commits else "CompleteAbort"
        self.do(lambda client: wait_for_state(client, transaction.transactional_id, state))

    def whole(self, transactional_id: str, *, commit: bool) -> None:
        """A transaction in all partitions, with an offset."""
        transaction = self.begin(transactional_id)
        self.write(transaction)
        self.commit_offset(transaction)
        self.end(transaction, commit=commit)
        self.finish(transaction)

    # --- afterwards

    def wait_until_decided(self) -> None:
        """Waits until the broker has decided all transactions."""
        self.do(_wait_until_decided)

    def check(self, *, is_complete: bool) -> None:
        """Checks that every transaction is complete or absent, as its producer was notified.

        With `is_complete`, producers retried until they were acknowledged: all transactions ended
        as requested.
        """
        result = {
            item: self.do(partial(committed, topic=TARGET, partition=item)) for item in PARTITIONS
        }
        offsets = self.do(_committed_offsets)
        visible = {number for number, offset in enumerate(offsets) if offset >= 0}
        visible |= {int(value or b"") for values in result.values() for value in values}
        for transaction in self.account.transactions:
            is_visible = transaction.number in visible
            if transaction.commits is None:
                assert not is_visible, f"{transaction} was never to be committed"
            elif transaction.acknowledged or is_complete or not transaction.commits:
                assert is_visible == transaction.commits, f"{transaction} has the opposite outcome"
            has_visible_offset = is_visible and transaction.has_offset
            expected_offset = offset_of(transaction.number) if has_visible_offset else NO_OFFSET
            assert offsets[transaction.number] == expected_offset, transaction
        for entry in PARTITIONS:
            assert result[entry] == [
                transaction.value
                for partition, transaction in self.account.written
                if partition == entry and transaction.number in visible
            ]
        for topic, partitions in (
            (TARGET, len(PARTITIONS)),
            (GROUP_METADATA_TOPIC, GROUP_PARTITIONS),
        ):
            for index in range(partitions):
                data = self.do(partial(fetched_committed, topic=topic, partition=index))
                assert data.last_stable_offset == data.high_watermark, (topic, index)


def offset_of(number: int) -> int:
    """Returns the values that the transaction of this number commits."""
    return 100 + number


def _write(producer: TxnProducer, value: bytes, partition: int, _: WireClient) -> int:
    return producer.write(TARGET, value, partition=partition)


def _commit_offset(client: WireClient, producer: TxnProducer, number: int) -> None:
    partition = TxnOffsetCommitRequestPartition(number, offset_of(number))
    request = TxnOffsetCommitRequest(
        producer.transactional_id,
        GROUP,
        producer.producer_id,
        producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(SOURCE, partitions=[partition])],
    )
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        response = client.request(request, 4 if producer.adds_itself else 5)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code not in _NOT_YET or time.monotonic() > deadline:
            break
    assert code is ErrorCode.NONE, code


def _committed_offsets(client: WireClient) -> list[int]:
    """The offsets of the group, by the number of the transaction."""
    topic_request = OffsetFetchRequestTopic(SOURCE, list(range(MOST_TRANSACTIONS)))
    request = OffsetFetchRequest(GROUP, [topic_request], require_stable=True)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        response = client.request(request, 7)
        if response.error_code == 0:
            partitions = response.topics[0].partitions
            if all(partition.error_code == 0 for partition in partitions):
                return [partition.committed_offset for partition in partitions]
        assert time.monotonic() < deadline, response


def _wait_until_decided(client: WireClient) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        response = client.request(ListTransactionsRequest(), 1)
        states = {state.transaction_state for state in response.transaction_states}
        loaded = response.error_code == 0
        if loaded and not states & {"Ongoing", "PrepareCommit", "PrepareAbort"}:
            return
        assert time.monotonic() < deadline, response
        time.sleep(0.002)
