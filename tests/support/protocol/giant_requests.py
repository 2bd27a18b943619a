"""Requests with as many elements as possible, for every array field of every API that is served.

    for giant in giant_requests(20_000):
        client.send(giant.message, giant.version)

They are generated from the declared messages, so that a new API or a new array field is covered
without a change here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from penstock.broker.handlers.table import HANDLERS
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message, Scalar, Struct
from penstock.protocol.schema import Array, Field, fields_of

TOPIC = "existing"
GROUP = "hostile"

_TEXTS: Mapping[str, str] = {
    "topic": TOPIC,
    "topic_name": TOPIC,
    "name": TOPIC,
    "group_id": GROUP,
    "transactional_id": GROUP,
    "v3_and_below_transactional_id": GROUP,
    "protocol_type": "consumer",
    "entity_type": "user",
    "host": "*",
    "principal": "User:hostile",
}
"""Plausible values of the strings outside the giant array, by field; others are "x"."""

_NUMBERS: Mapping[str, int] = {
    "replica_id": -1,
    "max_bytes": 1_000_000,
    "partition_max_bytes": 1_000_000,
    "num_partitions": 1,
    "count": 2,
    "replication_factor": 1,
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 6000,
    "timeout_ms": 1000,
    "session_epoch": -1,
    "session_id": 0,
    "isolation_level": 0,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "timestamp": -1,
    "producer_id": 1,
    "pattern_type": 3,
    "resource_pattern_type": 3,
    "permission_type": 3,
    "operation": 3,
    "resource_type": 2,
    "type": 2,
}
_FLAGS = frozenset({"validate_only", "require_stable"})
"""Booleans that are set; the others are not: nothing is created on the way."""

Path = tuple[Field, ...]
"""The fields that lead to an array; all but the last may be structs or arrays of structs."""


class GiantRequest(NamedTuple):
    """A request with a giant array at `path`."""

    api_key: ApiKey
    version: int
    path: str
    message: Message

    @property
    def title(self) -> str:
        return f"{self.api_key.name} v{self.version} {self.path}"


def array_paths() -> Iterator[tuple[ApiKey, int, Path]]:
    """Yields every array of every request, with the highest served version that has it."""
    for key, spec in HANDLERS.items():
        for path in _paths(api(key).request):
            versions = [
                version
                for version in range(spec.min_version, spec.max_version + 1)
                if all(version in field.versions for field in path)
            ]
            if versions:
                yield key, versions[-1], path


def giant_requests(elements: int, *, distinct: bool = True) -> Iterator[GiantRequest]:
    """Yields a request for each array, with at most `elements` elements in all of its arrays.

    The elements differ in their first field, or are all the same unless `distinct`.
    """
    for key, version, path in array_paths():
        yield giant_request(key, version, path, elements, distinct=distinct)


def giant_request(
    key: ApiKey, version: int, path: Path, elements: int, *, distinct: bool = True
) -> GiantRequest:
    title = ".".join(field.name for field in path)
    element = path[-1].type
    assert isinstance(element, Array)
    around = len(path) - 1
    count = (elements - around) // _weight(element.element, version)
    message = _build(api(key).request, version, path, count, distinct)
    assert isinstance(message, Message)
    return GiantRequest(key, version, title, message)


def _paths(cls: type[Struct], before: Path = ()) -> Iterator[Path]:
    for field in fields_of(cls):
        part = field.type
        if isinstance(part, Array):
            yield (*before, field)
            part = part.element
        if not isinstance(part, Scalar):
            yield from _paths(part, (*before, field))


def _weight(element: "Scalar | type[Struct]", version: int) -> int:
    """Returns the number of array elements that one element adds, itself included."""
    if isinstance(element, Scalar):
        return 1
    weight = 1
    for field in _fields(element, version):
        if isinstance(field.type, Array):
            weight += _weight(field.type.element, version)
        elif not isinstance(field.type, Scalar):
            weight += _weight(field.type, version) - 1
    return weight


def _fields(cls: type[Struct], version: int) -> list[Field]:
    return [field for field in fields_of(cls) if version in field.versions]


def _build(cls: type[Struct], version: int, path: Path, count: int, distinct: bool) -> Struct:
    values: dict[str, Any] = {}
    for field in _fields(cls, version):
        if field is not path[0]:
            values[field.name] = _other_value(field, version)
            continue
        part = field.type.element if isinstance(field.type, Array) else field.type
        if len(path) > 1:
            assert not isinstance(part, Scalar | Array)
            inner = _build(part, version, path[1:], count, distinct)
            values[field.name] = [inner] if isinstance(field.type, Array) else inner
        else:
            assert not isinstance(part, Array)
            values[field.name] = _elements(field.name, part, version, count, distinct)
    return cls(**values)


def _other_value(field: Field, version: int) -> object:
    """Returns the value of a field that is not on the path: a default, with empty arrays."""
    if isinstance(field.type, Array):
        # Null often means everything, which would hide the giant array.
        return []
    if isinstance(field.type, Scalar):
        return field.default if field.tag is not None else _scalar(field)
    if version in field.nullable:
        return None
    return field.default


def _scalar(field: Field) -> object:
    assert isinstance(field.type, Scalar)
    if field.type is Scalar.STRING:
        return _TEXTS.get(field.name, "x")
    if field.type is Scalar.BOOL:
        return field.name in _FLAGS
    if field.type in (Scalar.BYTES, Scalar.RECORDS):
        return b""
    return _NUMBERS.get(field.name, field.default)


def _elements(
    name: str, element: "Scalar | type[Struct]", version: int, count: int, distinct: bool
) -> list[object]:
    if isinstance(element, Scalar):
        return [_numbered(element, index if distinct else 0) for index in range(count)]
    fields = _fields(element, version)
    fixed: dict[str, Any] = {}
    for field in fields:
        if isinstance(field.type, Array):
            fixed[field.name] = _inner_array(field.type, version)
        else:
            fixed[field.name] = _other_value(field, version)
    keys = [field for field in fields if isinstance(field.type, Scalar) and field.tag is None]
    # With a topic's name comes its id; the other first fields identify their element.
    identities = [
        field for field in keys if field.type in (Scalar.STRING, Scalar.UUID, Scalar.INT32)
    ][:2]
    result: list[object] = []
    for index in range(count):
        values = dict(fixed)
        for field in identities:
            assert isinstance(field.type, Scalar)
            values[field.name] = _numbered(field.type, index if distinct else 0)
        result.append(element(**values))
    return result


def _inner_array(array: Array, version: int) -> list[object]:
    element = array.element
    if isinstance(element, Scalar):
        return [_numbered(element, 0)]
    values: dict[str, Any] = {}
    for field in _fields(element, version):
        if isinstance(field.type, Array):
            values[field.name] = _inner_array(field.type, version)
        else:
            values[field.name] = _other_value(field, version)
    return [element(**values)]


def _numbered(scalar: Scalar, index: int) -> object:
    match scalar:
        case Scalar.STRING:
            return f"n{index}"
        case Scalar.UUID:
            return UUID(int=index + 1)
        case Scalar.BOOL:
            return bool(index & 1)
        case Scalar.BYTES | Scalar.RECORDS:
            return b""
        case Scalar.INT8:
            return index & 0x7F
        case Scalar.INT16 | Scalar.UINT16:
            return index & 0x7FFF
        case _:
            return index
