# C types for _encode.py. Cython reads this file when it compiles that one; nothing else does.

cimport cython
from libc.stdint cimport int64_t, uint64_t

from penstock.records._inline cimport (
    target_t, int32s_t, int64s_t, bytes_of, bytes_or_none, copy_in, fields_of, grown, int32s_of,
    int64s_of, named, resize, slice_of, source_of, to_int64, utf8_of, whole, wrapping_subtract,
    zigzag,
)

cdef Py_ssize_t _HEADER_SIZE
cdef int64_t _NO_TIMESTAMP, _MAX_INT32
cdef object _NO_INT32S, _NO_INT64S

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

    @cython.locals(index=int64_t, size=int64_t)
    cpdef object append_named(
        self, object kind, object owner, object timestamp, bytes key, bytes value, object headers
    )

    @cython.locals(
        total=Py_ssize_t, has_keys=bint, has_timestamps=bint, has_order=bint, times=int64s_t,
        numbers=int32s_t, encoded_headers=bytes, record_timestamp=int64_t, key=bytes,
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
