"""Records of `__share_group_state`: which records of a partition are in whose hands.

A snapshot (type 0) holds the whole state of a group and partition, updates (type 1) what came
after it.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.fields import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    record_key,
    record_value,
    wire,
)


class ShareSnapshotKey(Message):
    INFO = record_key(0)

    group_id: str = ""
    topic_id: UUID = ZERO_UUID
    partition: Int32 = 0


class ShareSnapshotStateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareSnapshotValue(Message):
    INFO = record_value(0, versions="0", flexible="0+")

    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, wire(tag=0)] = -1
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: list[ShareSnapshotStateBatch] = []


class ShareUpdateKey(Message):
    INFO = record_key(1)

    group_id: str = ""
    topic_id: UUID = ZERO_UUID
    partition: Int32 = 0


class ShareUpdateStateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareUpdateValue(Message):
    INFO = record_value(1, versions="0", flexible="0+")

    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, wire(tag=0)] = -1
    state_batches: list[ShareUpdateStateBatch] = []
