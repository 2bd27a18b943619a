"""Pure Python versions of the low-level functions that compiled modules take from C.

`_inline.pxd` has the same functions in C. There a buffer is a pointer to its bytes; here it is a
memoryview, which is indexed in the same way.
"""

from struct import Struct
from typing import TypeVar, cast

from penstock.core.buffers import Buffer
from penstock.records.record import Record

Named = TypeVar("Named", bound=tuple[object, ...])

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


def view_of(buffer: Buffer, start: int, end: int) -> memoryview:
    view = memoryview(buffer)
    if view.itemsize != 1 or not view.c_contiguous:
        raise ValueError("the buffer must be contiguous bytes")
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"records from {start} to {end} in a buffer of {len(view)} bytes")
    return view if view.format == "B" else view.cast("B")


def source_of(view: memoryview) -> memoryview:
    return view


def target_of(view: memoryview) -> memoryview:
    return view


def int32s_of(view: memoryview) -> memoryview:
    return view


def int64s_of(view: memoryview) -> memoryview:
    return view


def bytes_of(out: bytearray) -> bytearray:
    return out


def slice_of(p: memoryview, start: int, end: int) -> bytes:
    return bytes(p[start:end])


def text_of(p: memoryview, start: int, end: int) -> str:
    return str(p[start:end], "utf-8", "replace")


def utf8_of(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def copy_in(q: bytearray, at: int, data: bytes) -> None:
    if type(data) is not bytes:
        raise TypeError(f"expected bytes, not {type(data).__name__}")
    q[at : at + len(data)] = data


def source_of_bytes(data: bytes) -> memoryview:
    if type(data) is not bytes:
        raise TypeError(f"expected bytes, not {type(data).__name__}")
    return memoryview(data)


def bytes_or_none(column: list[bytes | None] | None, index: int) -> bytes | None:
    assert column is not None
    data = column[index]
    if data is not None and type(data) is not bytes:
        raise TypeError(f"expected bytes, not {type(data).__name__}")
    return data


def whole(value: float) -> int:
    return int(value)


def move_in(q: memoryview, at: int, p: memoryview, start: int, size: int) -> None:
    q[at : at + size] = p[start : start + size]


def resize(out: bytearray, size: int) -> None:
    if size > len(out):
        out.extend(bytes(size - len(out)))
    else:
        del out[size:]


def grown(out: bytearray, used: int, size: int) -> bytearray:
    """Returns a larger buffer that starts with the `used` bytes of `out`."""
    larger = bytearray(size)
    larger[:used] = out[:used]
    return larger


def named(kind: type[Named], fields: tuple[object, ...]) -> Named:
    """Returns a NamedTuple of `kind` with these fields."""
    return tuple.__new__(kind, fields)


def fields_of(record: object) -> Record:
    if not isinstance(record, tuple) or len(record) != 5:
        raise TypeError("expected a Record")
    return cast(Record, record)


def to_int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} does not fit into 64 bits")
    return value


def wrapping_add(a: int, b: int) -> int:
    return ((a + b + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63


def wrapping_subtract(a: int, b: int) -> int:
    return ((a - b + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def int16_at(p: memoryview, at: int) -> int:
    return int(_INT16.unpack_from(p, at)[0])


def int32_at(p: memoryview, at: int) -> int:
    return int(_INT32.unpack_from(p, at)[0])


def int64_at(p: memoryview, at: int) -> int:
    return int(_INT64.unpack_from(p, at)[0])


def put_int32(q: memoryview, at: int, value: int) -> None:
    _INT32.pack_into(q, at, value)


def put_int64(q: memoryview, at: int, value: int) -> None:
    _INT64.pack_into(q, at, value)
