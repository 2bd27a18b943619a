"""Records of `__cluster_metadata`, the log of a KRaft controller: those that a migration needs.

A record's value is a frame with the type and the version of the message; `decode_frame` reads it,
and `encode_frame` writes it.
"""

from typing import Annotated
from uuid import UUID

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    metadata_record,
    wire,
)
from penstock.protocol.primitives import UVARINTS, read_uvarint

_FRAME_VERSION = 1


class TopicRecord(Message):
    INFO = metadata_record(2)

    name: str = ""
    topic_id: UUID = ZERO_UUID


class PartitionRecord(Message):
    INFO = metadata_record(3, versions="0-2")

    partition_id: Int32 = -1
    topic_id: UUID = ZERO_UUID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, wire("0+", tag=0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[UUID], wire("1+")] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, wire("2+", tag=1)] = None
    last_known_elr: Annotated[list[Int32] | None, wire("2+", tag=2)] = None


class ConfigRecord(Message):
    INFO = metadata_record(4)

    resource_type: Int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class PartitionChangeRecord(Message):
    """The fields of a partition that have changed; None, and -2 for the leader, if they have not.

    Each one that changes the leader or the ISR raises the partition epoch by one, and a leader
    that is not -2 the leader epoch too.
    """

    INFO = metadata_record(5, versions="0-2")

    partition_id: Int32 = -1
    topic_id: UUID = ZERO_UUID
    isr: Annotated[list[Int32] | None, wire("0+", tag=0)] = None
    leader: Annotated[Int32, wire("0+", tag=1)] = -2
    replicas: Annotated[list[Int32] | None, wire("0+", tag=2)] = None
    removing_replicas: Annotated[list[Int32] | None, wire("0+", tag=3)] = None
    adding_replicas: Annotated[list[Int32] | None, wire("0+", tag=4)] = None
    leader_recovery_state: Annotated[Int8, wire("0+", tag=5)] = -1
    directories: Annotated[list[UUID] | None, wire("1+", tag=8)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, wire("2+", tag=6)] = None
    last_known_elr: Annotated[list[Int32] | None, wire("2+", tag=7)] = None


class RemoveTopicRecord(Message):
    INFO = metadata_record(9)

    topic_id: UUID = ZERO_UUID


class DelegationTokenRecord(Message):
    INFO = metadata_record(10)

    owner: str = ""
    requester: str = ""
    renewers: list[str] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: str = ""


class UserScramCredentialRecord(Message):
    INFO = metadata_record(11)

    name: str = ""
    mechanism: Int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(Message):
    INFO = metadata_record(12)

    name: str = ""
    feature_level: Int16 = 0


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ClientQuotaRecord(Message):
    INFO = metadata_record(14)

    entity: list[EntityData] = []
    key: str = ""
    value: float = 0.0
    remove: bool = False


class ProducerIdsRecord(Message):
    INFO = metadata_record(15)

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class AccessControlEntryRecord(Message):
    INFO = metadata_record(18)

    id: UUID = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 0
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(Message):
    INFO = metadata_record(19)

    id: UUID = ZERO_UUID


class RemoveUserScramCredentialRecord(Message):
    INFO = metadata_record(22)

    name: str = ""
    mechanism: Int8 = 0


class RemoveDelegationTokenRecord(Message):
    INFO = metadata_record(26)

    token_id: str = ""


class BeginTransactionRecord(Message):
    """The records up to the end of the transaction apply together, or not at all."""

    INFO = metadata_record(23)

    name: Annotated[str | None, wire("0+", tag=0)] = None


class EndTransactionRecord(Message):
    INFO = metadata_record(24)


class AbortTransactionRecord(Message):
    INFO = metadata_record(25)

    reason: Annotated[str | None, wire("0+", tag=0)] = None


_MESSAGES: dict[int | None, type[Message]] = {
    cls.INFO.key: cls
    for cls in (
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
    )
}


def decode_frame(value: bytes | memoryview) -> Message | None:
    """Returns the message in the value of a record; None if a migration does not need its type.

    Raises ProtocolError for a frame or a version that is not known.
    """
    view = memoryview(value)
    try:
        frame_version, position = _varint(view, 0)
        if frame_version != _FRAME_VERSION:
            raise ProtocolError(f"metadata records with frame version {frame_version} are unknown")
        record_type, position = _varint(view, position)
        version, position = _varint(view, position)
    except IndexError:
        raise ProtocolError(f"a metadata record has only {len(view)} bytes") from None
    cls = _MESSAGES.get(record_type)
    if cls is None:
        return None
    message, _ = decode(cls, version, view, position)
    return message


def encode_frame(message: Message, version: int = 0) -> bytes:
    """Returns the value of a record with this message."""
    record_type = message.INFO.key
    if record_type is None:
        raise ProtocolError(f"{type(message).__name__} is not a metadata record")
    frame = UVARINTS[_FRAME_VERSION] + UVARINTS[record_type] + UVARINTS[version]
    return frame + encode(message, version)


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    first = view[position]
    if first < 0x80:
        return first, position + 1
    return read_uvarint(view, position + 1, first)
