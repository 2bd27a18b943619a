"""A transaction ends with the same result in all partitions, despite crashes (P4).

The machine runs producers that lose responses, partitions that receive markers, and crashes between
any two steps, which lose uncommitted and unrecorded state. A partition has the state of a real one:
the producer of its open transaction, and the latest epoch of each producer.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from penstock.coordinator.machine import TimerFired
from penstock.coordinator.txn.events import AbortTimer, MarkersWritten, WriteMarkers
from penstock.coordinator.txn.metadata import MAX_EPOCH
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from penstock.protocol.messages.end_txn import EndTxnRequest
from tests.support.coordinator.transactions import (
    T0,
    T1,
    T2,
    TIMEOUT_MS,
    Producer,
    TxnHost,
    add_request,
    init_request,
    only_error,
    written,
)

PARTITIONS = (T0, T1, T2)
NAMES = ("x", "y")
PREFIXES = 12
names = st.sampled_from(NAMES)
some_partitions = st.sets(st.sampled_from(PARTITIONS), min_size=1)
S = TransactionState

Transaction = tuple[str, int]
"""The transactional id and the number of its transaction."""


class Partitions:
    """The open transactions of each partition, and the results of ended ones."""

    def __init__(self) -> None:
        self.open: dict[tuple[TopicPartition, int], Transaction] = {}
        self.epochs: dict[tuple[TopicPartition, int], int] = {}
        self.outcomes: dict[Transaction, dict[TopicPartition, bool]] = {}

    def write(self, partition: TopicPartition, producer: Producer, txn: Transaction) -> None:
        """Writes data of a transaction, from a producer that the coordinator accepted."""
        key = (partition, producer.producer_id)
        assert producer.epoch >= self.epochs.get(key, -1), "let in with an epoch that is over"
        assert self.open.setdefault(key, txn) == txn, "data of two transactions, and no end between"
        self.epochs[key] = producer.epoch

    def mark(self, partition: TopicPartition, marker: WriteMarkers) -> None:
        key = (partition, marker.producer_id)
        epoch = self.epochs.get(key, -1)
        if marker.transaction_version >= 2 and key in self.open:
            assert marker.producer_epoch > epoch, "the epoch must be higher than that of the data"
        assert marker.producer_epoch >= epoch, "the end of a transaction that is long over"
        self.epochs[key] = marker.producer_epoch
        txn = self.open.pop(key, None)
        if txn is not None:
            self.outcomes.setdefault(txn, {})[partition] = marker.commit


class TransactionHistories(RuleBasedStateMachine):
    @initialize(
        version=st.sampled_from([0, 1, 2]),
        old_client=st.booleans(),
        exhausted=st.booleans(),
    )
    def begin(self, version: int, old_client: bool, exhausted: bool) -> None:
        self.host = TxnHost(version=version)
        self.partitions = Partitions()
        self.acknowledged: dict[Transaction, bool] = {}
        self.numbers = dict.fromkeys(NAMES, 0)
        self.wishes: dict[str, bool] = {}
        """Producers whose EndTxn had no response yet; they repeat the same request."""
        client = 1 if old_client else version
        self.producers = {name: Producer(self.host, name, client) for name in NAMES}
        if exhausted:
            self.host.put(producer_epoch=MAX_EPOCH - 4)
        self.notifications: list[MarkersWritten] = []
        """The reported markers of transactions with their own epochs."""
        self.zombies: list[tuple[str, int, int]] = []
        for name in NAMES:
            self.init(name, knows=False)

    # --- producers

    @rule(name=names, knows=st.booleans())
    def init(self, name: str, knows: bool) -> None:
        producer = self.producers[name]
        before = (name, producer.producer_id, producer.epoch)
        error = producer.bump() if knows else producer.init()
        if not error:
            self.zombies.append(before)
            self._next_transaction(name)

    def _next_transaction(self, name: str) -> None:
        self.numbers[name] += 1
        self.wishes.pop(name, None)

    @rule(name=names, added=some_partitions)
    def add(self, name: str, added: set[TopicPartition]) -> None:
        if name in self.wishes:
            self.end(name, commit=True, heard=True)
            return
        producer = self.producers[name]
        error = producer.add(*sorted(added))
        if not error:
            assert producer.verify(*sorted(added)) == [ErrorCode.NONE] * len(added)
            for partition in added:
                self.partitions.write(partition, producer, (name, self.numbers[name]))
        elif error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            self.init(name, knows=False)

    @rule(name=names, commit=st.booleans(), heard=st.booleans())
    def end(self, name: str, commit: bool, heard: bool) -> None:
        """A producer that receives no response sends the same request again."""
        producer = self.producers[name]
        commit = self.wishes.setdefault(name, commit)
        if not heard:
            producer.ended(commit=commit)
            return
        error = producer.end(commit=commit)
        if not error:
            self.acknowledged[(name, self.numbers[name])] = commit
            self._next_transaction(name)
        elif error != ErrorCode.CONCURRENT_TRANSACTIONS:
            self.init(name, knows=False)

    @rule(name=names, added=some_partitions, commit=st.booleans(), heard=st.booleans())
    def transact(self, name: str, added: set[TopicPartition], commit: bool, heard: bool) -> None:
        self.add(name, added)
        self.end(name, commit, heard)

    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def zombie(self, data: st.DataObject, partition: TopicPartition) -> None:
        """A producer with an older epoch is always rejected."""
        ids = data.draw(st.sampled_from(self.zombies))
        response = self.host.request(add_request(*ids, [partition]), AddPartitionsToTxnResponse)
        assert only_error(response) != ErrorCode.NONE

    # --- partitions

    @rule(data=st.data(), is_notified=st.booleans())
    @precondition(lambda self: self.host.markers)
    def mark(self, data: st.DataObject, is_notified: bool) -> None:
        """Writes a marker; the coordinator is notified, or it must be written again."""
        marker = data.draw(st.sampled_from(self.host.markers))
        partition = data.draw(st.sampled_from(sorted(marker.partitions)))
        self.partitions.mark(partition, marker)
        if is_notified:
            self._notify(marker, frozenset({partition}))

    @rule()
    @precondition(lambda self: self.host.markers)
    def mark_all(self) -> None:
        for marker in list(self.host.markers):
            for partition in marker.partitions:
                self.partitions.mark(partition, marker)
            self._notify(marker, marker.partitions)

    def _notify(self, marker: WriteMarkers, partitions: frozenset[TopicPartition]) -> None:
        self.host.markers.remove(marker)
        remaining = marker.partitions - partitions
        if remaining:
            self.host.markers.append(replace(marker, partitions=remaining))
        self.host.event(written(marker, partitions))
        if marker.transaction_version >= 2:
            self.notifications.append(written(marker, partitions))

    @rule(data=st.data())
    @precondition(lambda self: self.notifications)
    def notify_again(self, data: st.DataObject) -> None:
        """Notifies the coordinator of markers twice, or late."""
        self.host.event(data.draw(st.sampled_from(self.notifications)))

    # --- time, failures and crashes

    @rule(milliseconds=st.sampled_from([0, 1_000, TIMEOUT_MS]))
    def wait(self, milliseconds: int) -> None:
        self.host.advance(milliseconds)

    @rule()
    def crash(self) -> None:
        self.host.restart()

    @rule(
        requests=st.lists(
            st.tuples(names, st.sampled_from(["init", "add", "commit", "abort", "wait"])),
            min_size=1,
            max_size=4,
        ),
        ends=st.sampled_from(["in time", "late", "crash"]),
        data=st.data(),
    )
    def commits_stop(self, requests: list[tuple[str, str]], ends: str, data: st.DataObject) -> None:
        """Responses wait for a commit, and producers time out; a crash may lose any of it."""
        self.host.commits = False
        for name, what in requests:
            self._request_without_response(name, what)
        if ends == "crash":
            length = data.draw(st.integers(self.host.committed, len(self.host.log)))
            del self.host.log[length:]
            self.host.restart()
            return
        if ends == "late":
            self.host.commit_fails()
        self.host.commit()

    def _request_without_response(self, name: str, what: str) -> None:
        producer = self.producers[name]
        ids = (name, producer.producer_id, producer.epoch)
        version = 5 if producer.version == 2 else 3
        if what == "init":
            self.host.send(init_request(transactional_id=name), 4)
        elif what == "add" and name not in self.wishes:
            self.host.send(add_request(*ids, PARTITIONS), version)
        elif what == "wait":
            self.host.advance(TIMEOUT_MS)
        elif what in ("commit", "abort"):
            commit = self.wishes.setdefault(name, what == "commit")
            self.host.send(EndTxnRequest(*ids, commit), version)

    @rule(
        error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]),
        name=names,
        what=st.sampled_from(["init", "add", "commit", "abort", "wait", "mark"]),
    )
    def append_fails(self, error: ErrorCode, name: str, what: str) -> None:
        self.host.append_error = error
        if what == "mark":
            self.mark_all()
        else:
            self._request_without_response(name, what)
        self.host.append_error = None

    # --- invariants

    @invariant()
    def the_same_everywhere(self) -> None:
        if not hasattr(self, "host"):
            return
        for txn, outcome in self.partitions.outcomes.items():
            assert len(set(outcome.values())) == 1, f"{txn} ended in two ways: {outcome}"
            if txn in self.acknowledged:
                assert set(outcome.values()) == {self.acknowledged[txn]}, (
                    f"{txn} was acknowledged with another outcome"
                )

    def teardown(self) -> None:
        if not hasattr(self, "host"):
            return
        self._any_prefix_ends()
        self._end_everything(self.host, self.partitions)
        assert self.partitions.open == {}, "a transaction hangs"
        self.the_same_everywhere()

    def _end_everything(self, host: TxnHost, partitions: Partitions | None) -> None:
        host.now += TIMEOUT_MS + 1
        host.event(TimerFired(AbortTimer()))
        host.advance(10_000)
        if partitions is not None:
            for marker in host.markers:
                for partition in marker.partitions:
                    partitions.mark(partition, marker)
        host.finish()
        at_rest = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
        assert {metadata.state for metadata in host.shard.transactions.values()} <= at_rest

    def _any_prefix_ends(self) -> None:
        """A coordinator that loads a prefix of the log ends each transaction completely."""
        log = self.host.log
        for length in range(max(0, len(log) - PREFIXES), len(log)):
            host = TxnHost(self.host.config, check_pure=False)
            host.now = self.host.now
            host.log = log[:length]
            host.restart()
            before = dict(host.shard.transactions)
            for marker in host.markers:
                metadata = before[marker.transactional_id]
                assert marker.partitions == metadata.partitions
                assert marker.commit == (metadata.state is S.PREPARE_COMMIT)
            self._end_everything(host, None)
            for name, metadata in before.items():
                if metadata.state in (S.ONGOING, S.PREPARE_ABORT):
                    assert host.state(name) is S.COMPLETE_ABORT
                elif metadata.state is S.PREPARE_COMMIT:
                    assert host.state(name) is S.COMPLETE_COMMIT


def test_random_transaction_histories() -> None:
    run_state_machine_as_test(
        TransactionHistories,
        settings=settings(max_examples=75, stateful_step_count=40, deadline=None),
    )
