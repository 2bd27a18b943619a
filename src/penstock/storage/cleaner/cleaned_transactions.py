"""The transactions in the batches that a cleaning reads, and how they ended.

All transactions in the cleaned range have ended, so the aborted ones are known in advance. Their
records are removed, regardless of their keys. A marker is kept while a batch of its transaction
remains: otherwise a consumer would take aborted records for committed ones, or vice versa.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.records.control import ControlType
from penstock.storage.index.transaction_index import AbortedTxn


class MarkerDecision(NamedTuple):
    """What to do with a control batch."""

    can_discard: bool
    """No batch of its transaction remains."""
    aborted: AbortedTxn | None = None
    """The entry for the transaction index, if batches of the transaction remain."""


class _OngoingTxn:
    __slots__ = ("has_batches", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.has_batches = False


class CleanedTransactions:
    """Tracks transactions; receives every batch from `start_offset` on, in log order.

    `aborted` are the aborted transactions that overlap the cleaned range; those that ended before
    `start_offset` are ignored.
    """

    def __init__(self, aborted: Iterable[AbortedTxn], start_offset: int = 0) -> None:
        self._aborted = sorted(
            (txn for txn in set(aborted) if txn.last_offset >= start_offset),
            key=lambda txn: txn.first_offset,
            reverse=True,
        )
        self._ongoing_aborted: dict[int, _OngoingTxn] = {}
        self._ongoing_committed: set[int] = set()

    def on_batch(self, header: BatchHeader) -> bool:
        """Processes a batch of records; returns whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._start_up_to(header.last_offset)
        ongoing = self._ongoing_aborted.get(header.producer_id)
        if ongoing is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        ongoing.has_batches = True
        return True

    def on_control_batch(self, header: BatchHeader, control_type: ControlType) -> MarkerDecision:
        """Processes a control batch; returns whether it can be discarded."""
        if header.records_count == 0:
            return MarkerDecision(can_discard=True)
        self._start_up_to(header.last_offset)
        if control_type is ControlType.ABORT:
            ended = self._ongoing_aborted.pop(header.producer_id, None)
            if ended is not None and ended.has_batches:
                return MarkerDecision(can_discard=False, aborted=ended.txn)
            return MarkerDecision(can_discard=True)
        if control_type is ControlType.COMMIT:
            has_batches = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return MarkerDecision(can_discard=not has_batches)
        return MarkerDecision(can_discard=False)

    def _start_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            txn = self._aborted.pop()
            self._ongoing_aborted.setdefault(txn.producer_id, _OngoingTxn(txn))
