"""`penstock perf`: how fast a cluster is (kafka-producer-perf-test.sh and its siblings)."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from penstock.cli import complete
from penstock.cli.app import new_group
from penstock.cli.options import argument, option
from penstock.cli.output import UsageError
from penstock.cli.records.measures import Latencies, Pace, latency_fields, rates
from penstock.cli.records.produce import Acks, Compression
from penstock.cli.session import Session, command, describe_error
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.producer.producer import Producer

app = new_group("Measure: producing, consuming, and the time from one to the other.")

_BULK = 2_000
_POLL_RECORDS = 20_000
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VARIETY = 1_000
"""The number of different random payloads: identical ones would compress too well."""

TOPIC = argument("TOPIC", autocompletion=complete.topics)
SIZE = option("--size", default=100, min=0, help="Bytes of each record's value.")
ACKS = option("--acks", help="The replicas that must have a record.")


def _count(default: int) -> Any:
    return option("--records", "-n", default=default, min=1, help="The number of records.")


@command(app, "produce")
def produce(
    session: Session,
    topic: str = TOPIC,
    records: int = _count(1_000_000),
    size: int = SIZE,
    throughput: float | None = option(min=0.001, help="Records per second at most."),
    payload_file: Path | None = option(
        "--payload-file",
        exists=True,
        dir_okay=False,
        help="A file with values, one per line, instead of --size.",
    ),
    bulk: int = option(
        default=_BULK,
        min=1,
        help="Records that are passed to the producer at once; their latency is that of the "
        "last. 1 sends and measures each.",
    ),
    acks: Acks | None = ACKS,
    compression: Compression | None = option(
        "--compression", "-z", help="The compression of batches."
    ),
    transactional_id: str | None = option(
        "--transactional-id", help="Send all records in one transaction."
    ),
    seed: int = option(default=0, help="The seed of the random values."),
) -> None:
    """Send records as fast as possible, or at --throughput, and time the acknowledgements."""
    values = _payloads(payload_file, size, seed)
    producer = session.producer(
        acks=acks and acks.value,
        compression_type=compression and compression.value,
        transactional_id=transactional_id,
    )
    with producer, session.out.progress("records", records) as advance:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        producer.partitions_for(topic)
        run = _Producing(producer, topic, values, advance)
        started = time.perf_counter()
        run.send(records, bulk, Pace(throughput, started))
        producer.flush()
        if transactional_id is not None:
            producer.commit_transaction()
        took = time.perf_counter() - started
    if run.error is not None:
        raise KafkaError(
            run.error.code,
            f"{run.failed} of {records} records were not acknowledged: {describe_error(run.error)}",
        )
    session.out.fields(
        {
            "records": records,
            "bytes": run.size,
            "seconds": round(took, 3),
            **rates(records, run.size, took),
            **latency_fields(run.latencies),
        }
    )


class _Producing:
    """Sends records, and counts acknowledgements on the sender's thread."""

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        values: list[bytes],
        advance: Callable[[int], None],
    ) -> None:
        self.latencies = Latencies()
        self.size = 0
        self.failed = 0
        self.error: KafkaError | None = None
        self._producer = producer
        self._topic = topic
        self._values = values
        self._advance = advance
        self._lock = Lock()

    def send(self, records: int, bulk: int, pace: Pace) -> None:
        bulk = pace.bulk(bulk)
        values, sent = self._values, 0
        while sent < records and self.error is None:
            count = min(bulk, records - sent)
            start = sent % len(values)
            chosen = values[start : start + count]
            while len(chosen) < count:
                chosen += values[: count - len(chosen)]
            self._send(chosen)
            sent += count
            wait_s = pace.wait_s(sent, time.perf_counter())
            if wait_s > 0:
                time.sleep(wait_s)

    def _send(self, values: list[bytes]) -> None:
        began = time.perf_counter()
        count, size = len(values), sum(map(len, values))
        self.size += size

        def done(error: KafkaError | None) -> None:
            with self._lock:
                if error is None:
                    self.latencies.add((time.perf_counter() - began) * 1000, count)
                else:
                    self.failed += count
                    self.error = self.error or error
            self._advance(count)

        if count == 1:
            self._producer.send(self._topic, values[0], on_delivery=lambda _, error: done(error))
        else:
            future = self._producer.send_many(self._topic, values)
            future.add_done_callback(lambda batch: done(batch.exception(0)))


