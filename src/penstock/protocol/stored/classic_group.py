"""Records of `__consumer_offsets`: classic groups (type 2)."""

from typing import Annotated

from penstock.protocol.fields import Int32, Int64, Message, Struct, record_key, record_value, wire


class GroupMetadataKey(Message):
    INFO = record_key(2)

    group: str = ""


class MemberMetadata(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, wire("3+", ignorable=True)] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Annotated[Int32, wire("1+", ignorable=True)] = -1
    session_timeout: Int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


class GroupMetadataValue(Message):
    INFO = record_value(2, versions="0-4", flexible="4+")

    protocol_type: str = ""
    generation: Int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: Annotated[Int64, wire("2+", ignorable=True)] = -1
    members: list[MemberMetadata] = []
