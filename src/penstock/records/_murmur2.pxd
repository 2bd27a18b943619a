# C types for _murmur2.py. Cython reads this file when it compiles that one; nothing else does.

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.records._inline cimport (
    source_t, int32s_t, bytes_or_none, int32s_of, source_of_bytes,
)

cdef int64_t _MAX_INT32
cdef uint64_t _MASK_32

@cython.locals(h=uint32_t, k=uint32_t, at=Py_ssize_t, remaining=Py_ssize_t)
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
