"""Control records, which live among the data of a partition, and the transaction index.

The key of a control record (ControlRecordTypeSchema) says what the value is. That key, the commit
and abort markers (EndTxnMarker) and the entries of a `.txnindex` file (AbortedTxn) are led by their
version as an int16 (see `versioned`); the other values carry it in a field of their own.
"""

from typing import Annotated
from uuid import UUID

from msgspec import field

from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    UInt16,
    data,
    wire,
)


class ControlRecordTypeSchema(Message):
    INFO = data(versions="0")

    type: Int16 = 0


class EndTxnMarker(Message):
    INFO = data(versions="0")

    coordinator_epoch: Int32 = 0


class LeaderChangeMessageVoter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: Annotated[UUID, wire("1+")] = ZERO_UUID


class LeaderChangeMessage(Message):
    INFO = data(versions="0-1", flexible="0+")

    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[LeaderChangeMessageVoter] = []
    granting_voters: list[LeaderChangeMessageVoter] = []


class SnapshotHeaderRecord(Message):
    INFO = data(versions="0", flexible="0+")

    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooterRecord(Message):
    INFO = data(versions="0", flexible="0+")

    version: Int16 = 0


class KRaftVersionRecord(Message):
    INFO = data(versions="0", flexible="0+")

    version: Int16 = 0
    kraft_version: Int16 = 0


class VotersEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class VotersKRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class VotersVoter(Struct):
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID
    endpoints: list[VotersEndpoint] = []
    kraft_version_feature: VotersKRaftVersionFeature = field(
        default_factory=VotersKRaftVersionFeature
    )


class VotersRecord(Message):
    INFO = data(versions="0", flexible="0+")

    version: Int16 = 0
    voters: list[VotersVoter] = []


class AbortedTxn(Message):
    INFO = data(versions="0")

    producer_id: Int64 = 0
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    last_stable_offset: Int64 = 0
