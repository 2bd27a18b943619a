"""Bugs of transactions and of coordinators, as patches; see `planted_bugs.py`."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.host import CoordinatorHost
from penstock.broker.coordinator.pending_writes import PendingWrites
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.coordinator.txn.metadata import prepare_epoch
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from penstock.records.append_policy import AppendOrigin
from penstock.storage.log.log import Log
from penstock.storage.producer.append_info import CompletedTxn, ProducerAppendInfo
from penstock.storage.producer.state_manager import ProducerStateManager
from tests.sim.cluster.bug_registry import BugRegistry

BUGS: Final = BugRegistry()
_MARKER: Final = 99
"""Stands for the transaction version of a marker that is not checked."""

# --- markers


@BUGS.plant("the marker of a partition is forgotten", 4)
def _forgotten_marker() -> AbstractContextManager[object]:
    write = TransactionMarkers.write

    async def write_others(
        self: TransactionMarkers, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        to_write = sorted(partitions)
        forgotten = to_write[1:]
        errors = await write(self, marker, to_write[:1])
        return {**errors, **dict.fromkeys(forgotten, ErrorCode.NONE)}

    return patch.object(TransactionMarkers, "write", write_others)


@BUGS.plant("records of fenced producers are accepted", 2)
def _accepted_zombies() -> AbstractContextManager[object]:
    query = TransactionVerifier._query_coordinator

    async def ignore(self: TransactionVerifier, *arguments: Any) -> dict[Any, Any]:
        await query(self, *arguments)
        return {}

    stack = ExitStack()
    stack.enter_context(patch.object(TransactionVerifier, "_query_coordinator", ignore))
    for owner, check in (
        (ProducerAppendInfo, "_check_producer_epoch"),
        (ProducerStateManager, "refuse_old_epoch"),
    ):
        stack.enter_context(patch.object(owner, check, lambda *arguments: None))
    return stack


@BUGS.plant("markers of earlier transactions and of former coordinators are accepted", 7)
def _unchecked_markers() -> AbstractContextManager[object]:
    append_marker = ProducerAppendInfo._append_marker
    check_producer_epoch = ProducerAppendInfo._check_producer_epoch

    def check_data(self: ProducerAppendInfo, epoch: int, offset: int, version: int) -> None:
        if version != _MARKER:
            check_producer_epoch(self, epoch, offset, version)

    def append(self: ProducerAppendInfo, header: Any, marker: Any, _: int) -> CompletedTxn | None:
        return append_marker(self, header, marker, _MARKER)

    stack = ExitStack()
    for name, check in (
        ("_append_marker", append),
        ("_check_producer_epoch", check_data),
        ("_check_coordinator_epoch", lambda *arguments: None),
    ):
        stack.enter_context(patch.object(ProducerAppendInfo, name, check))
    return stack


@BUGS.plant("a follower forgets which transactions were aborted", 0)
def _forgotten_aborts() -> AbstractContextManager[object]:
    append_marker = ProducerAppendInfo._append_marker

    def append(self: ProducerAppendInfo, *arguments: Any) -> CompletedTxn | None:
        completed = append_marker(self, *arguments)
        if completed is not None and self._origin is AppendOrigin.REPLICATION:
            return completed._replace(is_aborted=False)
        return completed

    return patch.object(ProducerAppendInfo, "_append_marker", append)


@BUGS.plant("readers get records of open transactions", 2)
def _unstable_reads() -> AbstractContextManager[object]:
    return patch.object(
        Log,
        "last_stable_offset",
        new_callable=lambda: property(lambda self: self.high_watermark),
    )


@BUGS.plant("consumers do not learn which transactions were aborted", 2)
def _hidden_aborts() -> AbstractContextManager[object]:
    return patch("penstock.storage.log.local_log.LocalLog.aborted_transactions", lambda *a: [])


# --- coordinators


def _respond_early(
    kind: "type[GroupCoordinator | TransactionCoordinator]",
) -> AbstractContextManager[object]:
    last = PendingWrites.last
    commit_result = kind._commit_result
    early: set[int] = set()

    def commit(self: Any, *arguments: Any) -> None:
        early.add(id(self._writes))
        commit_result(self, *arguments)

    def no_wait(self: PendingWrites, partition: int) -> Any:
        return None if id(self) in early else last(self, partition)

    stack = ExitStack()
    stack.enter_context(patch.object(kind, "_commit_result", commit))
    stack.enter_context(patch.object(PendingWrites, "last", no_wait))
    return stack


@BUGS.plant("offsets are committed before they are replicated", 1)
def _early_offsets() -> AbstractContextManager[object]:
    return _respond_early(GroupCoordinator)


@BUGS.plant("transactions are prepared before that is replicated", 8)
def _early_transactions() -> AbstractContextManager[object]:
    return _respond_early(TransactionCoordinator)


@BUGS.plant("a coordinator keeps the state of partitions that it does not lead", 5)
def _kept_shards() -> AbstractContextManager[object]:
    changed = CoordinatorHost.leaderships_changed

    def keep(self: Any, led: Iterable[TopicPartition], others: Iterable[TopicPartition]) -> None:
        changed(self, led, ())

    return patch.object(CoordinatorHost, "leaderships_changed", keep)


@BUGS.plant("a new producer of a transactional id does not fence the last one", 2)
def _no_fencing() -> AbstractContextManager[object]:

    def same_epoch(metadata: Any, *arguments: Any, epoch: int, last_epoch: int) -> Any:
        return prepare_epoch(metadata, *arguments, epoch=max(epoch - 1, 0), last_epoch=last_epoch)

    return patch("penstock.coordinator.txn.initialize.prepare_epoch", same_epoch)
