"""1,000 partitions compared with one: the same batches in the same order, but distributed."""

from itertools import count
from pathlib import Path
from uuid import UUID

from bench.broker_client import FETCH_VERSION, Client, batch, fetch_frame, produce_frame
from bench.broker_measure import Cost, cost, least, rounds_of, throughput, typical_ratio
from bench.broker_process import Server, start_broker
from bench.report import Row, at_most
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.fetch import FetchResponse

PARTITIONS = 1000
RECORDS = 15
BATCH = batch(RECORDS, 1024)
"""16 KB, a Java producer's `batch.size`."""
PER_REQUEST = 40
"""Batches of a request that goes to many partitions: 0.6 MB of the 1 MB that a producer fills."""
ROUNDS = 12
BATCHES = 2 * PARTITIONS
"""In each round, for each kind of request: 31 MB."""
IN_FLIGHT = 5
FETCH_BYTES = 8 * 1024 * 1024
SHARE_BYTES = 1024 * 1024
"""Of one of the 1,000 partitions, `max.partition.fetch.bytes`: they have 0.8 MB, so ten of them
fill a response."""
SMALL_SHARE_BYTES = 256 * 1024
"""Then it takes 32."""
CONSUMED = 10_000 * RECORDS
LIMIT = 20
_SOME_SESSION = 0x7A7B7C7D
"""A placeholder for the id that the broker will choose."""


def partitions(directory: Path) -> list[Row]:
    with start_broker(directory / "partitions") as broker, Client(broker.address) as client:
        client.create_topic("one")
        client.create_topic("wide", PARTITIONS)
        return produce(broker, client) + consume(broker, client)


def produce(broker: Server, client: Client) -> list[Row]:
    """One batch in each request, to one partition and to 1,000 in turn; then many in each."""
    # As many buffers as for 1,000 partitions: one would stay in the processor's caches.
    alone = [produce_frame("one", {0: BATCH}) for _ in range(PARTITIONS)]
    spread = [produce_frame("wide", {index: BATCH}) for index in range(PARTITIONS)]
    together = [
        produce_frame("wide", dict.fromkeys(range(first, first + PER_REQUEST), BATCH))
        for first in range(0, PARTITIONS, PER_REQUEST)
    ]
    large = [produce_frame("one", {0: batch(RECORDS * PER_REQUEST, 1024)})]

    def load(requests: list[bytes], responses: list[int], batches_in_each: int) -> Cost:
        count = BATCHES // batches_in_each
        return cost(broker, lambda: client.pipelined(requests, responses, count, IN_FLIGHT))

    of_spread = [client.produced(frame) for frame in spread]
    # The second batch of a partition is the first that its indexes take note of.
    first = cost(broker, lambda: client.pipelined(spread, of_spread, PARTITIONS, IN_FLIGHT))
    of_alone, of_together, of_large = (
        [client.produced(item) for item in frames] for frames in (alone, together, large)
    )
    rounds = rounds_of(
        ROUNDS,
        lambda: load(alone, of_alone, 1),
        lambda: load(spread, of_spread, 1),
        lambda: load(together, of_together, PER_REQUEST),
        lambda: load(large, of_large, PER_REQUEST),
    )
    one, wide, many, single = map(least, rounds)
    gigabytes = BATCHES * len(BATCH) / 1e9
    return [
        *throughput("produce to one partition, 16 KB batches", one, gigabytes),
        *throughput("produce to 1,000 partitions, one in each request", wide, gigabytes),
        lost(typical_ratio(rounds[0], rounds[1])),
        *throughput("  the first time, with new indexes", first, PARTITIONS * len(BATCH) / 1e9),
        *throughput(f"produce to 1,000, {PER_REQUEST} in each request", many, gigabytes),
        lost(typical_ratio(rounds[0], rounds[2])),
        *throughput("the same bytes as one batch to one partition", single, gigabytes),
    ]


