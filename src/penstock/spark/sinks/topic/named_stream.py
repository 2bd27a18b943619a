"""The driver's part of an exactly-once `writeStream.format("penstock")`.

Spark passes only the number of a batch and the id of its checkpoint to a sink, not its offsets. Of
one checkpoint only the last batch is ever repeated, so the number identifies it, as long as the
checkpoint is the same. A checkpoint that is new, or older than the last batch, is refused. If the
checkpoint is a local directory, its offset log is compared, too.
"""

import hashlib
import logging
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from penstock.core.errors import KafkaError
from penstock.spark.errors import PipelineError, ProgressError
from penstock.spark.exactly_once import Decision
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.topic.ledger import LedgerEntry
from penstock.spark.sinks.topic.options import WriterOptions
from penstock.spark.sinks.topic.transactions import Transactions, Work

logger = logging.getLogger(__name__)

_ACCEPT: Final = "newCheckpoint=accept"


class NamedStream:
    """One commit of a named stream: Spark calls each in a process of its own."""

    def __init__(self, options: WriterOptions, pipeline: str) -> None:
        self._options = options
        self._pipeline = pipeline
        self._transactions = Transactions(options.client, f"sink:{pipeline}")

    def commit(self, query_id: str, batch_id: int, rows: int, work: Work) -> Decision:
        """Writes the batch in one transaction, unless it was written before."""
        transactions = self._transactions
        transactions.fence()
        entry = self._read()
        current_fingerprint = fingerprint(self._options.checkpoint, batch_id)
        if entry is not None and entry.stored is not None:
            stored = entry.stored
            problem = _problem(stored, query_id, batch_id, entry.fingerprint, current_fingerprint)
            if problem is None and stored.query_id == query_id and stored.batch_id == batch_id:
                return Decision.SKIP
            if problem is not None:
                self._refuse(problem, entry.owner)
        written = LedgerEntry(
            StoredProgress({}, query_id, batch_id), query_id, rows, fingerprint=current_fingerprint
        )
        transactions.run(work, {transactions.key: written})
        return Decision.APPLY

    def close(self) -> None:
        self._transactions.close()

    def _read(self) -> LedgerEntry | None:
        ledger = self._transactions.ledger
        try:
            entry = ledger.read(self._transactions.key)
            if entry is None:
                # The query is new, or the topic did not exist: read again after creating it.
                ledger.ensure()
                entry = ledger.read(self._transactions.key)
            return entry
        except KafkaError as error:
            raise PipelineError(f"pipeline {self._pipeline} cannot be opened: {error}") from error

    def _refuse(self, problem: str, owner: str) -> None:
        message = f"pipeline {self._pipeline}: {problem}"
        if self._options.accepts_new_checkpoint:
            logger.warning("%s. It is written anyway, because of %s", message, _ACCEPT)
            return
        raise ProgressError(
            f"{message}. Nothing of this batch was stored",
            remedy=f"continue with the checkpoint of query {owner}; or, if rows that were written "
            "before may be written again, or this query begins where that one ended, start it "
            f"once with the option {_ACCEPT}; or give it a pipeline name of its own",
        )


def _problem(
    stored: StoredProgress,
    query_id: str,
    batch_id: int,
    fingerprint_before: str,
    fingerprint_now: str,
) -> str | None:
    if stored.query_id != query_id:
        return (
            f"it was written up to batch {stored.batch_id} by the query {stored.query_id}, and "
            f"this is batch {batch_id} of another one ({query_id}), whose checkpoint is new: all "
            "rows that it reads again would be duplicated"
        )
    if batch_id < stored.batch_id:
        return (
            f"it was written up to batch {stored.batch_id}, and this is batch {batch_id}: the "
            "checkpoint is an older copy, and its batches may contain other rows than before"
        )
    if (
        batch_id == stored.batch_id
        and fingerprint_before
        and fingerprint_now
        and fingerprint_before != fingerprint_now
    ):
        return (
            f"batch {batch_id} was written before, with other offsets than the checkpoint has "
            "now: the checkpoint is an older copy"
        )
    return None


def fingerprint(checkpoint: str | None, batch_id: int) -> str:
    """Returns a hash of the offsets that the batch reads; empty if they cannot be read here."""
    if not checkpoint:
        return ""
    address = urlparse(checkpoint)
    if address.scheme not in ("", "file"):
        return ""
    directory = Path(unquote(address.path) if address.scheme else checkpoint)
    try:
        written = (directory / "offsets" / str(batch_id)).read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(written).hexdigest()[:32]
