"""The interface of clients with transactions, as the tests use it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from tests.support.kafka_clients.model import Record

TRANSACTION_SECONDS = 60.0
"""How long a transaction may stay open, unless a test wants less."""
COPY = b"copy of "
"""The prefix that `TransactionalClient.transform` adds to each value."""


class _Open(ABC):
    """Something that is closed at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class TransactionalProducer(_Open):
    """A producer with a transactional.id. Raises ClientError if the broker refuses a request.

    One that is closed with a transaction open leaves it open.
    """

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Sends the records and waits until the broker has them."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...


class Reader(_Open):
    """Reads partitions of a topic from their beginning; each read continues the last one."""

    def __init__(self) -> None:
        self.ahead: list[Record] = []
        """Records that arrived with the last record that was read."""

    def read(self, count: int) -> list[Record]:
        """The next records, for which it waits."""
        if count > len(self.ahead):
            self.ahead += self.more(count - len(self.ahead))
        read, self.ahead = self.ahead[:count], self.ahead[count:]
        return read

    @abstractmethod
    def more(self, count: int) -> list[Record]:
        """At least so many further records."""


class TransactionalClient(_Open):
    """A Kafka client with transactions."""

    name: str
    ends_by_version_2 = False
    """Whether it supports transaction version 2: each end raises the producer epoch."""
    retries_the_end = True
    """Whether it retries a commit or an abort whose response was lost."""

    def close(self) -> None:
        """Ends everything that the client keeps running between two operations."""
        return

    @abstractmethod
    def producer(
        self, bootstrap: str, transactional_id: str, *, timeout: float = TRANSACTION_SECONDS
    ) -> TransactionalProducer:
        """Returns a producer with this transaction timeout in seconds; librdkafka: at least 1."""

    @abstractmethod
    def reader(
        self, bootstrap: str, topic: str, partitions: Sequence[int], *, committed: bool = True
    ) -> Reader:
        """A reader with isolation.level read_committed, or with read_uncommitted."""

    @abstractmethod
    def transform(
        self, bootstrap: str, group: str, source: str, target: str, count: int, *, commit: bool
    ) -> None:
        """Reads `count` records as a member of the group and writes a copy of each, in one
        transaction with the group's new offsets. The copy is in the partition of the same number.

        The transactional.id is named after the group.
        """
