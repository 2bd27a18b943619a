"""FetchSnapshot (59): a KRaft replica reads a piece of a metadata snapshot.

Versions 0 to 1, flexible.
"""

from typing import Annotated
from uuid import UUID

from msgspec import field

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    RecordsOrRange,
    Struct,
    UInt16,
    request,
    response,
    wire,
)


class FetchSnapshotRequestSnapshotId(Struct):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: FetchSnapshotRequestSnapshotId = field(
        default_factory=FetchSnapshotRequestSnapshotId
    )
    position: Int64 = 0
    replica_directory_id: Annotated[UUID, wire("1+", tag=0, ignorable=True)] = ZERO_UUID


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: str = ""
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = []


class FetchSnapshotRequest(Message):
    INFO = request(ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+")

    cluster_id: Annotated[str | None, wire(tag=0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 2147483647
    topics: list[FetchSnapshotRequestTopicSnapshot] = []


class FetchSnapshotResponseSnapshotId(Struct):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotLeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: FetchSnapshotResponseSnapshotId = field(
        default_factory=FetchSnapshotResponseSnapshotId
    )
    current_leader: Annotated[FetchSnapshotLeaderIdAndEpoch, wire(tag=0)] = field(
        default_factory=FetchSnapshotLeaderIdAndEpoch
    )
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: RecordsOrRange = b""


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = ""
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = []


class FetchSnapshotNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0


class FetchSnapshotResponse(Message):
    INFO = response(ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[FetchSnapshotResponseTopicSnapshot] = []
    node_endpoints: Annotated[list[FetchSnapshotNodeEndpoint], wire("1+", tag=0)] = []