@command(app, "consume")
def consume(
    session: Session,
    topic: str = TOPIC,
    records: int | None = option("--records", "-n", min=1, help="Their number. Default: all."),
    group: str | None = option(
        "--group", "-G", help="Read as a member of this group. Default: without a group."
    ),
    idle: float = option(
        default=10.0, min=0, help="Fail when no record has arrived for this time in seconds."
    ),
) -> None:
    """Read a topic from its beginning as fast as possible."""
    began = time.perf_counter()
    with session.consumer(
        auto_offset_reset="earliest", enable_auto_commit=False, group_id=group
    ) as consumer:
        partitions = _partitions(consumer, topic)
        total = records if records is not None else _all_records(consumer, partitions)
        if group is None:
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
        else:
            consumer.subscribe([topic])
        with session.out.progress("records", total) as advance:
            count, size, first, last = _read(consumer, total, idle, advance)
    seconds = last - first
    session.out.fields(
        {
            "records": count,
            "bytes": size,
            "seconds": round(seconds, 3),
            **rates(count, size, seconds),
            "seconds_until_first": round(first - began, 3),
        }
    )
    if count < total:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"only {count} of {total} records arrived, then none for {idle:g} s",
            remedy="request fewer with --records, or wait longer with --idle",
        )


def _partitions(consumer: "Consumer", topic: str) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition.partition) for partition in consumer.partitions_for(topic)
    ]


def _all_records(consumer: "Consumer", partitions: list[TopicPartition]) -> int:
    ends = consumer.end_offsets(partitions)
    return sum(ends.values()) - sum(consumer.beginning_offsets(partitions).values())


def _read(
    consumer: "Consumer", total: int, idle: float, advance: Callable[[int], None]
) -> tuple[int, int, float, float]:
    """Returns the number of records and bytes, and when the first and the last arrived.

    The clock starts before the first fetch, whose time is part of reading.
    """
    count = size = 0
    first = last = time.perf_counter()
    while count < total:
        polled = consumer.poll(idle, min(_POLL_RECORDS, total - count))
        if not polled:
            break
        last = time.perf_counter()
        count += len(polled)
        size += sum([len(record[5] or b"") + len(record[6] or b"") for record in polled])
        advance(len(polled))
    return count, size, first, last


@command(app, "latency")
def latency(
    session: Session,
    topic: str = TOPIC,
    records: int = _count(1_000),
    size: int = SIZE,
    acks: Acks | None = ACKS,
) -> None:
    """Time single records from send to poll, one after the other: no other can be on its way."""
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.settings import ConsumerOptions

    reading = session.options(ConsumerOptions, enable_auto_commit=False, fetch_max_wait_ms=500)
    timeout_s = int(reading["default_api_timeout_ms"]) / 1000
    latencies = Latencies()
    with (
        session.producer(linger_ms=0, acks=acks and acks.value) as producer,
        Consumer(**reading) as consumer,
        session.out.progress("records", records) as advance,
    ):
        producer.partitions_for(topic)
        partitions = _partitions(consumer, topic)
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition, end in ends.items():
            consumer.seek(partition, end)
        consumer.poll(0.0)
        for number in range(records):
            value = number.to_bytes(8, "big").ljust(max(8, size), b".")
            began = time.perf_counter()
            future = producer.send(topic, value)
            _await(consumer, value, timeout_s)
            latencies.add((time.perf_counter() - began) * 1000)
            future.result(timeout_s)
            advance(1)
    session.out.fields({"records": records, "bytes": records * size, **latency_fields(latencies)})


def _await(consumer: "Consumer", value: bytes, timeout_s: float) -> None:
    """Polls until the record arrives, and ignores others."""
    deadline = time.monotonic() + timeout_s
    while (remaining_s := deadline - time.monotonic()) > 0:
        if any(record.value == value for record in consumer.poll(remaining_s)):
            return
    raise KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"a record was not received within {timeout_s:g} s",
        remedy="see penstock doctor",
    )


def _payloads(file: Path | None, size: int, seed: int) -> list[bytes]:
    if file is None:
        rng = random.Random(seed)
        return [bytes(rng.choices(_LETTERS, k=size)) for _ in range(_VARIETY)]
    lines = [line for line in file.read_bytes().split(b"\n") if line]
    if not lines:
        raise UsageError(f"{file} has no lines to send")
    return lines
