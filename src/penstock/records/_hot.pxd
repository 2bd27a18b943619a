# C types for _hot.py. Cython reads this file when it compiles that one; nothing else does.

cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsEncodedString, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)

ctypedef const unsigned char* source_t
ctypedef unsigned char* target_t
ctypedef int32_t* int32s_t
ctypedef int64_t* int64s_t

# Constants of _hot.py that loops use.
cdef Py_ssize_t _HEADER_SIZE
cdef object _NO_INT32S, _NO_INT64S
cdef int64_t _NO_TIMESTAMP, _MAX_INT32, _MAX_INT64
cdef uint64_t _MASK_32, _MASK_64
cdef Py_ssize_t _BAD_LENGTH, _TOO_LONG, _BAD_FIELD, _BAD_HEADERS, _NOT_FILLED


# The counterparts of what _hot.py defines for plain Python.

cdef inline object view_of(object buffer, Py_ssize_t start, Py_ssize_t end):
    cdef object view = PyMemoryView_FromObject(buffer)
    cdef Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.itemsize != 1 or not PyBuffer_IsContiguous(raw, b"C"):
        raise ValueError("the buffer must be one run of bytes")
    if not 0 <= start <= end <= raw.len:
        raise IndexError(f"records from {start} to {end} in a buffer of {raw.len} bytes")
    return view

cdef inline source_t source_of(object view) noexcept:
    return <source_t>PyMemoryView_GET_BUFFER(view).buf

cdef inline void* _writable(object view, Py_ssize_t itemsize) except? NULL:
    if not PyMemoryView_Check(view):
        raise TypeError("a memoryview is needed")
    cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.readonly or buffer.itemsize != itemsize or buffer.ndim != 1 \
            or buffer.strides[0] != itemsize:
        raise TypeError("a writable memoryview over one run of items is needed")
    return buffer.buf

cdef inline target_t target_of(object view) except? NULL:
    return <target_t>_writable(view, 1)

cdef inline int32s_t int32s_of(object view) except? NULL:
    return <int32s_t>_writable(view, 4)

cdef inline int64s_t int64s_of(object view) except? NULL:
    return <int64s_t>_writable(view, 8)

cdef inline target_t bytes_of(bytearray out) noexcept:
    return <target_t>PyByteArray_AS_STRING(out)

cdef inline bytes slice_of(source_t p, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char*>p + start, end - start)

cdef inline str text_of(source_t p, Py_ssize_t start, Py_ssize_t end):
    return PyUnicode_DecodeUTF8(<const char*>p + start, end - start, "replace")

cdef inline bytes utf8_of(object text):
    return PyUnicode_AsEncodedString(text, "utf-8", "replace")

cdef inline void copy_in(target_t q, Py_ssize_t at, bytes data) noexcept:
    memcpy(q + at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

cdef inline source_t source_of_bytes(bytes data) except NULL:
    if data is None:
        raise TypeError("bytes are needed, not NoneType")
    return <source_t>PyBytes_AS_STRING(data)

cdef inline bytes bytes_or_none(list column, Py_ssize_t index):
    cdef object data = column[index]
    if data is not None and type(data) is not bytes:
        raise TypeError(f"bytes are needed, not {type(data).__name__}")
    return <bytes>data

cdef inline int64_t whole(double value) noexcept:
    return <int64_t>value

cdef inline void move_in(
    target_t q, Py_ssize_t at, source_t p, Py_ssize_t start, Py_ssize_t size
) noexcept:
    memcpy(q + at, p + start, size)

cdef inline int resize(bytearray out, Py_ssize_t size) except -1:
    return PyByteArray_Resize(out, size)

cdef inline bytearray grown(bytearray out, Py_ssize_t used, Py_ssize_t size):
    cdef bytearray made = PyByteArray_FromStringAndSize(NULL, size)
    memcpy(PyByteArray_AS_STRING(made), PyByteArray_AS_STRING(out), used)
    return made

cdef inline tuple fields_of(object record):
    if not PyTuple_Check(record) or PyTuple_GET_SIZE(record) != 5:
        raise TypeError("a Record is needed")
    return <tuple>record

cdef inline int64_t to_int64(object value) except? -1:
    return value

cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept:
    return <int64_t>(<uint64_t>a + <uint64_t>b)

cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept:
    return <int64_t>(<uint64_t>a - <uint64_t>b)

cdef inline uint64_t zigzag(int64_t value) noexcept:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)

