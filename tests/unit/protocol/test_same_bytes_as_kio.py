"""The same bytes as kio, an independent implementation, for every message and version it knows.

Pairs of equal messages, one of Penstock and one of kio, are generated together. Fields are paired
by their order and their names compared, which detects a missing or misplaced field.
"""

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from importlib import import_module
from random import Random
from types import NoneType
from typing import Any, get_args
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import ZERO_UUID, Message, Scalar, Struct
from penstock.protocol.schema import Array, Field, WireType, fields_of
from tests.support.protocol.message_samples import INTEGERS, TEXTS, message_classes

SAMPLES = 12
# Names that Kafka changed after the release that kio follows; the bytes are the same.
RENAMED = {
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
}
OURS = {cls.__name__: cls for cls in message_classes()}
KNOWN_TO_KIO = sorted(
    path
    for versions in schema_name_map.values()
    for kinds in versions.values()
    for path in kinds.values()
)


def test_kio_knows_many() -> None:
    """The enumeration below is not empty by accident."""
    assert len(KNOWN_TO_KIO) > 500


@pytest.mark.parametrize("path", KNOWN_TO_KIO)
def test_same_bytes(path: str) -> None:
    theirs = _load(path)
    version = int(theirs.__version__)
    cls = OURS[theirs.__name__]
    assert version in cls.INFO.versions
    assert (version in cls.INFO.flexible) == theirs.__flexible__
    assert cls.INFO.key == getattr(theirs, "__api_key__", None)
    random = Random(path)
    for _ in range(SAMPLES):
        message, entity = _pair(cls, theirs, version, random)
        assert isinstance(message, Message)
        buffer = io.BytesIO()
        entity_writer(theirs)(buffer, entity)
        assert encode(message, version) == buffer.getvalue()
        assert decode(cls, version, buffer.getvalue()) == (message, len(buffer.getvalue()))


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _pair(cls: type[Struct], theirs: Any, version: int, random: Random) -> tuple[Struct, object]:
    """Two structs with the same content."""
    ours_here = [field for field in fields_of(cls) if version in field.versions]
    theirs_here = dataclasses.fields(theirs)
    assert [_plain(field.name) for field in ours_here] == [
        _plain(field.name) for field in theirs_here
    ]
    mine: dict[str, object] = {}
    theirs_fields: dict[str, object] = {}
    for field, their_field in zip(ours_here, theirs_here, strict=True):
        mine[field.name], theirs_fields[their_field.name] = _pair_of_field(
            field, their_field, version, random
        )
    return cls(**mine), theirs(**theirs_fields)


def _plain(name: str) -> str:
    """A field's name without what the two spell differently: kio drops the unit of a time."""
    return RENAMED.get(name, name).removesuffix("_ms").replace("_", "")


def _pair_of_field(
    field: Field, theirs: dataclasses.Field[Any], version: int, random: Random
) -> tuple[object, object]:
    nullable = version in field.nullable
    if field.tag is not None:
        assert theirs.metadata["tag"] == field.tag
        if random.random() < 0.3 and theirs.default is not dataclasses.MISSING:
            return field.default, theirs.default
    else:
        assert "tag" not in theirs.metadata
    if nullable:
        assert NoneType in get_args(theirs.type)
        if random.random() < 0.3:
            return None, None
    return _pair_of_values(field.type, theirs.type, theirs.metadata, version, random)


def _pair_of_values(
    wire_type: WireType, theirs: Any, metadata: Any, version: int, random: Random
) -> tuple[object, object]:
    inner = next((arg for arg in get_args(theirs) if arg not in (NoneType, Ellipsis)), theirs)
    if isinstance(wire_type, Array):
        element = next((arg for arg in get_args(inner) if arg is not Ellipsis), inner)
        pairs = [
            _pair_of_values(wire_type.element, element, metadata, version, random)
            for _ in range(random.choice((0, 1, 2)))
        ]
        return [mine for mine, _ in pairs], tuple(pair for _, pair in pairs)
    if not isinstance(wire_type, Scalar):
        return _pair(wire_type, inner, version, random)
    return _pair_of_scalars(wire_type, metadata["kafka_type"], random)


def _pair_of_scalars(scalar: Scalar, their_type: str, random: Random) -> tuple[object, object]:
    if their_type == "error_code":
        code = random.choice(list(ErrorCode))
        return code.value, code
    if their_type in ("timedelta_i32", "timedelta_i64"):
        milliseconds = random.choice((-(2**31), 2**31 - 1, 0, 1500))
        return milliseconds, timedelta(milliseconds=milliseconds)
    if their_type == "datetime_i64":
        # kio has no times before 1970 and none between two seconds.
        seconds = random.choice((0, 1, 1_700_000_000, 2**32))
        return seconds * 1000, datetime.fromtimestamp(seconds, tz=UTC)
    value: object
    if scalar in INTEGERS:
        low, high = INTEGERS[scalar]
        value = random.choice((low, high, 0, random.randint(low, high)))
    elif scalar is Scalar.BOOL:
        value = random.random() < 0.5
    elif scalar is Scalar.FLOAT64:
        value = random.uniform(-1e9, 1e9)
    elif scalar is Scalar.UUID:
        value = UUID(int=random.choice((1, 2**128 - 1, random.getrandbits(128))))
        if random.random() < 0.3:
            return ZERO_UUID, None  # kio says None for the id that is no id
    elif scalar is Scalar.STRING:
        value = random.choice(TEXTS)
    else:
        value = random.randbytes(random.choice((0, 1, 126, 127, 500)))
    return value, value
