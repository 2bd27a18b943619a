"""A client with little overhead: requests are encoded before the measurement starts.

It does not decode responses during the measurement. The first response is checked before it, the
end offsets of the logs afterwards.
"""

import socket
import struct
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Self, TypeVar, cast
from uuid import UUID

from penstock.protocol.api import api
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.record import Record

TIMEOUT_S = 60.0
PRODUCE_VERSION = 12
FETCH_VERSION = 17
_LATEST = -1
_BUFFER = 1024 * 1024
M = TypeVar("M", bound=Message)


def frame(message: Message, version: int, correlation_id: int = 1) -> bytes:
    """Returns a request with its length and header."""
    parts = encode_request(message, version, correlation_id, "bench")
    return b"".join(cast("list[bytes]", parts))


def batch(records: int, value_bytes: int) -> bytes:
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    timestamp = 1_700_000_000_000
    return bytes(
        build_batch([Record(n, timestamp, None, value[:value_bytes]) for n in range(records)])
    )


def produce_frame(topic: str, batches: dict[int, bytes], acks: int = 1) -> bytes:
    """Returns a Produce request with a batch for each of these partitions."""
    data = [PartitionProduceData(index, memoryview(batch)) for index, batch in batches.items()]
    request = ProduceRequest(None, acks, 30_000, [TopicProduceData(topic, partition_data=data)])
    return frame(request, PRODUCE_VERSION)


def fetch_frame(
    topic_id: UUID,
    offsets: dict[int, int],
    *,
    max_bytes: int,
    partition_bytes: int,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 500,
) -> bytes:
    """Returns a Fetch request from these offsets by partition. `session` is its id and epoch."""
    partitions = [
        FetchPartition(index, 0, offset, partition_max_bytes=partition_bytes)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
    )
    return frame(request, FETCH_VERSION)


class Client:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_BUFFER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.sock.close()

    # --- during the measurement

    def round_trips(self, request: bytes, response_bytes: int, count: int) -> None:
        """Sends requests one at a time."""
        send, receive, buffer = self.sock.send, self.sock.recv_into, self._buffer
        for _ in range(count):
            send(request)
            remaining = response_bytes
            while remaining:
                remaining -= _some(receive(buffer, remaining))

    def pipelined(
        self, requests: Sequence[bytes], response_bytes: Sequence[int], count: int, depth: int
    ) -> None:
        """Sends `count` requests, repeating these, with up to `depth` in flight."""
        sock, buffer = self.sock, self._buffer
        coming = cycle(response_bytes)
        going = cycle(requests)
        sent = min(depth, count)
        sock.sendall(b"".join(islice(going, sent)))
        completed = came = 0
        due = next(coming)
        while completed < count:
            came += _some(sock.recv_into(buffer))
            whole = 0
            while came >= due:
                came -= due
                due = next(coming)
                whole += 1
            completed += whole
            more = min(whole, count - sent)
            if more:
                sock.sendall(next(going) if more == 1 else b"".join(islice(going, more)))
                sent += more

    def read_all(self, requests: Sequence[bytes], depth: int) -> int:
        """Sends each request and discards its response; returns the bytes received."""
        going = iter(requests)
        for request in islice(going, depth):
            self.sock.sendall(request)
        total = 0
        for _ in requests:
            total += self.drop_response()
            following = next(going, None)
            if following is not None:
                self.sock.sendall(following)
        return total

    def drop_response(self) -> int:
        """Receives a response, discards it and returns its size."""
        receive, buffer = self.sock.recv_into, self._buffer
        size: int = struct.unpack(">i", self.exactly(4))[0]
        remaining = size
        while remaining:
            remaining -= _some(receive(buffer, min(remaining, _BUFFER)))
        return size

    # --- before and after

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self.sock.recv(size - len(data))
            _some(len(received))
            data += received
        return bytes(data)

    def read_response(self) -> bytes:
        """Returns the next response without its length."""
        return self.exactly(struct.unpack(">i", self.exactly(4))[0])

    def send_request(self, message: Message, version: int, cls: type[M]) -> M:
        key = type(message).INFO.key
        assert key is not None
        assert api(key).response is cls
        self.sock.sendall(frame(message, version))
        return decode_response(cls, version, self.read_response())[1]

    def produced(self, request: bytes) -> int:
        """Sends a Produce request that must succeed; returns the size of its response."""
        self.sock.sendall(request)
        payload = self.read_response()
        response = decode_response(ProduceResponse, PRODUCE_VERSION, payload)[1]
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    raise RuntimeError(f"error {partition.error_code}: {partition.error_message}")
        return 4 + len(payload)

    def api_versions(self) -> None:
        self.send_request(ApiVersionsRequest("bench", "1"), 3, ApiVersionsResponse)

    def metadata(self, topic: str, *, create: bool = False) -> UUID:
        """Requests metadata until a topic exists; returns its id."""
        while True:
            response = self.send_request(
                MetadataRequest([MetadataRequestTopic(name=topic)], create), 12, MetadataResponse
            )
            if not response.topics[0].error_code:
                return response.topics[0].topic_id
            if not create:
                raise RuntimeError(f"{topic}: error {response.topics[0].error_code}")

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> UUID:
        """Creates a topic; `settings` have _ instead of the dots in Kafka's names."""
        configs = [
            CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()
        ]
        topic = CreatableTopic(name, partitions, 1, configs=configs)
        response = self.send_request(CreateTopicsRequest([topic], 30_000), 7, CreateTopicsResponse)
        if response.topics[0].error_code:
            raise RuntimeError(f"{name}: {response.topics[0].error_message}")
        return self.metadata(name)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000)
        response = self.send_request(request, 6, DeleteTopicsResponse)
        if response.responses[0].error_code:
            raise RuntimeError(f"{name}: {response.responses[0].error_message}")

    def end_offsets(self, topic: str, partitions: int = 1) -> int:
        """Returns the sum of the end offsets of all partitions."""
        partition_requests = [ListOffsetsPartition(n, -1, _LATEST) for n in range(partitions)]
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, partition_requests)])
        response = self.send_request(request, 8, ListOffsetsResponse)
        return sum(partition.offset for partition in response.topics[0].partitions)


def _some(count: int) -> int:
    if not count:
        raise ConnectionResetError("the server closed the connection")
    return count
