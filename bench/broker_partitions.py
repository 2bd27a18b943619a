"""1,000 partitions beside one: the same batches and the same bytes per request, spread out."""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from bench.broker_client import FETCH_VERSION, Client, batch, fetch_frame, produce_frame
from bench.broker_measure import Cost, cost, cpu_row, in_turns
from bench.broker_process import Server, start_broker
from bench.report import Row, at_most
from penstock.protocol.frames import decode_response
from penstock.protocol.messages.fetch import FetchResponse

PARTITIONS = 1000
RECORDS_PER_BATCH = 15
BATCH = batch(RECORDS_PER_BATCH, 1024)
SPREAD = 40
"""Batches of 16 KB in a request; a producer fills requests up to 1 MB (`max.request.size`)."""
REQUESTS = 200
"""Each writes 16 KB times SPREAD: 125 MB, eight batches for each of the partitions."""
IN_FLIGHT = 5
FETCH_BYTES = 8 * 1024 * 1024


class SessionReader:
    """Reads a topic to its end in one fetch session, as a consumer does: only changes are sent."""

    def __init__(self, client: Client, topic_id: UUID, partitions: int) -> None:
        self._client = client
        self._topic_id = topic_id
        self._partitions = partitions
        self._buffer = bytearray(2 * FETCH_BYTES)

    def read(self, records: int) -> None:
        """Until that many records have come."""
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
            if answer.error_code:
                raise RuntimeError(f"Fetch failed with {answer.error_code}")
            changed = {}
            for topic in answer.responses:
                for each in topic.partitions:
                    if each.error_code:
                        raise RuntimeError(f"partition: error {each.error_code}")
                    assert isinstance(each.records, memoryview)
                    count = len(each.records) // len(BATCH) * RECORDS_PER_BATCH
                    if count:
                        records -= count
                        offsets[each.partition_index] += count
                        changed[each.partition_index] = offsets[each.partition_index]
            session = (answer.session_id, session[1] + 1)

    def _answer(self) -> memoryview:
        size: int = struct.unpack(">i", self._client.exactly(4))[0]
        view = memoryview(self._buffer)[:size]
        left = view
        while left:
            left = left[self._client.sock.recv_into(left) :]
        return view


def partition_rows(folder: Path) -> list[Row]:
    one = produce_frame("one", {0: batch(RECORDS_PER_BATCH * SPREAD, 1024)})
    wide = [
        produce_frame("wide", {n % PARTITIONS: BATCH for n in range(first, first + SPREAD)})
        for first in range(0, PARTITIONS, SPREAD)
    ]
    settings = {"log.segment.delete.delay.ms": "0"}
    with start_broker(folder / "partitions", settings) as broker, Client(broker.address) as client:
        ...
    return []
