"""What a fault injection has done to a broker, and what must be true of its logs.

Every record has a value of its own, a token. The model knows which tokens were acknowledged, which
were refused, and which may be in the log or not.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from penstock.core.ids import TopicPartition
from penstock.records.batch import split, verify
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation


class Outcome(Enum):
    """The outcome that the client received for a record."""

    ACKNOWLEDGED = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """It got no response, or an error after the append."""


class TopicKind(Enum):
    """The settings of a topic."""

    FLUSHED = auto()
    """Acknowledged records are durable."""
    PLAIN = auto()
    """Acknowledged records survive the end of the process, not a power failure."""
    COMPACTED = auto()
    RETAINED = auto()


class LoggedRecord(NamedTuple):
    offset: int
    key: bytes | None
    token: bytes
    producer_id: int
    is_transactional: bool


@dataclass
class PartitionModel:
    """The records that were sent to one partition of one topic id."""

    kind: TopicKind
    outcomes: dict[bytes, Outcome] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Offsets of the acknowledged tokens."""
    keys: dict[bytes, bytes] = field(default_factory=dict)
    """Keys of the tokens of a compacted topic."""
    deleted_to: int = 0
    """The largest offset of a DeleteRecords request."""

    def lose_unflushed(self) -> None:
        """After a power failure nothing is known of records that were not flushed."""
        if self.kind is TopicKind.PLAIN:
            for token, outcome in self.outcomes.items():
                if outcome is Outcome.ACKNOWLEDGED:
                    self.outcomes[token] = Outcome.UNKNOWN


@dataclass
class Transaction:
    """A transaction over several partitions, with an offset in a group of its own."""

    transactional_id: str
    group: str
    tokens: dict[bytes, tuple[TopicPartition, PartitionModel]] = field(default_factory=dict)
    has_offset: bool = False
    is_commit_requested: bool = False
    is_committed: bool = False
    """Whether the commit was acknowledged."""


@dataclass
class Model:
    """Everything that clients have done."""

    partitions: dict[TopicPartition, PartitionModel] = field(default_factory=dict)
    """The partitions of existing topics."""
    unclear_topics: dict[str, TopicKind] = field(default_factory=dict)
    """Topics that may exist or not: their creation or deletion got no clear response."""
    unclear_deletions: dict[TopicPartition, PartitionModel] = field(default_factory=dict)
    """The partitions of such topics, if they existed before."""
    deleted_tokens: set[bytes] = field(default_factory=set)
    """Tokens of topics that were deleted."""
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The last acknowledged offset of a group."""
    unclear_offsets: dict[tuple[str, TopicPartition], set[int]] = field(default_factory=dict)
    """Offsets whose commit got an error: they may be committed or not."""
    transactions: list[Transaction] = field(default_factory=list)
    last_token: int = 0

    def new_token(self) -> bytes:
        self.last_token += 1
        return b"token %d" % self.last_token

    def on_power_failure(self) -> None:
        for partition in (*self.partitions.values(), *self.unclear_deletions.values()):
            partition.lose_unflushed()

    def begin_deletion(self, topic: str) -> None:
        for key in [key for key in self.partitions if key.topic == topic]:
            self.unclear_deletions[key] = self.partitions.pop(key)
        for group_key in [key for key in self.offsets if key[1].topic == topic]:
            del self.offsets[group_key]

    def end_deletion(self, topic: str) -> None:
        """The topic is deleted."""
        for key in [key for key in self.unclear_deletions if key.topic == topic]:
            self.deleted_tokens.update(self.unclear_deletions.pop(key).outcomes)


def read_log(log: Log) -> list[LoggedRecord]:
    """Returns all records of a log; raises KafkaError if one is invalid."""
    return [record for record, _ in _read(log)]


def read_committed(log: Log) -> list[LoggedRecord]:
    """Returns the records that are in no transaction, or in one that was committed."""
    return [record for record, is_committed in _read(log) if is_committed]


def _read(log: Log) -> list[tuple[LoggedRecord, bool]]:
    records: list[tuple[LoggedRecord, bool]] = []
    pending: dict[int, list[int]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        batches = log.read(offset, 1 << 20, FetchIsolation.LOG_END).records
        if batches is None:
            break
        data = batches.read()
        for position, header in split(data):
            verify(data, position, header)
            assert header.last_offset >= offset, f"offset {header.last_offset} after {offset}"
            offset = header.last_offset + 1
            if header.is_control:
                marker = read_end_txn_marker(data, position, header)
                for index in pending.pop(header.producer_id, ()):
                    records[index] = (records[index][0], marker.commits)
                continue
            for record in read_records(data, position, header):
                if record.offset < log.log_start_offset:
                    continue
                if header.is_transactional:
                    pending.setdefault(header.producer_id, []).append(len(records))
                logged = LoggedRecord(
                    record.offset,
                    record.key,
                    (record.value or b"").rstrip(b"."),
                    header.producer_id,
                    header.is_transactional,
                )
                records.append((logged, not header.is_transactional))
    return records


def check_partition(key: TopicPartition, model: PartitionModel, log: Log) -> None:
    """Raises AssertionError if the log contradicts what clients were told."""
    records = read_log(log)
    by_token = {record.token: record for record in records}
    duplicates = [token for token, count in Counter(r.token for r in records).items() if count > 1]
    assert not duplicates, f"{key} has {duplicates} twice"
    if model.kind is not TopicKind.RETAINED:
        assert log.log_start_offset <= model.deleted_to, (
            f"{key} starts at {log.log_start_offset}, which nobody requested"
        )
    for token, outcome in model.outcomes.items():
        if outcome is Outcome.REFUSED:
            assert token not in by_token, f"{key} has {token!r}, which was refused"
        elif outcome is Outcome.ACKNOWLEDGED:
            if token in by_token:
                offset = model.offsets[token]
                assert by_token[token].offset == offset, f"{token!r} of {key} is not at {offset}"
            else:
                _check_missing(key, model, log, token, by_token)


def check_fetched(
    key: TopicPartition, model: PartitionModel, start: int, error_code: int, data: bytes
) -> None:
    """Raises AssertionError if a consumer has received what the partition cannot have."""
    if error_code:
        assert not data, f"{key} returned records with error {error_code}"
        return
    for position, header in split(data):
        verify(data, position, header)
        assert header.last_offset >= start, f"{key} returned {header.last_offset} for {start}"
        if header.is_control:
            continue
        for record in read_records(data, position, header):
            token = (record.value or b"").rstrip(b".")
            outcome = model.outcomes.get(token)
            assert outcome is not Outcome.REFUSED, f"{key} returned {token!r}, which was refused"
            if outcome is Outcome.ACKNOWLEDGED:
                assert record.offset == model.offsets[token], f"{key} returned {token!r} elsewhere"


def _check_missing(
    key: TopicPartition,
    model: PartitionModel,
    log: Log,
    token: bytes,
    by_token: dict[bytes, LoggedRecord],
) -> None:
    offset = model.offsets[token]
    if offset < log.log_start_offset:
        return
    if model.kind is TopicKind.COMPACTED:
        later = [
            record
            for record in by_token.values()
            if record.key == model.keys[token] and record.offset > offset
        ]
        if later:
            return
    raise AssertionError(
        f"{key} has lost {token!r}, which was acknowledged at offset {offset}; it has offsets "
        f"{log.log_start_offset} to {log.log_end_offset}"
    )
