"""The settings of a topic and the origin of an append, which decide what `validate` checks."""

from dataclasses import dataclass, field
from enum import Enum

from penstock.records.batch import TimestampType
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT, Compression


class AppendOrigin(Enum):
    """Who appends; it decides which rules apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """The group or transaction coordinator, which may write control batches."""
    REPLICATION = "replication"
    """A follower that copies the log of its leader."""


@dataclass(frozen=True, slots=True)
class AppendPolicy:
    """The settings of a topic that decide what may be appended and how it is stored."""

    compression: Compression | None = None
    """`compression.type`: the codec on disk; None (`producer`) keeps that of the producer."""
    level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False
    """Whether `cleanup.policy` contains `compact`, so that every record needs a key."""
    max_message_bytes: int = 1_048_588
    max_decompressed_bytes: int = DEFAULT_DECOMPRESSED_LIMIT
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether an uncompressed batch of a client is stored unchanged."""

    def __post_init__(self) -> None:
        plain = self.timestamp_type is TimestampType.CREATE_TIME and not self.compression
        object.__setattr__(self, "is_plain", plain)

    def target(self, source: Compression) -> Compression:
        """Returns the codec on disk for a batch that arrived with the codec `source`."""
        return source if self.compression is None else self.compression

    @property
    def target_level(self) -> int | None:
        """The compression level; it applies to the topic's codec, not to the producer's."""
        return None if self.compression is None else self.level
