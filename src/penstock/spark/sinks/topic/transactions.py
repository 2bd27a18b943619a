"""Kafka transactions of one key: results and the ledger's record, both or neither (P4).

The key owns the transactional id `penstock-<key>`. Whoever opens it ends what the owner before has
left open, and refuses that owner from then on; only then the ledger says how far the key is.
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

log = logging.getLogger(__name__)

CheckDeadline = Callable[[], None]
"""To be called between two chunks of rows: raises when the transaction takes too long."""

Work: TypeAlias = "Callable[[Producer, CheckDeadline], None]"
"""Sends what belongs to a transaction."""

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ENDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_TXN_STATE})
"""What it may look like that the broker has ended a transaction that took too long."""

_DEFAULT_TIMEOUT_MS: Final = 60_000
_SHARE: Final = 0.9
"""Of the transaction's time; the rest is for its end."""


class Transactions:
    """Used by one thread. After an error that it does not survive, `open` it again."""

    def __init__(self, client: Mapping[str, str], key: str) -> None:
        if "transactional.id" in client:
            raise OptionError(
                f"kafka.transactional.id={client['transactional.id']}: the id is made from the "
                "names of pipeline and sink, so that owners can replace each other: leave it out"
            )
        self.key = key
        self.ledger = Ledger(client)
        self.timeout_s = _timeout_ms(client) / 1000
        self._client = client
        self._producer: Producer | None = None

    def open(self) -> LedgerEntry | None:
        """Fence whoever had the key, and read how far it is."""
        try:
            self.ledger.ensure()
            self._fence()
            return self.ledger.read(self.key)
        except KafkaError as error:
            raise PipelineError(f"{self.key} cannot be opened: {error}") from error

    def fence(self) -> None:
        """Fence whoever had the key, where it has nothing in the ledger, or that can wait."""
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
        """One transaction: what `work` sends, and these records of the ledger.

        Whatever is raised, nothing of it can be seen by read_committed readers, unless the broker
        did not answer whether it has committed: the message says so, or it is `FencedError`.
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
            # Last, because the ledger's partition has other keys too, whose readers wait for us.
            for key, entry in entries.items():
                self.ledger.put(producer, key, entry)
            is_committing = True
            producer.commit_transaction()
        except KafkaError as error:
            is_too_long = time.monotonic() - started >= self.timeout_s * _SHARE
            is_unknown = is_committing and error.code is ErrorCode.REQUEST_TIMED_OUT
            if is_unknown:
                self._close_producer()
            # Where the broker refuses the first records already, the abort is done without it.
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
                f"{self.key}: the broker did not say whether it has committed the transaction "
                f"({error}). Start again: what the broker has is looked up first, and nothing is "
                "lost or doubled"
            )
        if is_too_long and (is_fenced or error.code in _ENDED):
            return PipelineError(f"{self._too_long()} ({error})")
        if is_fenced:
            return FencedError(
                f"another driver has taken over {self.key}, and goes on from what is stored: this "
                "one cannot store anything any more. Stop it, or stop the other and start this "
                "one again"
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
        """Whether the producer turns out to be fenced. One that cannot abort is given up."""
        producer = self._producer
        if producer is None:
            return False
        try:
            producer.abort_transaction()
        except KafkaError as error:
            log.info("%s: the transaction could not be aborted: %s", self.key, error)
            self._close_producer()
            return error.code in _FENCED
        return False

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(0)


def _timeout_ms(client: Mapping[str, str]) -> int:
    given = client.get("transaction.timeout.ms", str(_DEFAULT_TIMEOUT_MS))
    if not given.isdecimal():
        raise OptionError(f"kafka.transaction.timeout.ms={given}: it is a number of milliseconds")
    return int(given)
