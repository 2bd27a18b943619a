# C types for offset_map.py. Cython reads this file when it compiles that one; nothing else does.

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)

ctypedef const unsigned char* source_t
ctypedef unsigned char* target_t
ctypedef uint64_t* words_t


# The counterparts of what offset_map.py defines for plain Python.

cdef inline source_t _source(object view) noexcept:
    return <source_t>PyMemoryView_GET_BUFFER(view).buf

cdef inline target_t _target(bytearray out) noexcept:
    return <target_t>PyByteArray_AS_STRING(out)

cdef inline words_t _words(object memory) noexcept:
    return <words_t>PyMemoryView_GET_BUFFER(memory).buf

cdef inline source_t _seed_of(bytes seed) noexcept:
    return <source_t>PyBytes_AS_STRING(seed)

cdef inline void _move(
    target_t q, Py_ssize_t at, source_t p, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    memcpy(q + at, p + start, size)

cdef inline int64_t _wrapping_add(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)

cdef inline uint64_t _zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)

cdef inline int64_t _unzigzag(uint64_t value) noexcept nogil:
    return <int64_t>((value >> 1) ^ (~(value & 1) + 1))

cdef inline uint64_t _rotate(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))

cdef inline void _rounds(uint64_t* v, int count) noexcept nogil:
    cdef int n
    for n in range(count):
        v[0] += v[1]
        v[1] = _rotate(v[1], 13) ^ v[0]
        v[0] = _rotate(v[0], 32)
        v[2] += v[3]
        v[3] = _rotate(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = _rotate(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = _rotate(v[1], 17) ^ v[2]
        v[2] = _rotate(v[2], 32)

# SipHash-2-4 with 128 bits of output.
cdef inline (uint64_t, uint64_t) _hash(
    source_t seed, source_t p, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    cdef uint64_t k0, k1, word, first
    cdef uint64_t[4] v
    cdef Py_ssize_t at = start, end = start + size - (size & 7)
    memcpy(&k0, seed, 8)
    memcpy(&k1, seed + 8, 8)
    v[0] = k0 ^ 0x736f6d6570736575u
    v[1] = k1 ^ 0x646f72616e646f6du ^ 0xee
    v[2] = k0 ^ 0x6c7967656e657261u
    v[3] = k1 ^ 0x7465646279746573u
    while at < end:
        memcpy(&word, p + at, 8)
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
        at += 8
    word = 0
    memcpy(&word, p + end, size & 7)
    word |= <uint64_t>size << 56
    v[3] ^= word
    _rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xee
    _rounds(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    _rounds(v, 4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


# The types of the functions that offset_map.py defines.

@cython.locals(value=uint64_t, byte=uint64_t, shift=int)
cdef (int64_t, Py_ssize_t) _varlong(
    source_t p, Py_ssize_t pos, Py_ssize_t end
) noexcept nogil

cdef Py_ssize_t _write_varlong(target_t q, Py_ssize_t pos, uint64_t value) noexcept nogil

@cython.locals(size=int)
cdef int _varlong_size(uint64_t value) noexcept nogil

ctypedef (Py_ssize_t, int64_t, int64_t, Py_ssize_t, int64_t, int64_t) parts_t

@cython.locals(
    size=int64_t, after=Py_ssize_t, timestamp=int64_t, delta=int64_t, key_at=Py_ssize_t,
    key_size=int64_t, value_size=int64_t,
)
cdef parts_t _read(source_t p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

@cython.locals(
    room=Py_ssize_t, p=source_t, q=target_t, pos=Py_ssize_t, at=Py_ssize_t, index=int64_t,
    size=int64_t, body=Py_ssize_t, after=Py_ssize_t, delta=int64_t, rest=Py_ssize_t, code=uint64_t,
)
cpdef Py_ssize_t shift_timestamps(
    object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t shift, bytearray out
) except -1


cdef class OffsetMap:
    cdef readonly uint64_t slots
    cdef readonly int64_t room
    cdef readonly int64_t size
    cdef readonly int64_t latest_offset
    cdef bytes _seed_bytes
    cdef source_t _seed
    cdef object _memory
    cdef words_t _table
    cdef uint64_t _first
    cdef uint64_t _second
    cdef int64_t _kept
    cdef int64_t _tombstones
    cdef int64_t _unkeyed
    cdef int64_t _max_timestamp
    cdef Py_ssize_t _filled

    cpdef object advance(self, int64_t offset)

    cpdef int64_t get(self, bytes key) except? -2

    cpdef bint put(self, bytes key, int64_t offset) except *

    @cython.locals(p=source_t, done=int64_t)
    cpdef int64_t put_records(
        self, object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
        int64_t from_offset
    ) except -1

    @cython.locals(p=source_t, q=target_t, failed=int64_t)
    cpdef object select_records(
        self, object buffer, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_offset,
        int64_t base_timestamp, bint drop_tombstones, bytearray out
    )

    @cython.locals(first=uint64_t, second=uint64_t, table=words_t, slot=uint64_t, at=Py_ssize_t)
    cdef Py_ssize_t _find(self, source_t p, Py_ssize_t start, Py_ssize_t size) noexcept nogil

    cdef int64_t _get(self, source_t p, Py_ssize_t start, Py_ssize_t size) noexcept nogil

    @cython.locals(at=Py_ssize_t, table=words_t)
    cdef void _put(
        self, source_t p, Py_ssize_t start, Py_ssize_t size, int64_t offset
    ) noexcept nogil

    @cython.locals(
        index=int64_t, after=Py_ssize_t, _ts=int64_t, delta=int64_t, key_at=Py_ssize_t,
        key_n=int64_t, _vn=int64_t, offset=int64_t,
    )
    cdef int64_t _put_records(
        self, source_t p, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
        int64_t from_offset
    ) noexcept nogil

    @cython.locals(
        run=Py_ssize_t, filled=Py_ssize_t, index=int64_t, after=Py_ssize_t, ts=int64_t,
        delta=int64_t, key_at=Py_ssize_t, key_n=int64_t, value_n=int64_t, offset=int64_t,
        keep=bint, timestamp=int64_t,
    )
    cdef int64_t _select_records(
        self, source_t p, Py_ssize_t pos, Py_ssize_t end, int64_t count, int64_t base_offset,
        int64_t base_timestamp, bint drop_tombstones, target_t q
    ) noexcept nogil
