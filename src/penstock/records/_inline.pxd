# C versions of the functions in _pure.py, for the .pxd files of the compiled modules. Inline functions
# become a part of each module that cimports them.

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


cdef inline object view_of(object buffer, Py_ssize_t start, Py_ssize_t end):
    cdef object view = PyMemoryView_FromObject(buffer)
    cdef Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.itemsize != 1 or not PyBuffer_IsContiguous(raw, b"C"):
        raise ValueError("the buffer must be contiguous bytes")
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
        raise TypeError("expected bytes, not NoneType")
    return <source_t>PyBytes_AS_STRING(data)

cdef inline bytes bytes_or_none(list column, Py_ssize_t index):
    cdef object data = column[index]
    if data is not None and type(data) is not bytes:
        raise TypeError(f"expected bytes, not {type(data).__name__}")
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
        raise TypeError("expected a Record")
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
