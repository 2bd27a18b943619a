"""The map from keys to their latest offsets, which a cleaning builds (S5).

The map is a table with 24 bytes per slot in one block of memory: 128 bits of a keyed hash of the
key, and the offset. With two keys of the same hash, one would lose its records; 128 bits and a
secret seed make that impossible in practice. Slots are found by linear probing.

This file is plain Python. If a C compiler is available at installation, Cython compiles the same
source with the types of `offset_map.pxd`; then the loops over the records of a batch run without
the interpreter's lock, so that a cleaning does not delay the event loop. The hash is SipHash-2-4
when compiled and BLAKE2b in Python: it is never stored.
"""

from contextlib import nullcontext
from hashlib import blake2b
from mmap import mmap
from secrets import token_bytes
from types import SimpleNamespace
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError

try:
    import cython
except ModuleNotFoundError:
    cython = SimpleNamespace(compiled=False, nogil=nullcontext())


if not cython.compiled:

    def _source(view: memoryview) -> memoryview:
        return view

    def _target(out: bytearray) -> memoryview:
        return memoryview(out)

    def _words(memory: memoryview) -> memoryview:
        return memory.cast("Q")

    def _seed_of(seed: bytes) -> bytes:
        return seed

    def _hash(seed: bytes, p: memoryview, start: int, size: int) -> tuple[int, int]:
        digest = blake2b(p[start : start + size], digest_size=16, key=seed).digest()
        return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")

    def _move(q: memoryview, at: int, p: memoryview, start: int, size: int) -> None:
        q[at : at + size] = p[start : start + size]

    def _wrapping_add(a: int, b: int) -> int:
        return ((a + b + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63

    def _zigzag(value: int) -> int:
        return (value << 1) ^ (value >> 63)

    def _unzigzag(value: int) -> int:
        value &= 0xFFFFFFFFFFFFFFFF
        return (value >> 1) ^ -(value & 1)


BYTES_PER_ENTRY = 24
NO_TIMESTAMP = -1

_SEED_SIZE = 16
_MOST_GROWTH = 14
"""The number of bytes by which a record can grow when the base timestamp changes: nine for the
timestamp delta, and its length may take five bytes instead of one."""


class Selection(NamedTuple):
    """The result of `OffsetMap.select_records` for a batch."""

    kept: int
    """How many records to keep."""
    tombstones: int
    """How many of them have no value."""
    unkeyed: int
    """How many records are removed because they have no key."""
    max_timestamp: int
    """The largest timestamp of those to keep; -1 if there is none."""
    size: int
    """The bytes in `out` of those to keep, if some are kept and some are not."""


# --- records as bytes


def _varlong(p: memoryview, pos: int, end: int) -> tuple[int, int]:
    """Returns a zigzag varint of up to 64 bits and the position after it, or -1."""
    value = 0
    shift = 0
    while pos < end and shift <= 63:
        byte = p[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return _unzigzag(value), pos
        shift += 7
    return 0, -1


def _write_varlong(q: memoryview, pos: int, value: int) -> int:
    """Writes `value`, which is already zigzag-encoded; returns the position after it."""
    while value >= 0x80:
        q[pos] = (value & 0x7F) | 0x80
        pos += 1
        value >>= 7
    q[pos] = value
    return pos + 1


def _varlong_size(value: int) -> int:
    size = 1
    while value >= 0x80:
        size += 1
        value >>= 7
    return size


def _read(p: memoryview, pos: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Returns the parts of the record at `pos` that a cleaning needs.

    They are the end of the record (-1 if it is invalid), its timestamp delta and offset delta, the
    start and size of its key, and the size of its value; a size below 0 means null.
    """
    size, pos = _varlong(p, pos, end)
    if pos < 0 or size < 0 or size > end - pos:
        return -1, 0, 0, 0, 0, 0
    after = pos + size
    timestamp, pos = _varlong(p, pos + 1, after)
    if pos < 0:
        return -1, 0, 0, 0, 0, 0
    delta, pos = _varlong(p, pos, after)
    if pos < 0:
        return -1, 0, 0, 0, 0, 0
    key_size, key_at = _varlong(p, pos, after)
    if key_at < 0 or key_size > after - key_at:
        return -1, 0, 0, 0, 0, 0
    pos = key_at
    if key_size > 0:
        pos += key_size
    value_size, pos = _varlong(p, pos, after)
    if pos < 0 or value_size > after - pos:
        return -1, 0, 0, 0, 0, 0
    return after, timestamp, delta, key_at, key_size, value_size


def _view(buffer: Buffer, start: int, end: int) -> memoryview:
    view = memoryview(buffer)
    if view.itemsize != 1 or not view.c_contiguous or not 0 <= start <= end <= len(view):
        raise ValueError(f"records from {start} to {end} in a buffer of {len(view)} bytes")
    return view


def _broken(index: int, base_offset: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"record {index} of the batch at offset {base_offset} is cut off, or is no record"
    )


def shift_timestamps(
    buffer: Buffer, start: int, end: int, count: int, shift: int, out: bytearray
) -> int:
    """Copies the records in `buffer[start:end]`, with `shift` added to their timestamp deltas.

    They are written to the beginning of `out`, which is enlarged if necessary; returns their size.
    """
    room = end - start + _MOST_GROWTH * count
    if len(out) < room:
        out.extend(bytes(room - len(out)))
    view = _view(buffer, start, end)
    p = _source(view)
    q = _target(out)
    pos = start
    at = 0
    for index in range(count):
        size, body = _varlong(p, pos, end)
        if body < 0 or size < 1 or size > end - body:
            raise _broken(index, 0)
        after = body + size
        delta, rest = _varlong(p, body + 1, after)
        if rest < 0:
            raise _broken(index, 0)
        code = _zigzag(_wrapping_add(delta, shift))
        at = _write_varlong(q, at, _zigzag(1 + _varlong_size(code) + after - rest))
        q[at] = p[body]
        at = _write_varlong(q, at + 1, code)
        _move(q, at, p, rest, after - rest)
        at += after - rest
        pos = after
    return at


class OffsetMap:
    """The latest offset of each key, in a limited amount of memory.

    It has space for `room` keys: `memory` bytes with `load_factor` of the slots in use. Offsets
    are added in increasing order; `latest_offset` is the end of the range that the map covers.
    """

    def __init__(self, memory: int, load_factor: float = 0.9, seed: bytes | None = None) -> None:
        self.slots = memory // BYTES_PER_ENTRY
        # One slot stays empty, so that every lookup ends.
        self.room = min(int(self.slots * load_factor), self.slots - 1)
        if self.room < 1:
            raise ValueError(
                f"{memory} bytes hold no key at a load factor of {load_factor}: raise "
                f"log.cleaner.dedupe.buffer.size, or lower log.cleaner.threads"
            )
        self.size = 0
        self.latest_offset = -1
        self._seed_bytes = token_bytes(_SEED_SIZE) if seed is None else seed
        if len(self._seed_bytes) != _SEED_SIZE:
            raise ValueError(f"a seed has {_SEED_SIZE} bytes, not {len(self._seed_bytes)}")
        self._seed = _seed_of(self._seed_bytes)
        # The system allocates pages when they are touched; a bytearray would be filled at once.
        self._memory = memoryview(mmap(-1, self.slots * BYTES_PER_ENTRY))
        self._table = _words(self._memory)

    @property
    def memory(self) -> int:
        """The size of the table in bytes."""
        return len(self._memory)

    def advance(self, offset: int) -> None:
        """Extends the range that the map covers up to `offset`."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """Returns the latest offset of a key; -1 if it is not in the map."""
        view = _view(key, 0, len(key))
        return self._get(_source(view), 0, len(key))

    def put(self, key: bytes, offset: int) -> bool:
        """Sets the offset of a key; returns False, without a change, if the map is full."""
        if self.size >= self.room:
            return False
        view = _view(key, 0, len(key))
        self._put(_source(view), 0, len(key), offset)
        return True

    def put_records(
        self, buffer: Buffer, start: int, end: int, count: int, base_offset: int, from_offset: int
    ) -> int:
        """Adds the keys of the `count` records in `buffer[start:end]` from `from_offset` on.

        Returns how many records were read: fewer than `count` if the map became full.
        """
        view = _view(buffer, start, end)
        p = _source(view)
        done = 0
        with cython.nogil:
            done = self._put_records(p, start, end, count, base_offset, from_offset)
        if done < 0:
            raise _broken(-1 - done, base_offset)
        return done

    def select_records(
        self,
        buffer: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        drop_tombstones: bool,
        out: bytearray,
    ) -> Selection:
        """Selects the records to keep from the `count` records in `buffer[start:end]`.

        It keeps records after `latest_offset`, and otherwise the latest record of each key, unless
        it is a tombstone and `drop_tombstones` is set. If only some are kept, their bytes are
        written to the beginning of `out`, which is enlarged if necessary.
        """
        if len(out) < end - start:
            out.extend(bytes(end - start - len(out)))
        view = _view(buffer, start, end)
        p = _source(view)
        q = _target(out)
        self._kept = self._tombstones = self._unkeyed = self._filled = 0
        self._max_timestamp = NO_TIMESTAMP
        failed = 0
        with cython.nogil:
            failed = self._select_records(
                p, start, end, count, base_offset, base_timestamp, drop_tombstones, q
            )
        if failed < 0:
            raise _broken(-1 - failed, base_offset)
        return Selection(
            self._kept, self._tombstones, self._unkeyed, self._max_timestamp, self._filled
        )

    # --- loops, which run without the interpreter's lock when compiled

    def _find(self, p: memoryview, start: int, size: int) -> int:
        """Returns the table index of a key's slot, or of the empty slot where it belongs."""
        first, second = _hash(self._seed, p, start, size)
        self._first = first
        self._second = second
        table = self._table
        slot = first % self.slots
        while True:
            at = 3 * slot
            if table[at + 2] == 0 or (table[at] == first and table[at + 1] == second):
                return at
            slot += 1
            if slot == self.slots:
                slot = 0

    def _get(self, p: memoryview, start: int, size: int) -> int:
        # The stored value is the offset + 1, so that 0 means an empty slot.
        return self._table[self._find(p, start, size) + 2] - 1

    def _put(self, p: memoryview, start: int, size: int, offset: int) -> None:
        at = self._find(p, start, size)
        table = self._table
        if table[at + 2] == 0:
            table[at] = self._first
            table[at + 1] = self._second
            self.size += 1
        table[at + 2] = offset + 1
        self.latest_offset = offset

    def _put_records(
        self, p: memoryview, pos: int, end: int, count: int, base_offset: int, from_offset: int
    ) -> int:
        for index in range(count):
            after, _ts, delta, key_at, key_n, _vn = _read(p, pos, end)
            if after < 0:
                return -1 - index
            offset = _wrapping_add(base_offset, delta)
            if key_n >= 0 and offset >= from_offset:
                if self.size >= self.room:
                    return index
                self._put(p, key_at, key_n, offset)
            pos = after
        return count

    def _select_records(
        self,
        p: memoryview,
        pos: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        drop_tombstones: bool,
        q: memoryview,
    ) -> int:
        run = pos
        filled = 0
        for index in range(count):
            after, ts, delta, key_at, key_n, value_n = _read(p, pos, end)
            if after < 0:
                return -1 - index
            offset = _wrapping_add(base_offset, delta)
            keep = True
            if offset <= self.latest_offset:
                if key_n < 0:
                    self._unkeyed += 1
                    keep = False
                elif (value_n < 0 and drop_tombstones) or offset < self._get(p, key_at, key_n):
                    keep = False
            if keep:
                self._kept += 1
                if value_n < 0:
                    self._tombstones += 1
                timestamp = _wrapping_add(base_timestamp, ts)
                if timestamp > self._max_timestamp:
                    self._max_timestamp = timestamp
            else:
                _move(q, filled, p, run, pos - run)
                filled += pos - run
                run = after
            pos = after
        if self._kept < count:
            _move(q, filled, p, run, pos - run)
            self._filled = filled + pos - run
        return 0
