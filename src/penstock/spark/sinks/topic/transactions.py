"""Kafka transactions of one query: they commit results together with the ledger's record.

The key of the query owns the transactional id `penstock-<key>`. Opening it aborts the open
transaction of the previous owner and fences that owner; only then is the ledger read.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.clients import new_producer
from penstock.spark.errors import FencedError, OptionError, PipelineError
from penstock.spark.sinks.topic.ledger import Ledger, LedgerEntry

if TYPE_CHECKING:
    from penstock.client.producer.producer import Producer

logger = logging.getLogger(__name__)

CheckDeadline = Callable[[], None]
"""Raises if the transaction takes too long. Called between two chunks of rows."""

Work: TypeAlias = "Callable[[Producer, CheckDeadline], None]"
"""Sends the records of a transaction."""

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ENDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_TXN_STATE})
"""Error codes after the broker has aborted a transaction that took too long."""

_DEFAULT_TIMEOUT_MS: Final = 60_000
_SHARE: Final = 0.9
"""The share of the transaction's timeout for sending; the rest is for its end."""


class Transactions:
    """The transactions of one key. Used by one thread.

    After some errors it must be opened again, and `run` says so.
    """

    def __init__(self, client: Mapping[str, str], key: str) -> None:
        if "transactional.id" in client:
            raise OptionError(
                f"kafka.transactional.id={client['transactional.id']}: the id is built from the "
                "names of pipeline and sink, so that owners can replace each other",
                remedy="leave it out",
            )
        self.key = key
        self.ledger = Ledger(client)
        self.timeout_s = _timeout_ms(client) / 1000
        self._client = client
        self._producer: Producer | None = None

    def open(self) -> LedgerEntry | None:
        """Fences the previous owner of the key, and returns its record in the ledger."""
        try:
            self.ledger.ensure()
            self._fence()
            return self.ledger.read(self.key)
        except KafkaError as error:
            raise PipelineError(f"{self.key} cannot be opened: {error}") from error

    def fence(self) -> None:
        """Fences the previous owner of the key, without reading the ledger."""
        try:
            self._fence()
        except KafkaError as error:
            raise PipelineError(f"{self.key} cannot be opened: {error}") from error

    def _fence(self) -> None:
        self._close_producer()
        self._producer = producer = new_producer(
            self._client, transactional_id=f"penstock-{self.key}"
        )
        producer.init_transactions()

    def run(self, work: Work, entries: Mapping[str, LedgerEntry | None]) -> None:
        """Commits what `work` sends and these records of the ledger, in one transaction.

        If it raises, read_committed consumers see nothing of the transaction, unless the broker
        did not respond to the commit: then the message says so, or it is a `FencedError`.
        """
        producer = self._producer
        if producer is None:
            raise PipelineError(
                f"{self.key} is not open: after an error it must be opened again, to know what "
                "was stored"
            )
        started = time.monotonic()

        def check_deadline() -> None:
            if time.monotonic() - started > self.timeout_s * _SHARE:
                raise PipelineError(self._too_long())

        is_committing = False
        try:
            producer.begin_transaction()
            work(producer, check_deadline)
            producer.flush(max(0.1, self.timeout_s * _SHARE - (time.monotonic() - started)))
            check_deadline()
            # Last, because readers of other keys in the ledger's partition wait for this one.
            for key, entry in entries.items():
                self.ledger.put(producer, key, entry)
            is_committing = True
            producer.commit_transaction()
        except KafkaError as error:
            is_too_long = time.monotonic() - started >= self.timeout_s * _SHARE
            is_unknown = is_committing and error.code is ErrorCode.REQUEST_TIMED_OUT
            if is_unknown:
                self._close_producer()
            # If the broker refused the first records, the abort needs no request.
            is_fenced = self._abort() or error.code in _FENCED
            if is_fenced:
                self._close_producer()
            raise self._explain(
                error, is_too_long=is_too_long, is_unknown=is_unknown, is_fenced=is_fenced
            ) from error
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        self._close_producer()
        self.ledger.close()

    def _explain(
        self, error: KafkaError, *, is_too_long: bool, is_unknown: bool, is_fenced: bool
    ) -> PipelineError:
        if is_unknown:
            return PipelineError(
                f"{self.key}: the broker did not respond whether it has committed the transaction "
                f"({error})",
                remedy="start again: the outcome is looked up first, and nothing is lost or "
                "duplicated",
            )
        if is_too_long and (is_fenced or error.code in _ENDED):
            return PipelineError(f"{self._too_long()} ({error})")
        if is_fenced:
            return FencedError(
                f"another driver has taken over {self.key} and continues from the stored "
                "progress: this one can no longer store anything",
                remedy="stop it, or stop the other and start this one again",
            )
        return PipelineError(f"{self.key}: nothing of the batch was stored: {error}")

    def _too_long(self) -> str:
        return (
            f"{self.key}: the batch could not be written within transaction.timeout.ms="
            f"{self.timeout_s * 1000:.0f}, and nothing of it was stored. Make batches smaller "
            "(max_batch_records), or raise kafka.transaction.timeout.ms (up to the broker's "
            "transaction.max.timeout.ms)"
        )

    def _abort(self) -> bool:
        """Returns whether the producer is fenced. Closes a producer that cannot abort."""
        producer = self._producer
        if producer is None:
            return False
        try:
            producer.abort_transaction()
        except KafkaError as error:
            logger.info("%s: the transaction could not be aborted: %s", self.key, error)
            self._close_producer()
            return error.code in _FENCED
        return False

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(0)


def _timeout_ms(client: Mapping[str, str]) -> int:
    configured = client.get("transaction.timeout.ms", str(_DEFAULT_TIMEOUT_MS))
    if not configured.isdecimal():
        raise OptionError(
            f"kafka.transaction.timeout.ms={configured}: it is a number of milliseconds"
        )
    return int(configured)
