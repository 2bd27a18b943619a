"""Transactions of the clients that run as programs.

A producer or a reader has a `handle`, which its jobs name. Those of a producer are producer_open
(with `transactional_id` and `transaction_timeout_ms`), producer_begin, producer_send, _commit,
_abort and _close; those of a reader are reader_open (`committed` selects the isolation level),
reader_read and reader_close. transform and the administrator's jobs are named as the methods here.
"""

from collections.abc import Sequence
from itertools import count as numbers
from typing import NamedTuple

from tests.support.kafka_clients.model import Record
from tests.support.kafka_clients.program import ProgramClient, from_wire, to_wire
from tests.support.kafka_clients.transactional import (
    TRANSACTION_SECONDS,
    Reader,
    TransactionalClient,
    TransactionalProducer,
)

_handles = numbers(1)


class TransactionDescription(NamedTuple):
    """The result of DescribeTransactions."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: bool
    partitions: set[tuple[str, int]]


class ActiveProducer(NamedTuple):
    """A producer in the result of DescribeProducers; -1 stands for a missing value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int
    transaction_start: int


class _Producer(TransactionalProducer):
    def __init__(
        self, program: ProgramClient, bootstrap: str, transactional_id: str, timeout: float
    ) -> None:
        self._program = program
        self._bootstrap = bootstrap
        self._handle = f"producer-{next(_handles)}"
        program.do(
            bootstrap,
            "",
            "producer_open",
            handle=self._handle,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(timeout * 1000),
        )

    def _do(self, op: str) -> None:
        self._program.do(self._bootstrap, "", op, handle=self._handle)

    def begin(self) -> None:
        self._do("producer_begin")

    def send(self, topic: str, records: Sequence[Record]) -> None:
        self._program.do(
            self._bootstrap,
            topic,
            "producer_send",
            handle=self._handle,
            records=[to_wire(record) for record in records],
        )

    def commit(self) -> None:
        self._do("producer_commit")

    def abort(self) -> None:
        self._do("producer_abort")

    def close(self) -> None:
        self._do("producer_close")


class JavaProducer(_Producer):
    def send_offset(
        self, group: str, topic: str, partition: int, offset: int, member: str | None = None
    ) -> None:
        """Sends an offset as this member of the group's first generation, or as no member."""
        self._program.do(
            self._bootstrap,
            topic,
            "producer_send_offset",
            handle=self._handle,
            group=group,
            partition=partition,
            offset=offset,
            member=member,
        )


class _Reader(Reader):
    def __init__(
        self,
        program: ProgramClient,
        bootstrap: str,
        topic: str,
        partitions: Sequence[int],
        committed: bool,
    ) -> None:
        super().__init__()
        self._program = program
        self._bootstrap = bootstrap
        self._topic = topic
        self._handle = f"reader-{next(_handles)}"
        program.do(
            bootstrap,
            topic,
            "reader_open",
            handle=self._handle,
            partitions=partitions,
            committed=committed,
        )

    def more(self, count: int) -> list[Record]:
        response = self._program.do(
            self._bootstrap, self._topic, "reader_read", handle=self._handle, count=count
        )
        return [from_wire(record) for record in response["records"]]

    def close(self) -> None:
        self._program.do(self._bootstrap, self._topic, "reader_close", handle=self._handle)


class ProgramTransactions(TransactionalClient):
    def __init__(
        self,
        program: ProgramClient,
        *,
        ends_by_version_2: bool = False,
        retries_the_end: bool = True,
    ) -> None:
        self.program = program
        self.name = program.name
        self.ends_by_version_2 = ends_by_version_2
        self.retries_the_end = retries_the_end

    def close(self) -> None:
        self.program.close()

    def producer(
        self, bootstrap: str, transactional_id: str, *, timeout: float = TRANSACTION_SECONDS
    ) -> TransactionalProducer:
        return _Producer(self.program, bootstrap, transactional_id, timeout)

    def reader(
        self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool = True
    ) -> Reader:
        return _Reader(self.program, bootstrap, topic, partitions, committed)

    def transform(
        self, bootstrap: str, group: str, source: str, target: str, count: int, *, commit: bool
    ) -> None:
        self.program.do(
            bootstrap,
            source,
            "transform",
            group=group,
            transactional_id=f"of-{group}",
            transaction_timeout_ms=int(TRANSACTION_SECONDS * 1000),
            target=target,
            count=count,
            commit=commit,
        )


class JavaTransactions(ProgramTransactions):
    """The Java client, which also describes and ends transactions."""

    def producer(
        self, bootstrap: str, transactional_id: str, *, timeout: float = TRANSACTION_SECONDS
    ) -> JavaProducer:
        return JavaProducer(self.program, bootstrap, transactional_id, timeout)

    def describe(self, bootstrap: str, transactional_id: str) -> TransactionDescription:
        response = self.program.do(
            bootstrap, "", "describe_transaction", transactional_id=transactional_id
        )
        result = response["transaction"]
        return TransactionDescription(
            result["state"],
            result["producer_id"],
            result["producer_epoch"],
            result["timeout_ms"],
            result["started"],
            {(topic, partition) for topic, partition in result["partitions"]},
        )

    def states(
        self,
        bootstrap: str,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = -1,
    ) -> dict[str, str]:
        """Returns the state of each transactional.id that ListTransactions lists."""
        return self.program.do(
            bootstrap,
            "",
            "list_transactions",
            states=states,
            producer_ids=producer_ids,
            min_duration_ms=min_duration_ms,
        )["states"]

    def producers(self, bootstrap: str, topic: str, partition: int) -> list[ActiveProducer]:
        response = self.program.do(bootstrap, topic, "describe_producers", partition=partition)
        return [ActiveProducer(**producer) for producer in response["producers"]]

    def abort(self, bootstrap: str, topic: str, partition: int, hanging: ActiveProducer) -> None:
        """Writes an abort marker into one partition without the coordinator."""
        self.program.do(
            bootstrap,
            topic,
            "abort_transaction",
            partition=partition,
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            coordinator_epoch=hanging.coordinator_epoch,
        )

    def fence(self, bootstrap: str, transactional_id: str) -> None:
        self.program.do(bootstrap, "", "fence_producer", transactional_id=transactional_id)

    def end_offset(self, bootstrap: str, topic: str, partition: int, *, committed: bool) -> int:
        return self.program.do(
            bootstrap, topic, "end_offset", partition=partition, committed=committed
        )["offset"]

    def group_offset(
        self, bootstrap: str, group: str, topic: str, partition: int, *, stable: bool
    ) -> int | None:
        """Returns the committed offset, or NO_OFFSET; None if it must be stable and is not."""
        return self.program.do(
            bootstrap, topic, "group_offset", group=group, partition=partition, stable=stable
        ).get("offset")