cdef inline object named(object kind, tuple fields):
    # What tuple.__new__ does for a subclass, without a call through Python.
    cdef Py_ssize_t size = PyTuple_GET_SIZE(fields)
    cdef object made = PyType_GenericAlloc(<PyTypeObject*>kind, size)
    cdef Py_ssize_t index
    cdef object item
    for index in range(size):
        item = fields[index]
        Py_INCREF(item)
        PyTuple_SET_ITEM(made, index, item)
    return made

cdef inline int64_t int16_at(source_t p, Py_ssize_t at) noexcept:
    return <int16_t>(p[at] << 8 | p[at + 1])

cdef inline int64_t int32_at(source_t p, Py_ssize_t at) noexcept:
    return <int32_t>(
        <uint32_t>p[at] << 24 | <uint32_t>p[at + 1] << 16 | <uint32_t>p[at + 2] << 8 | p[at + 3]
    )

cdef inline int64_t int64_at(source_t p, Py_ssize_t at) noexcept:
    return <int64_t>(
        <uint64_t><uint32_t>int32_at(p, at) << 32 | <uint64_t><uint32_t>int32_at(p, at + 4)
    )

cdef inline void put_int32(target_t q, Py_ssize_t at, int64_t value) noexcept:
    q[at] = <unsigned char>(value >> 24)
    q[at + 1] = <unsigned char>(value >> 16)
    q[at + 2] = <unsigned char>(value >> 8)
    q[at + 3] = <unsigned char>value

cdef inline void put_int64(target_t q, Py_ssize_t at, int64_t value) noexcept:
    put_int32(q, at, value >> 32)
    put_int32(q, at + 4, value)


# The types of the functions that _hot.py defines.

