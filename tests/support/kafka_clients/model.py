"""The interface of all Kafka clients, as the tests use it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Self

Acks = Literal["0", "1", "all"]
Header = tuple[str, bytes | None]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_OFFSET = -1
NO_CODE = -1


class Record(NamedTuple):
    """A record: to be produced (its offset then means nothing), or as it was consumed."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int = 0
    timestamp: int = 0
    offset: int = NO_OFFSET


class GroupRead(NamedTuple):
    """The records that a member read, and the offsets that its group then committed."""

    records: list[Record]
    committed: dict[int, int]


class ClientError(Exception):
    """The client reported an error: Kafka's code for it, or NO_CODE, and the client's own words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class Client(ABC):
    """A Kafka client. Used as a context manager, so that nothing of it outlives the tests."""

    name: str
    sets_timestamps = True
    """Whether a producer can set the timestamp of a record."""
    keeps_header_order = True
    """Whether headers of different names keep their order: KafkaJS groups them by name."""
    writes_null_headers = True
    """Whether a producer can send a header whose value is null."""
    returns_offsets = True
    """Whether a producer returns the offsets of its records."""
    idempotent_by_default = False
    unknown_topic_code = 3
    """The code that it reports for a missing topic (UNKNOWN_TOPIC_OR_PARTITION)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything that the client keeps running between two operations."""
        return

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        auto_create: bool = False,
        timeout: float = 20,
    ) -> list[int]:
        """Sends the records and waits for the broker; the offset of each, or NO_OFFSET.

        `timeout` is how long the client may look for the topic, in seconds.
        """

    @abstractmethod
    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int], count: int
    ) -> list[Record]:
        """Returns the first `count` records of the partitions, without a group if possible."""

    @abstractmethod
    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        """Returns the first offset whose record is not older than `timestamp`, or NO_OFFSET."""

    @abstractmethod
    def consume_group(self, bootstrap: str, topic: str, group: str, count: int) -> GroupRead:
        """Joins, reads `count` records, commits, and fetches the committed offsets."""


class AdminClient(Client):
    """A client with which topics can be managed."""

    @abstractmethod
    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, bootstrap: str, topic: str) -> None: ...

    @abstractmethod
    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        """Every setting of a topic and its value."""
