"""Record batches in messages: sliced, never copied, or sent from their file."""

from dataclasses import dataclass

import pytest

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, encode, encode_parts
from penstock.protocol.fields import RecordsOrRange
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartitionData,
    FetchResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


@dataclass(frozen=True)
class FileRange:
    """A range of a file, as the broker passes it."""

    position: int
    size: int


def produce(*batches: bytes | memoryview | None) -> ProduceRequest:
    data = [PartitionProduceData(index, batch) for index, batch in enumerate(batches)]
    return ProduceRequest(topic_data=[TopicProduceData("t", partition_data=data)])


def fetched(*batches: RecordsOrRange | None) -> FetchResponse:
    data = [
        FetchPartitionData(index, records=batch, aborted_transactions=None)
        for index, batch in enumerate(batches)
    ]
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=data)])


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decoded_records_are_a_view_of_the_input(
    version: int, kind: type[bytes | bytearray | memoryview]
) -> None:
    source = bytearray(encode(produce(b"first batch"), version))
    buffer = kind(source)
    request, _ = decode(ProduceRequest, version, buffer)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.tobytes() == b"first batch"
    assert records.obj is (source if kind is memoryview else buffer)


@pytest.mark.parametrize("version", [4, 12])
def test_encoded_records_are_the_same_objects(version: int) -> None:
    view, plain, file_range = memoryview(b"view"), b"plain", FileRange(100, 6)
    parts = encode_parts(fetched(view, plain, file_range), version)
    assert len(parts) == 7
    assert parts[1] is view
    assert parts[3] is plain
    assert parts[5] is file_range


@pytest.mark.parametrize("version", [4, 11, 12, 16])
@pytest.mark.parametrize("size", [1, 126, 127, 20_000])
def test_a_file_range_replaces_its_bytes(version: int, size: int) -> None:
    """S6: the bytes around a file range are the same as around the data itself."""
    batch = bytes(range(256)) * 80
    parts = encode_parts(fetched(FileRange(5, size), None, b"end"), version)
    filled = [
        batch[part.position : part.position + part.size] if isinstance(part, FileRange) else part
        for part in parts
    ]
    expected = encode(fetched(batch[5 : 5 + size], None, b"end"), version)
    assert b"".join(part for part in filled if isinstance(part, bytes)) == expected


@pytest.mark.parametrize("empty", [b"", memoryview(b""), FileRange(3, 0), None])
def test_empty_data_adds_no_part(empty: RecordsOrRange | None) -> None:
    parts = encode_parts(fetched(empty), 12)
    assert [type(part) for part in parts] == [bytes]


def test_a_file_range_needs_parts() -> None:
    with pytest.raises(TypeError, match="encode_parts"):
        encode(fetched(FileRange(0, 10)), 12)


def test_a_view_of_larger_items_counts_in_bytes() -> None:
    numbers = memoryview(bytes(16)).cast("I")
    decoded, _ = decode(FetchResponse, 12, encode(fetched(numbers), 12))
    assert decoded.responses[0].partitions[0].records == bytes(16)


def test_records_of_another_kind_are_refused() -> None:
    wrong = fetched("text")  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=r"partitions\[0\]\.records is 'text', neither bytes"):
        encode(wrong, 12)


def test_records_beyond_the_end_are_refused() -> None:
    encoded = encode(produce(b"first batch"), 9)
    damaged = encoded.replace(b"\x0cfirst", b"\x7ffirst")
    with pytest.raises(ProtocolError, match="records claims 126 bytes, but 14 are left"):
        decode(ProduceRequest, 9, damaged)
