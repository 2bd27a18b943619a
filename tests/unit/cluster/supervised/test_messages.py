"""Messages of the supervised store: what is sent arrives, and what is not a message is refused."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.supervised.messages import (
    MAX_FRAME_BYTES,
    Commit,
    FrameBuffer,
    Hello,
    Records,
    decode_request,
    decode_server_message,
    encode_frame,
    from_wire,
    to_wire,
)
from penstock.controller.metadata import Change, Delete, Put
from penstock.core.errors import ProtocolError
from tests.support.cluster.metadata_changes import EPHEMERAL_RECORDS, PERSISTENT_RECORDS

RECORDS = (*PERSISTENT_RECORDS, *EPHEMERAL_RECORDS)


def frames_of(data: bytes) -> list[bytes]:
    return list(FrameBuffer().receive(data))


def test_every_kind_of_record_arrives_as_it_was_sent() -> None:
    (frame,) = frames_of(encode_frame(Records(7, list(RECORDS))))
    assert decode_server_message(frame) == Records(7, list(RECORDS))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_kind_of_change_arrives_as_it_was_sent(record: object) -> None:
    changes: list[Change] = [Put(known) for known in RECORDS if known == record]
    changes += [Delete(change.record.key) for change in changes if isinstance(change, Put)]
    (frame,) = frames_of(encode_frame(Commit(to_wire(changes), 3, fenced=True)))
    request = decode_request(frame)
    assert isinstance(request, Commit)
    assert from_wire(request.changes) == changes
    assert (request.based_on, request.fenced) == (3, True)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_are_cut_however_they_arrive(sizes: list[int]) -> None:
    messages = [Hello(1, "é" * size, size) for size in sizes]
    stream = b"".join(map(encode_frame, messages))
    buffer = FrameBuffer()
    frames: list[bytes] = []
    for size in sizes:
        frames += buffer.receive(stream[:size])
        stream = stream[size:]
    frames += buffer.receive(stream)
    assert [decode_request(frame) for frame in frames] == messages


def test_a_large_frame_is_refused_before_it_arrives() -> None:
    with pytest.raises(ProtocolError, match="larger than"):
        frames_of(struct.pack(">I", MAX_FRAME_BYTES + 1))


@given(st.binary(max_size=60))
def test_decoding_raises_nothing_but_protocol_errors(data: bytes) -> None:
    for decode in (decode_request, decode_server_message):
        with suppress(ProtocolError):
            decode(data)


def test_the_path_of_no_record_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no record has the path '/brokers'"):
        from_wire(["/brokers"])
