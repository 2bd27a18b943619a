"""Memory for decompressed data, of which only the part that is used takes space."""

import mmap
import sys

_MAPPED_SIZE = 32 * 1024 * 1024
"""Smaller memory is reused by the allocator, which is faster than new pages."""


def new_output(size: int) -> memoryview:
    """Returns `size` zero bytes.

    A bytearray of 128 MiB is cleared before it is used, and other threads wait for that. The
    operating system clears the pages of a mapping one by one, when they are first written.
    """
    if size < _MAPPED_SIZE or sys.platform == "win32":
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
