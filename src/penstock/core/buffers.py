"""The byte buffer types that cross layers. A memoryview always has format "B"."""

Buffer = bytes | bytearray | memoryview
"""A buffer that can be read, or written to disk and network."""

WritableBuffer = bytearray | memoryview
"""A buffer that can be changed in place, such as a batch that is assigned offsets."""
