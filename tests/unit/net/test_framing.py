"""Cutting the stream of a connection into frames."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ProtocolError
from penstock.net.framing import MAX_AHEAD, SMALL_FRAME, FrameMemory, FrameReader
from tests.support.broker.net_server import framed

LIMIT = 100 * 1024 * 1024


def fill(reader: FrameReader, data: bytes) -> int:
    """Copies as many bytes as fit into the buffer, like a socket, and returns their number."""
    buffer = reader.buffer()
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    return size


def feed(reader: FrameReader, data: bytes) -> list[memoryview]:
    frames: list[memoryview] = []
    while data:
        size = fill(reader, data)
        frames += reader.feed(size)
        data = data[size:]
    return frames


payloads = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda byte, size: bytes([byte]) * size,
            st.integers(0, 255),
            st.sampled_from([SMALL_FRAME - 1, SMALL_FRAME, SMALL_FRAME + 1, 70_000, 300_000]),
        ),
    ),
    max_size=8,
)


@given(payloads, st.lists(st.integers(1, 400_000) | st.integers(1, 9), max_size=20))
def test_frames_do_not_depend_on_the_chunks_of_the_stream(
    sent: list[bytes], sizes: list[int]
) -> None:
    """However the network splits the stream, the frames are those that were sent."""
    stream = b"".join(map(framed, sent))
    reader = FrameReader(FrameMemory(), LIMIT)
    received: list[memoryview] = []
    for size in sizes:
        received += feed(reader, stream[:size])
        stream = stream[size:]
    received += feed(reader, stream)
    assert [bytes(frame) for frame in received] == sent
    assert not reader.begun


@settings(max_examples=20)
@given(st.data())
def test_connections_that_share_memory_do_not_mix(data: st.DataObject) -> None:
    memory = FrameMemory()
    readers = [FrameReader(memory, LIMIT) for _ in range(3)]
    streams = [
        framed(bytes([65 + index]) * data.draw(st.integers(0, 40_000))) * 3
        for index in range(len(readers))
    ]
    expected = [stream[4 : len(stream) // 3] for stream in streams]
    received: list[list[memoryview]] = [[] for _ in readers]
    while any(streams):
        index = data.draw(st.sampled_from([i for i, stream in enumerate(streams) if stream]))
        size = data.draw(st.integers(1, 50_000) | st.just(50_000))
        received[index] += feed(readers[index], streams[index][:size])
        streams[index] = streams[index][size:]
    assert [[bytes(f) for f in frames] for frames in received] == [[e] * 3 for e in expected]


@pytest.mark.parametrize("size", [10, SMALL_FRAME + 1, 500_000, 3_000_000])
def test_a_frame_is_writable_and_not_changed_by_later_frames(size: int) -> None:
    """Offsets are written into batches in place, and a batch may wait for a disk."""
    reader = FrameReader(FrameMemory(), LIMIT)
    frames = []
    for byte in range(20):
        (frame,) = feed(reader, framed(bytes([byte]) * size))
        frame[0] = 255
        frames.append(frame)
    for byte, frame in enumerate(frames):
        assert bytes(frame) == bytes([255]) + bytes([byte]) * (size - 1)


def test_memory_of_large_frames_is_reused_after_the_last_reference() -> None:
    reader = FrameReader(FrameMemory(), LIMIT)
    (first,) = feed(reader, framed(bytes(500_000)))
    memory = first.obj
    (second,) = feed(reader, framed(bytes(500_000)))
    assert second.obj is not memory
    part_of_a_frame = first[10:20]
    del first
    (third,) = feed(reader, framed(bytes(500_000)))
    assert third.obj is not memory
    del part_of_a_frame
    (fourth,) = feed(reader, framed(bytes(400_000)))
    assert fourth.obj is memory


def test_memory_is_not_allocated_before_the_bytes_of_a_frame_arrive() -> None:
    """A hostile length of 100 MB: the allocation follows the received bytes."""
    reader = FrameReader(FrameMemory(), LIMIT)
    feed(reader, framed(b"")[:0] + (LIMIT).to_bytes(4, "big") + b"x")
    assert reader.allocated <= 64 * 1024
    received_bytes = 1
    while received_bytes < 20_000_000:
        received_bytes += 100_000
        feed(reader, bytes(100_000))
        assert reader.allocated <= max(
            64 * 1024, min(4 * received_bytes, received_bytes + MAX_AHEAD)
        )


@pytest.mark.parametrize("chunk", [7_777, 65_536, 1_000_000])
def test_a_giant_frame_is_received_in_small_steps(chunk: int) -> None:
    """Each step keeps other connections waiting: for its page faults, or for a copy if it grows."""
    reader = FrameReader(FrameMemory(), LIMIT)
    payload = bytes(range(250)) * 40_000
    stream = framed(payload)
    received = 0
    while received < len(stream):
        if reader.large:
            assert len(reader.buffer()) <= 64 * 1024
            assert not reader.reads_on
        size = fill(reader, stream[received : received + chunk])
        frames = reader.feed(size)
        received += size
    assert [bytes(frame) for frame in frames] == [payload]
    assert reader.allocated == 0


def test_a_client_receives_a_large_response_without_steps() -> None:
    """It trusts its brokers, and has no other connections to serve in between."""
    reader = FrameReader(FrameMemory(trusts=True), LIMIT)
    stream = framed(bytes(10_000_000))
    received = fill(reader, stream)
    reader.feed(received)
    assert len(reader.buffer()) == len(stream) - received
    assert reader.reads_on


@pytest.mark.parametrize("length", [-1, -(2**31), 1025, 2**31 - 1, 0x16030100])
def test_a_length_out_of_bounds_is_refused(length: int) -> None:
    reader = FrameReader(FrameMemory(), 1024)
    with pytest.raises(ProtocolError, match=r"socket\.request\.max\.bytes"):
        feed(reader, length.to_bytes(4, "big", signed=True))


def test_the_largest_length_is_accepted() -> None:
    reader = FrameReader(FrameMemory(), 1024)
    (frame,) = feed(reader, framed(bytes(1024)))
    assert len(frame) == 1024
