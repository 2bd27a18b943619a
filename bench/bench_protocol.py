"""The wire protocol: codecs of Produce, Fetch and Metadata, and their compilation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from bench.report import Row, at_most, best_seconds
from penstock.protocol.codec import decode, encode
from penstock.protocol.decoder import compile_decoder
from penstock.protocol.encoder import compile_encoder
from penstock.protocol.frames import decode_request_header, encode_request, encode_response
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = UUID("5f3a1c0e-7b0d-4c55-9d4f-0a1b2c3d4e5f")
BATCH = bytes(16 * 1024)


@dataclass(frozen=True)
class FileRange:
    size: int


def produce_request(version: int) -> ProduceRequest:
    topic = TopicProduceData(partition_data=[PartitionProduceData(3, BATCH)])
    if version > 12:
        topic.topic_id = TOPIC_ID
    else:
        topic.name = "payments"
    return ProduceRequest(None, -1, 30_000, [topic])


def produce_response(version: int) -> ProduceResponse:
    partition = PartitionProduceResponse(3, base_offset=123_456, log_start_offset=0)
    topic = TopicProduceResponse(partition_responses=[partition])
    if version > 12:
        topic.topic_id = TOPIC_ID
    else:
        topic.name = "payments"
    return ProduceResponse([topic])


def metadata_response(partitions: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(n, f"broker-{n}.example", 9092, "rack") for n in range(3)]
    of_topic = [
        MetadataResponsePartition(0, n, n % 3, 7, [0, 1, 2], [0, 1, 2], [])
        for n in range(partitions)
    ]
    topic = MetadataResponseTopic(name="payments", topic_id=TOPIC_ID, partitions=of_topic)
    return MetadataResponse(0, brokers, "cluster", 1, [topic])


def fetch_request(partitions: int) -> FetchRequest:
    partition_requests = [FetchPartition(n, 7, 1000, -1, -1, 1 << 20) for n in range(partitions)]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partition_requests)],
    )


def fetch_response(partitions: int) -> FetchResponse:
    data = [
        FetchPartitionData(
            n, 0, 2000, 2000, 0, aborted_transactions=None, records=FileRange(1 << 20)
        )
        for n in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)])


def microseconds(action: Callable[[], object], calls: int) -> float:
    """Returns the time of one call: the shortest of several bursts, to avoid noise."""

    def repeatedly() -> None:
        for _ in range(calls):
            action()

    return best_seconds(repeatedly, repeats=40) / calls * 1e6


def whole_request(frame: bytes) -> Callable[[], object]:
    def read() -> ProduceRequest:
        header, position = decode_request_header(frame)
        return decode(ProduceRequest, header.request_api_version, frame, position)[0]

    return read


def run() -> list[Row]:
    rows: list[Row] = []

    def row(name: str, action: Callable[[], object], limit: float | None, calls: int) -> None:
        action()  # the codec is compiled the first time
        figure = microseconds(action, calls)
        if limit is None:
            rows.append(Row(name, figure, "µs"))
        else:
            rows.append(at_most(name, figure, "µs", limit))

    for version in (9, 12, 13):
        data = encode(produce_request(version), version)
        response = produce_response(version)
        row(
            f"Produce request v{version}, 16 KB batch, decode",
            partial(decode, ProduceRequest, version, data),
            3,
            2000,
        )
        row(
            f"Produce response v{version}, encode",
            partial(encode, response, version),
            3,
            2000,
        )
    frame = b"".join(
        part for part in encode_request(produce_request(12), 12, 1, "c") if isinstance(part, bytes)
    )[4:]
    row("Produce request v12, header and body, decode", whole_request(frame), None, 2000)
    response = produce_response(12)
    row(
        "Produce response v12, framed, encode",
        partial(encode_response, response, 12, 1),
        None,
        2000,
    )
    for version in (12, 13):
        metadata = metadata_response(100)
        row(
            f"Metadata response v{version}, 100 partitions, encode",
            partial(encode, metadata, version),
            150,
            50,
        )
    encoded_request = encode(fetch_request(10), 17)
    row(
        "Fetch request v17, 10 partitions, decode",
        partial(decode, FetchRequest, 17, encoded_request),
        None,
        300,
    )
    result = fetch_response(10)
    row(
        "Fetch response v17, 10 file ranges, framed, encode",
        partial(encode_response, result, 17, 1),
        None,
        300,
    )
    row(
        "Fetch response v17, compiling its decoder",
        partial(compile_decoder, FetchResponse, 17),
        None,
        20,
    )
    row(
        "Fetch response v17, compiling its encoder",
        partial(compile_encoder, FetchResponse, 17),
        None,
        20,
    )
    return rows
