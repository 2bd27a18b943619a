"""Which transactions a cleaning meets on its way through a log, and how they ended.

Everything that is cleaned is decided, so the aborted transactions are known ahead of time. Their
records go, whatever their keys. A marker stays while a batch of its transaction is left, or a
consumer would take aborted records for committed ones, or the other way round.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.records.control import ControlType
from penstock.storage.index.transaction_index import AbortedTxn


class MarkerDecision(NamedTuple):
    """What becomes of a control batch."""

    can_go: bool
    """Nothing of its transaction is left."""
    aborted: AbortedTxn | None = None
    """The entry that the transaction index needs, because batches of the transaction are left."""


class _Ongoing:
    __slots__ = ("has_batches", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.has_batches = False


class CleanedTransactions:
    """To be told of every batch, in the order of the log, from `start_offset` on.

    `aborted` are the transactions that were aborted and touch what is read; those that ended
    before `start_offset` are left out.
    """

    def __init__(self, aborted: Iterable[AbortedTxn], start_offset: int = 0) -> None:
        self._aborted = sorted(
            (txn for txn in set(aborted) if txn.last_offset >= start_offset),
            key=lambda txn: txn.first_offset,
            reverse=True,
        )
        self._ongoing_aborted: dict[int, _Ongoing] = {}
        self._ongoing_committed: set[int] = set()

    def on_batch(self, header: BatchHeader) -> bool:
        """Takes note of a batch of records; says whether its transaction was aborted."""
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
        """Takes note of a control batch; says whether it is still needed."""
        if header.records_count == 0:
            return MarkerDecision(can_go=True)
        self._start_up_to(header.last_offset)
        if control_type is ControlType.ABORT:
            ended = self._ongoing_aborted.pop(header.producer_id, None)
            if ended is not None and ended.has_batches:
                return MarkerDecision(can_go=False, aborted=ended.txn)
            return MarkerDecision(can_go=True)
        if control_type is ControlType.COMMIT:
            has_batches = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return MarkerDecision(can_go=not has_batches)
        return MarkerDecision(can_go=False)

    def _start_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            txn = self._aborted.pop()
            self._ongoing_aborted.setdefault(txn.producer_id, _Ongoing(txn))
