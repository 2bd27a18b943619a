"""The kinds of byte buffer that cross layers. A memoryview among them has format "B"."""

Buffer = bytes | bytearray | memoryview
"""What may be read or written to disk and wire."""

WritableBuffer = bytearray | memoryview
"""What may be changed in place, such as a batch that gets its offsets."""
