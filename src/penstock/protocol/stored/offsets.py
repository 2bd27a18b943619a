"""Records of `__consumer_offsets`: committed offsets (types 0 and 1).

Type 0 is the one of Kafka before 0.10; it is read, never written.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.fields import (
    ZERO_UUID,
    Int32,
    Int64,
    Message,
    record_key,
    record_value,
    wire,
)


class LegacyOffsetCommitKey(Message):
    INFO = record_key(0)

    group: str = ""
    topic: str = ""
    partition: Int32 = 0


class LegacyOffsetCommitValue(Message):
    INFO = record_value(0, versions="0")

    offset: Int64 = 0
    metadata: str = ""
    commit_timestamp: Int64 = 0


class OffsetCommitKey(Message):
    INFO = record_key(1)

    group: str = ""
    topic: str = ""
    partition: Int32 = 0


class OffsetCommitValue(Message):
    INFO = record_value(1, versions="0-4", flexible="4+")

    offset: Int64 = 0
    leader_epoch: Annotated[Int32, wire("3+", ignorable=True)] = -1
    metadata: str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, wire("1", ignorable=True)] = -1
    topic_id: Annotated[UUID, wire("4+", tag=0, ignorable=True)] = ZERO_UUID