def consume(broker: Server, client: Client) -> list[Row]:
    """Reads 160 MB of the records of `produce` in one fetch session."""
    per_partition = RECORDS * (BATCHES // PARTITIONS * 2 * ROUNDS + 3)
    if client.end_offsets("wide", PARTITIONS) != per_partition * PARTITIONS:
        raise RuntimeError("records are missing")
    topic_id = client.create_topic("narrow")
    client.create_topic("others")
    # Between two batches of a partition come those of others, as in `wide`: otherwise its pages
    # would lie one after the other in memory, and the reader would copy them faster.
    requests = [produce_frame("narrow", {0: BATCH}), *[produce_frame("others", {0: BATCH})] * 3]
    responses = [client.produced(request) for request in requests]
    client.pipelined(requests, responses, CONSUMED // RECORDS * len(requests), IN_FLIGHT)
    narrow = SessionReader(client, topic_id, 1, FETCH_BYTES)
    topic_id = client.metadata("wide")
    wide = SessionReader(client, topic_id, PARTITIONS, SHARE_BYTES)
    thin = SessionReader(client, topic_id, PARTITIONS, SMALL_SHARE_BYTES)
    rounds = rounds_of(
        ROUNDS, lambda: narrow.read(broker), lambda: wide.read(broker), lambda: thin.read(broker)
    )
    one, many, small = map(least, rounds)
    of_one, of_many = narrow.bytes / 1e9, wide.bytes / 1e9
    return [
        *throughput("consume one partition in a fetch session", one, of_one),
        *throughput("consume 1,000 partitions in a fetch session", many, of_many),
        lost(typical_ratio(rounds[0], rounds[1]) * of_many / of_one),
        *throughput("  256 KB of each at a time", small, thin.bytes / 1e9),
    ]


def lost(speed: float) -> Row:
    """`speed` is that with 1,000 partitions, as a share of that with one."""
    return at_most("  loss with 1,000 partitions", (1 - speed) * 100, "%", LIMIT)


class SessionReader:
    """Reads a topic from start to end in one fetch session, as consumers do: it sends only changes.

    It reads once to find out the requests of a consumer. Then it repeats them without decoding the
    responses, so that the client has no overhead.
    """

    def __init__(
        self, client: Client, topic_id: UUID, partitions: int, partition_bytes: int
    ) -> None:
        self._client = client
        self._requests: list[bytes] = []
        offsets = dict.fromkeys(range(partitions), 0)
        changed = offsets
        session_id = 0
        for epoch in count():
            request = fetch_frame(
                topic_id,
                changed,
                max_bytes=FETCH_BYTES,
                partition_bytes=partition_bytes,
                session=(_SOME_SESSION if epoch else 0, epoch),
            )
            self._requests.append(request)
            came, session_id = self._ask(_of_session(request, session_id))
            for index, more in came.items():
                offsets[index] += more
            changed = {index: offsets[index] for index in came}
            if sum(offsets.values()) >= CONSUMED:
                break

    def read(self, broker: Server) -> Cost:
        """Yields all responses but the first, which opens the session."""
        _, session_id = self._ask(self._requests[0])
        requests = [_of_session(request, session_id) for request in self._requests[1:]]
        return cost(broker, lambda: self._read(requests))

    def _read(self, requests: list[bytes]) -> None:
        self.bytes = self._client.read_all(requests, 1)

    def _ask(self, request: bytes) -> tuple[dict[int, int], int]:
        """Returns the received records by partition, and the id of the session."""
        self._client.sock.sendall(request)
        response = decode_response(FetchResponse, FETCH_VERSION, self._client.read_response())[1]
        came = {
            partition.partition_index: len(partition.records) // len(BATCH) * RECORDS
            for topic in response.responses
            for partition in topic.partitions
            if isinstance(partition.records, memoryview) and partition.records
        }
        if response.error_code or not came:
            raise RuntimeError(f"error {response.error_code}, or no records")
        return came, response.session_id


def _of_session(request: bytes, session_id: int) -> bytes:
    return request.replace(_SOME_SESSION.to_bytes(4, "big"), session_id.to_bytes(4, "big"))
