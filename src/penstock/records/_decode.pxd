# C types for _decode.py. Cython reads this file when it compiles that one; nothing else does.

cimport cython
from libc.stdint cimport int64_t, uint64_t

from penstock.records._inline cimport (
    source_t, target_t, int32s_t, int64s_t, int16_at, int32_at, int32s_of, int64_at, int64s_of,
    move_in, named, put_int32, put_int64, slice_of, source_of, target_of, text_of, view_of,
    wrapping_add,
)

cdef int64_t _NO_TIMESTAMP, _MAX_INT64, _LATEST_MS, _PAUSE_MASK
cdef uint64_t _MASK_32, _MASK_64
cdef Py_ssize_t _BAD_LENGTH, _TOO_LONG, _BAD_FIELD, _BAD_HEADERS, _NOT_FILLED

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
    max_timestamp=int64_t, crc=uint64_t, sequential=bint, null_keys=int64_t, first_timestamp=int64_t,
    last_timestamp=int64_t,
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
    has_value_bits=bint, has_head_bits=bint, has_heads=bint, row=int64_t, key_pos=int64_t,
    value_pos=int64_t, head_row=int64_t, name_pos=int64_t, head_pos=int64_t, timestamp=int64_t, pos=Py_ssize_t,
    index=int64_t, after=Py_ssize_t, ts=int64_t, delta=int64_t, key_at=Py_ssize_t, key_n=int64_t,
    value_at=Py_ssize_t, value_n=int64_t, head_at=Py_ssize_t, head_n=int64_t, offset=int64_t,
    size=int64_t, _=int64_t,
)
cpdef object fill_columns(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
    int64_t base_timestamp, int64_t append_time, bint has_append_time, int64_t from_offset,
    int64_t to_offset, tuple columns, object cursor
)

@cython.locals(t=int64s_t, index=Py_ssize_t, value=int64_t)
cpdef object to_microseconds(object timestamps)
