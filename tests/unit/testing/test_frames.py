"""A gate passes a stream of frames unchanged, up to the first refused one."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from penstock.testing.frames import FrameGate

HEAD = 8
bodies = st.lists(st.binary(max_size=40), max_size=8)
cuts = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def fed(gate: FrameGate, stream: bytes, sizes: list[int]) -> list[bytes]:
    """Returns what the gate passes of a stream that arrives in pieces of these sizes."""
    passed, position, turn = [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        passed.append(gate.feed(stream[position : position + size]))
        position += size
        turn += 1
    return passed


@given(bodies, cuts)
def test_everything_passes(frames: list[bytes], sizes: list[int]) -> None:
    heads: list[bytes] = []

    def passes(head: bytes) -> bool:
        heads.append(head)
        return True

    gate = FrameGate(HEAD, passes)
    stream = b"".join(map(framed, frames))
    assert b"".join(fed(gate, stream, sizes)) + gate.rest() == stream
    assert heads == [frame[:HEAD] for frame in frames]


@given(bodies, cuts, st.integers(0, 7))
def test_nothing_passes_after_a_refused_frame(
    frames: list[bytes], sizes: list[int], refused: int
) -> None:
    count = 0

    def passes(_: bytes) -> bool:
        nonlocal count
        count += 1
        return count <= refused

    gate = FrameGate(HEAD, passes)
    passed = b"".join(fed(gate, b"".join(map(framed, frames)), sizes))
    assert passed + gate.rest() == b"".join(map(framed, frames[:refused]))
    assert gate.is_shut == (len(frames) > refused)


@given(bodies, cuts, st.binary(max_size=40))
def test_other_protocols_pass(frames: list[bytes], sizes: list[int], junk: bytes) -> None:
    """Bytes from a negative length on pass, because the broker reports them."""
    stream = b"".join(map(framed, frames)) + b"\xff\xff\xff\xff" + junk
    assert b"".join(fed(FrameGate(HEAD, lambda _: True), stream, sizes)) == stream


def test_a_frame_passes_as_soon_as_its_head_has_arrived() -> None:
    gate = FrameGate(HEAD, lambda _: True)
    begun = framed(bytes(100))[:12]
    assert gate.feed(begun[:11]) == b""
    assert gate.feed(begun[11:]) == begun
    assert gate.feed(bytes(50)) == bytes(50)