@cython.locals(value=uint64_t)
cdef (int64_t, Py_ssize_t) _varint(source_t p, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(value=uint64_t)
cdef (int64_t, Py_ssize_t) _varlong(source_t p, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(value=uint64_t, byte=uint64_t, shift=int)
cdef (int64_t, Py_ssize_t) _longer_varint(
    source_t p, Py_ssize_t pos, Py_ssize_t end, int most, uint64_t mask
) noexcept

@cython.locals(_=int64_t, size=int64_t)
cdef Py_ssize_t _skip_headers(
    source_t p, Py_ssize_t pos, Py_ssize_t end, int64_t count
) noexcept

ctypedef (
    Py_ssize_t, int64_t, int64_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t
) parts_t

@cython.locals(
    size=int64_t, after=Py_ssize_t, timestamp=int64_t, offset=int64_t, key_at=Py_ssize_t,
    key_size=int64_t, value_at=Py_ssize_t, value_size=int64_t, headers_at=Py_ssize_t,
    count=int64_t,
)
cdef parts_t _read(source_t p, Py_ssize_t pos, Py_ssize_t end) noexcept

@cython.locals(headers=list, size=int64_t, _=int64_t)
cdef tuple _decode_headers(source_t p, Py_ssize_t pos, Py_ssize_t end, int64_t count)

@cython.locals(
    p=source_t, pos=Py_ssize_t, records=list, timestamp=int64_t, index=int64_t, after=Py_ssize_t,
    ts=int64_t, delta=int64_t, key_at=Py_ssize_t, key_n=int64_t, value_at=Py_ssize_t,
    value_n=int64_t, head_at=Py_ssize_t, head_n=int64_t,
)
cpdef list decode_records(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t base_timestamp, int64_t append_time, bint has_append_time
)

@cython.locals(
    p=source_t, pos=Py_ssize_t, records=list, timestamp=int64_t, index=int64_t, after=Py_ssize_t,
    ts=int64_t, delta=int64_t, key_at=Py_ssize_t, key_n=int64_t, value_at=Py_ssize_t,
    value_n=int64_t, head_at=Py_ssize_t, head_n=int64_t, offset=int64_t,
)
cpdef list decode_consumed(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t base_timestamp, int64_t append_time, bint has_append_time, int64_t from_offset,
    object kind, object topic, object partition, object timestamp_type, object leader_epoch
)

@cython.locals(
    pos=Py_ssize_t, sequential=bint, null_keys=int64_t, earliest=int64_t,
    latest=int64_t, timestamp=int64_t, index=int64_t, after=Py_ssize_t, ts=int64_t, delta=int64_t,
    _ka=Py_ssize_t, key_n=int64_t, _va=Py_ssize_t, _vn=int64_t, _ha=Py_ssize_t, _hn=int64_t,
)
cdef (bint, int64_t, int64_t, int64_t) _scan(
    source_t p, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_timestamp
) except *

@cython.locals(
    p=source_t, sequential=bint, null_keys=int64_t, earliest=int64_t, latest=int64_t,
)
cpdef tuple scan_records(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_timestamp
)

@cython.locals(
    p=source_t, q=target_t, size=Py_ssize_t, attributes=int64_t, producer_id=int64_t,
    producer_epoch=int64_t, base_sequence=int64_t, count=int64_t, base_timestamp=int64_t,
    max_timestamp=int64_t, crc=uint64_t, sequential=bint, null_keys=int64_t, found_earliest=int64_t,
    found_latest=int64_t,
)
cpdef object assign_in_place(
    object buffer, int64_t next_offset, int64_t leader_epoch, int64_t max_size, int64_t earliest,
    int64_t latest, bint needs_keys
)

@cython.locals(
    p=source_t, t=int64s_t, pos=Py_ssize_t, rows=int64_t, key_bytes=int64_t, null_keys=int64_t,
    value_bytes=int64_t, null_values=int64_t, headers=int64_t, name_bytes=int64_t,
    head_bytes=int64_t, null_heads=int64_t, index=int64_t, after=Py_ssize_t, _ts=int64_t,
    delta=int64_t, _ka=Py_ssize_t, key_n=int64_t, _va=Py_ssize_t, value_n=int64_t,
    head_at=Py_ssize_t, head_n=int64_t, offset=int64_t, at=Py_ssize_t, size=int64_t, _=int64_t,
)
cpdef object measure_columns(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t from_offset, int64_t to_offset, object totals
)

@cython.locals(
    p=source_t, at=int64s_t, offsets=int64s_t, timestamps=int64s_t, key_ends=int32s_t,
    keys=target_t, key_bits=target_t, value_ends=int32s_t, values=target_t, value_bits=target_t,
    head_ends=int32s_t, name_ends=int32s_t, names=target_t, head_value_ends=int32s_t,
    head_values=target_t, head_bits=target_t, room=int64_t, key_room=int64_t, value_room=int64_t,
    head_room=int64_t, name_room=int64_t, head_value_room=int64_t, has_key_bits=bint,
    has_value_bits=bint, has_head_bits=bint, row=int64_t, key_pos=int64_t, value_pos=int64_t,
    head_row=int64_t, name_pos=int64_t, head_pos=int64_t, timestamp=int64_t, pos=Py_ssize_t,
    index=int64_t, after=Py_ssize_t, ts=int64_t, delta=int64_t, key_at=Py_ssize_t, key_n=int64_t,
    value_at=Py_ssize_t, value_n=int64_t, head_at=Py_ssize_t, head_n=int64_t, offset=int64_t,
    size=int64_t, _=int64_t,
)
cpdef object fill_columns(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t base_timestamp, int64_t append_time, bint has_append_time, int64_t from_offset,
    int64_t to_offset, tuple columns, object cursor
)

@cython.locals(size=int)
cdef int _varint_size(uint64_t value) noexcept

cdef Py_ssize_t _write_varint(target_t q, Py_ssize_t pos, uint64_t value) noexcept

@cython.locals(
    out=bytearray, q=target_t, pos=Py_ssize_t, encoded=bytes, value=bytes, value_size=Py_ssize_t,
)
cdef bytes _encode_headers(object headers)

@cython.locals(body=int64_t)
cdef int64_t _body_size(
    uint64_t timestamp_code, uint64_t offset_code, int64_t key_size, int64_t value_size,
    int64_t headers_size
) noexcept

cdef Py_ssize_t _write_record(
    target_t q, Py_ssize_t pos, int64_t body, uint64_t timestamp_code, uint64_t offset_code,
    bytes key, int64_t key_size, bytes value, int64_t value_size, bytes encoded_headers
) noexcept

@cython.locals(
    encoded_headers=bytes, key_size=int64_t, value_size=int64_t, timestamp_code=uint64_t,
    offset_code=uint64_t, body=int64_t, room=Py_ssize_t,
)
cpdef Py_ssize_t append_record(
    bytearray out, Py_ssize_t pos, int64_t timestamp_delta, int64_t offset_delta, bytes key,
    bytes value, object headers
) except -1

@cython.locals(
    out=bytearray, pos=Py_ssize_t, previous=int64_t, latest=int64_t, offset=int64_t,
    timestamp=int64_t, fields=tuple,
)
cpdef tuple encode_records(
    object records, Py_ssize_t reserve, int64_t base_offset, int64_t base_timestamp
)

cdef class Filler:
    cdef readonly bytearray out
    cdef readonly int64_t limit
    cdef readonly double ratio
    cdef readonly Py_ssize_t end
    cdef readonly int64_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef public bint closed

    cpdef object drop(self)

    cpdef int64_t estimated_size(self) noexcept

    cpdef bint is_full(self) noexcept

    @cython.locals(
        pos=Py_ssize_t, count=int64_t, base=int64_t, key_size=int64_t, value_size=int64_t,
        timestamp_code=uint64_t, offset_code=uint64_t, body=int64_t, size=int64_t,
        estimated=int64_t, room=Py_ssize_t,
    )
    cdef int64_t _put(
        self, int64_t timestamp, bytes key, bytes value, bytes encoded_headers
    ) except -1

    cpdef int64_t append(self, object timestamp, bytes key, bytes value, object headers) except -1

    @cython.locals(number=int64_t, size=int64_t)
    cpdef object append_named(
        self, object kind, object owner, object timestamp, bytes key, bytes value, object headers
    )

    @cython.locals(
        total=Py_ssize_t, has_keys=bint, has_timestamps=bint, has_order=bint, times=int64s_t,
        numbers=int32s_t, encoded_headers=bytes, each=int64_t, key=bytes,
        value=bytes, position=Py_ssize_t, index=Py_ssize_t,
    )
    cpdef Py_ssize_t fill(
        self, list values, list keys, object timestamps, object timestamp, object headers,
        object order, Py_ssize_t start, Py_ssize_t stop
    ) except -1

@cython.locals(key_size=int64_t, value_size=int64_t, headers_size=int64_t)
cpdef int64_t size_upper_bound(bytes key, bytes value, object headers) except -1

@cython.locals(
    total=Py_ssize_t, has_keys=bint, measured=int32s_t, largest=int64_t, index=Py_ssize_t,
    key=bytes, value=bytes, key_size=int64_t, value_size=int64_t, size=int64_t,
)
cpdef int64_t measure_records(list values, list keys, object sizes) except -1

@cython.locals(h=uint32_t, k=uint32_t, at=Py_ssize_t, left=Py_ssize_t)
cdef uint32_t _murmur2(source_t p, Py_ssize_t size) noexcept

@cython.locals(h=int64_t)
cpdef object murmur2(bytes data)

cpdef int64_t partition_of_key(bytes key, int64_t count) except -1

@cython.locals(
    numbers=int32s_t, tops=int32s_t, groups=int32s_t, index=Py_ssize_t, key=bytes, group=int64_t,
    at=int64_t, size=int64_t,
)
cpdef object partition_keys(
    list keys, Py_ssize_t start, Py_ssize_t stop, int64_t count, object order, object ends
)
