"""Invalid frames, and valid ones with any values in their fields."""

import struct
from collections.abc import Iterable
from copy import copy
from random import Random
from typing import TypeAlias, cast
from uuid import UUID

from hypothesis import strategies as st

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.frames import encode_request
from penstock.protocol.schema import Array, WireType, fields_of
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from tests.support.protocol.message_strategies import messages_of

NAMES = ("fuzz", "fuzz", "other", "group-1", "", "retention.ms", "consumer", "range", "PLAIN", "0")
"""Names of topics and groups that exist in the broker under test."""

Sent: TypeAlias = tuple[Message, int]
"""A request and its version."""

_SMALL = {"num_partitions": 3, "count": 3, "replication_factor": 1}
_WAITS = frozenset(
    {"max_wait_ms", "session_timeout_ms", "rebalance_timeout_ms", "timeout_ms", "throttle_time_ms"}
)
_INTEGERS = frozenset({Scalar.INT8, Scalar.INT16, Scalar.INT32, Scalar.INT64})


def versions_of(keys: Iterable[ApiKey]) -> list[tuple[ApiKey, int]]:
    """Returns each of the APIs with each of its versions."""
    return [
        (key, version)
        for key in keys
        for version in range(HANDLERS[key].min_version, HANDLERS[key].max_version + 1)
    ]


served = st.sampled_from(versions_of(sorted(HANDLERS.keys() - CLUSTER_APIS)))
between_brokers = st.sampled_from(versions_of(sorted(CLUSTER_APIS)))


@st.composite
def requests(draw: st.DrawFn, apis: st.SearchStrategy[tuple[ApiKey, int]] = served) -> Sent:
    """A request of any supported API and version; about half of its values are plausible."""
    key, version = draw(apis)
    message = draw(messages_of(api(key).request, version))
    make_plausible(message, version, Random(draw(st.integers(0, 2**32))))
    return message, version


def frame(message: Message, version: int, correlation_id: int = 1) -> bytes:
    """A request as it is sent, with its length in front."""
    parts = encode_request(message, version, correlation_id, "hostile")
    return b"".join(cast("list[bytes]", parts))


@st.composite
def damaged_frames(draw: st.DrawFn) -> bytes:
    """One or two valid requests with bytes flipped, removed or inserted, or a wrong length."""
    data = bytearray(frame(*draw(requests())))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        match draw(st.sampled_from(["flip", "cut", "splice", "length", "end"])):
            case "flip" if data:
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "splice":
                second_frame = frame(*draw(requests()))
                start = draw(st.integers(0, len(second_frame) - 1))
                data[at:at] = second_frame[start : start + draw(st.integers(1, 200))]
            case "length" if len(data) >= 4:
                length = draw(st.sampled_from([-1, 0, 1, 9, len(data), 2**20, 2**31 - 1, -(2**31)]))
                data[:4] = struct.pack(">i", length)
            case "end":
                del data[at:]
    if draw(st.booleans()) and len(data) >= 4:
        # The length is correct, so that the damage passes the framing.
        data[:4] = struct.pack(">i", len(data) - 4)
    return bytes(data)


@st.composite
def random_bytes(draw: st.DrawFn) -> bytes:
    """Random bytes, often after the length and the header of a request."""
    data = draw(st.binary(max_size=300))
    if draw(st.booleans()):
        key, version = draw(served)
        data = struct.pack(">hhi", key, version, 7) + data
    if draw(st.booleans()):
        data = struct.pack(">i", len(data)) + data
    return data


def make_plausible(message: Struct, version: int, random: Random) -> None:
    """Replaces values by plausible ones that get further into the broker, and limits timeouts."""
    for field in fields_of(type(message)):
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if isinstance(value, int) and field.name in _WAITS:
            setattr(message, field.name, min(value, 20))
        elif isinstance(value, int) and field.name in _SMALL:
            setattr(message, field.name, min(value, _SMALL[field.name]))
        elif value is not None:
            setattr(message, field.name, _sensible(field.type, value, version, random))


def _sensible(wire_type: WireType, value: object, version: int, random: Random) -> object:
    if isinstance(wire_type, Array):
        assert isinstance(value, list)
        return [_sensible(wire_type.element, element, version, random) for element in value]
    if not isinstance(wire_type, Scalar):
        assert isinstance(value, Struct)
        # The value may be a default that all messages share.
        copied = copy(value)
        make_plausible(copied, version, random)
        return copied
    if random.random() < 0.5:
        return value
    if wire_type is Scalar.STRING:
        return random.choice(NAMES)
    if wire_type is Scalar.RECORDS:
        return _batches(random)
    if wire_type is Scalar.UUID:
        return UUID(int=random.choice((0, 1, 2**64)))
    if wire_type in _INTEGERS:
        return random.choice((-1, 0, 1, 2))
    return value


def _batches(random: Random) -> bytes:
    """A batch as a producer sends it; in every second one, a few bytes are changed."""
    codec = random.choice(list(Compression))
    has_id = random.random() < 0.3
    batch = build_batch(
        [Record(i, random.choice((-1, 1_700_000_000_000)), None, b"v" * 20) for i in range(3)],
        compression=codec,
        producer_id=random.randrange(3) if has_id else -1,
        producer_epoch=random.randrange(2) if has_id else -1,
        base_sequence=random.randrange(4) if has_id else -1,
        is_transactional=has_id and random.random() < 0.3,
    )
    if random.random() < 0.5:
        for _ in range(random.randrange(1, 4)):
            batch[random.randrange(len(batch))] = random.randrange(256)
    return bytes(batch)


RESPONDS_LATE = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""APIs whose response may wait for other members of a group, longer than the test."""
