"""Decoders of records of Kafka's internal topics, with the schemas of `penstock.protocol`.

A decoder returns the fields of a record's key and value. Both start with an int16: that of the key
is the record's type, that of the value its version. Bytes that do not match their schema raise a
`KafkaError`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import NamedTuple
from uuid import UUID

from penstock.cli.dump.items import Value
from penstock.core.errors import KafkaError, ProtocolError, UnsupportedVersionError
from penstock.core.internal_topics import (
    GROUP_METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from penstock.protocol.fields import Kind, Message, Struct
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from penstock.protocol.schema import fields_of
from penstock.protocol.stored import (
    classic_group,
    consumer_group,
    offsets,
    share_group,
    share_state,
    streams_group,
    transaction_log,
)
from penstock.protocol.versioned import decode_record_key, decode_versioned, read_prefix
from penstock.storage.checkpoint.checkpoint_files import uuid_text

Decoder = Callable[[bytes | None, bytes | None], tuple[Value, Value]]
"""Decodes key and value of a record; None for a value that is null."""

_CONSUMER_PROTOCOL = "consumer"


class _Schema(NamedTuple):
    key: type[Message]
    value: type[Message]


def _decode(
    schemas: dict[int, _Schema], topic: str, key: bytes | None, value: bytes | None
) -> tuple[Value, Value]:
    if key is None:
        raise ProtocolError(f"the record has no key, which every record of {topic} has")
    record_type = read_prefix(key)
    schema = schemas.get(record_type)
    if schema is None:
        raise UnsupportedVersionError(f"record type {record_type} of {topic} is not known")
    fields: dict[str, Value] = {
        "type": record_type,
        "data": to_value(decode_record_key(schema.key, key), 0),
    }
    if value is None:
        return fields, None
    message, version = decode_versioned(schema.value, value)
    data = to_value(message, version)
    if isinstance(message, classic_group.GroupMetadataValue):
        _open_members(message, data, version)
    return fields, {"version": version, "data": data}


def _open_members(
    group: classic_group.GroupMetadataValue, data: dict[str, Value], version: int
) -> None:
    """Decodes the subscriptions and assignments in the metadata of a consumer group."""
    if group.protocol_type == _CONSUMER_PROTOCOL:
        data["members"] = [
            to_value(member, version)
            | {
                "subscription": _embedded(ConsumerProtocolSubscription, member.subscription),
                "assignment": _embedded(ConsumerProtocolAssignment, member.assignment),
            }
            for member in group.members
        ]


def _embedded(cls: type[Message], data: bytes) -> Value:
    """Returns the message in bytes that only clients decode; the bytes if they are not one."""
    try:
        message, version = decode_versioned(cls, data)
    except KafkaError:
        return data
    return to_value(message, version)


def to_value(part: Struct, version: int) -> dict[str, Value]:
    """Returns the fields that a message has in a version, under Kafka's names."""
    fields: dict[str, Value] = {}
    for field in fields_of(type(part)):
        value = getattr(part, field.name)
        if version in field.versions and (field.tag is None or value != field.default):
            fields[_camel_case(field.name)] = _plain(value, version)
    return fields


def _plain(value: object, version: int) -> Value:
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case UUID():
            return uuid_text(value)
        case list():
            return [_plain(element, version) for element in value]
        case Struct():
            return to_value(value, version)
        case _:
            return str(value)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _schemas(*modules: ModuleType) -> dict[int, _Schema]:
    keys = {cls.INFO.key: cls for cls in _messages(modules) if cls.INFO.kind is Kind.RECORD_KEY}
    return {
        cls.INFO.key: _Schema(keys[cls.INFO.key], cls)
        for cls in _messages(modules)
        if cls.INFO.kind is Kind.RECORD_VALUE and cls.INFO.key is not None
    }


def _messages(modules: tuple[ModuleType, ...]) -> Iterator[type[Message]]:
    for module in modules:
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, Message) and member is not Message:
                yield member


def _decoder(topic: str, *modules: ModuleType) -> Decoder:
    """Returns the decoder of an internal topic, whose records are declared in these modules."""
    return partial(_decode, _schemas(*modules), topic)


decode_consumer_offsets = _decoder(
    GROUP_METADATA_TOPIC, offsets, classic_group, consumer_group, share_group, streams_group
)
decode_transaction_state = _decoder(TRANSACTION_STATE_TOPIC, transaction_log)
decode_share_group_state = _decoder(SHARE_STATE_TOPIC, share_state)
