"""1,000 partitions beside one: the same batches in the same order, but spread."""

import struct
from pathlib import Path
from uuid import UUID

from bench.broker_client import FETCH_VERSION, Client, batch, fetch_frame, produce_frame
from bench.broker_measure import Cost, cost, in_turns, throughput
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
ROUNDS = 5
BATCHES = 4 * PARTITIONS
"""In each round, for each way to send them: 62 MB."""
IN_FLIGHT = 5
FETCH_BYTES = 8 * 1024 * 1024
LIMIT = 20


def partitions(folder: Path) -> list[Row]:
    with start_broker(folder / "partitions") as broker, Client(broker.address) as client:
        client.create_topic("one")
        client.create_topic("wide", PARTITIONS)
        return produce(broker, client) + consume(broker, client)


def produce(broker: Server, client: Client) -> list[Row]:
    """One batch in each request, to one partition and to 1,000 in turn; then many in each."""
    alone = [produce_frame("one", {0: BATCH})]
    spread = [produce_frame("wide", {index: BATCH}) for index in range(PARTITIONS)]
    together = [
        produce_frame("wide", dict.fromkeys(range(first, first + PER_REQUEST), BATCH))
        for first in range(0, PARTITIONS, PER_REQUEST)
    ]
    large = [produce_frame("one", {0: batch(RECORDS * PER_REQUEST, 1024)})]

    def load(requests: list[bytes], answers: list[int], batches_in_each: int) -> Cost:
        count = BATCHES // batches_in_each
        return cost(broker, lambda: client.pipelined(requests, answers, count, IN_FLIGHT))

    # The first batch of a partition makes its index.
    answers = [[client.produced(each) for each in way] for way in (alone, spread, together, large)]
    one, wide, many, single = in_turns(
        ROUNDS,
        lambda: load(alone, answers[0], 1),
        lambda: load(spread, answers[1], 1),
        lambda: load(together, answers[2], PER_REQUEST),
        lambda: load(large, answers[3], PER_REQUEST),
    )
    gigabytes = BATCHES * len(BATCH) / 1e9
    return [
        *throughput("produce to one partition, 16 KB batches", one, gigabytes),
        *throughput("produce to 1,000 partitions, one in each request", wide, gigabytes),
        at_most("  lost to 1,000 partitions", lost(one, wide), "%", LIMIT),
        *throughput(f"produce to 1,000, {PER_REQUEST} in each request", many, gigabytes),
        at_most("  lost to 1,000 partitions", lost(one, many), "%", LIMIT),
        *throughput("the same bytes as one batch to one partition", single, gigabytes),
    ]


def consume(broker: Server, client: Client) -> list[Row]:
    """What `produce` left, in one fetch session."""
    per_partition = RECORDS * (BATCHES // PARTITIONS * 2 * ROUNDS + 2)
    records = per_partition * PARTITIONS
    if client.end_offsets("wide", PARTITIONS) != records:
        raise RuntimeError("records are missing")
    topic_id = client.create_topic("narrow")
    request = produce_frame("narrow", {0: BATCH})
    answer = client.produced(request)
    client.pipelined([request], [answer], records // RECORDS - 1, IN_FLIGHT)
    narrow = SessionReader(client, topic_id, 1)
    wide = SessionReader(client, client.metadata("wide"), PARTITIONS)
    one, many = in_turns(
        ROUNDS,
        lambda: cost(broker, lambda: narrow.read(records)),
        lambda: cost(broker, lambda: wide.read(records)),
    )
    gigabytes = records // RECORDS * len(BATCH) / 1e9
    return [
        *throughput("consume one partition in a fetch session", one, gigabytes),
        *throughput("consume 1,000 partitions in a fetch session", many, gigabytes),
        at_most("  lost to 1,000 partitions", lost(one, many), "%", LIMIT),
    ]


def lost(one: Cost, many: Cost) -> float:
    return (1 - one.seconds / many.seconds) * 100


class SessionReader:
    """Reads a topic from start to end in one session, as consumers do: it sends only changes."""

    def __init__(self, client: Client, topic_id: UUID, partitions: int) -> None:
        self._client = client
        self._topic_id = topic_id
        self._partitions = partitions
        self._buffer = bytearray(2 * FETCH_BYTES)

    def read(self, records: int) -> None:
        """Until that many have come, all of them in batches like BATCH."""
        session = (0, 0)
        offsets = dict.fromkeys(range(self._partitions), 0)
        changed = offsets
        while records > 0:
            request = fetch_frame(
                self._topic_id,
                changed,
                max_bytes=FETCH_BYTES,
                partition_bytes=FETCH_BYTES,
                session=session,
            )
            self._client.sock.sendall(request)
            answer = decode_response(FetchResponse, FETCH_VERSION, self._answer())[1]
            came = {
                each.partition_index: len(each.records) // len(BATCH) * RECORDS
                for topic in answer.responses
                for each in topic.partitions
                if isinstance(each.records, memoryview) and each.records
            }
            if answer.error_code or not came:
                raise RuntimeError(f"error {answer.error_code}, or no records")
            for index, count in came.items():
                offsets[index] += count
                records -= count
            changed = {index: offsets[index] for index in came}
            session = (answer.session_id, session[1] + 1)

    def _answer(self) -> memoryview:
        size: int = struct.unpack(">i", self._client.exactly(4))[0]
        view = memoryview(self._buffer)[:size]
        left = view
        while left:
            left = left[self._client.sock.recv_into(left) :]
        return view
