# C types for _fetched.py. Cython reads this file when it compiles that one; nothing else does.

cimport cython
from libc.stdint cimport int64_t

from penstock.records._inline cimport (
    source_t, int64s_t, int32_at, int64_at, int64s_of, source_of, view_of,
)

cdef Py_ssize_t _HEADER_SIZE, _MIN_BATCH_LENGTH, _LOG_OVERHEAD
cdef int _MAGIC, _TRANSACTIONAL_OR_CONTROL
cdef int64_t _MAX_OFFSET

@cython.locals(
    p=source_t, end=Py_ssize_t, count=Py_ssize_t, position=Py_ssize_t, length=int64_t, q=int64s_t,
    last_offset=int64_t, max_timestamp=int64_t, max_timestamp_offset=int64_t, index=Py_ssize_t,
    base_offset=int64_t, delta=int64_t, following=Py_ssize_t, expected_crc=int64_t,
    timestamp=int64_t,
)
cpdef object scan_plain_batches(object buffer, int64_t leader_epoch)
