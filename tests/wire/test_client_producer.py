"""P1, P5: our producer against our broker, when nothing breaks."""

import asyncio
import gc
import logging
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from penstock.client import aio
from penstock.client.errors import (
    BufferExhaustedError,
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicError,
)
from penstock.client.producer.future import RecordMetadata
from penstock.client.producer.interceptors import (
    Headers,
    ProducerInterceptor,
    ProducerRecord,
)
from penstock.client.producer.producer import Producer
from penstock.core.errors import ErrorCode, KafkaError
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.coordinator.transaction_client import uncommitted
from tests.support.protocol.requests import fetch_partition, make_topic, records_in

WAIT_S = 10.0


@pytest.fixture
def producer(broker: RunningBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
        yield producer


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_are_stored_with_every_value_of_acks(
    broker: RunningBroker, client: WireClient, acks: int | str, idempotent: bool
) -> None:
    """P1: key, value, headers, timestamp, partition; the future has the offset."""
    if idempotent and acks != "all":
        with pytest.raises(KafkaError, match="acks"):
            Producer(bootstrap_servers="x:1", acks=acks, enable_idempotence=True)
        return
    topic = f"acks-{acks}-{idempotent}"
    make_topic(client, topic, 2)
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, acks=acks, enable_idempotence=idempotent
    ) as producer:
        future = producer.send(
            topic, b"v", key=b"k", headers={"h": b"1", "none": None}, partition=1, timestamp=77
        )
        metadata = future.result(WAIT_S)
        assert metadata == RecordMetadata(topic, 1, -1 if acks == 0 else 0, 77, 1, 1)
    if acks == 0:
        # Without a response it is unknown when it is stored; a later record is stored after it.
        with Producer(bootstrap_servers=broker.bootstrap_servers) as second:
            second.send(topic, b"behind", partition=1).result(WAIT_S)
    record = records_in(fetch_partition(client, topic, partition=1))[0]
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 77)
    assert list(record.headers) == [("h", b"1"), ("none", None)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker: RunningBroker, client: WireClient, codec: str) -> None:
    """P6."""
    topic = f"codec-{codec}"
    make_topic(client, topic)
    values = [b"%d " % number * 30 for number in range(500)]
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(WAIT_S)
        assert [future.result(0).offset for future in futures] == list(range(500))
    assert uncommitted(client, topic) == values


def test_a_key_has_its_partition_and_records_without_keys_are_sticky(
    producer: Producer, client: WireClient
) -> None:
    """P5: murmur2, as every Java client."""
    make_topic(client, "keys", 10)
    places = {
        key: {producer.send("keys", b"v", key=key).result(WAIT_S).partition for _ in range(3)}
        for key in (b"21", b"foobar", b"a-little-bit-long-string")
    }
    assert {len(partitions) for partitions in places.values()} == {1}
    # Kafka's own samples of murmur2: -973932308, -790332482, -985981536.
    assert places[b"21"] == {(-973932308 & 0x7FFFFFFF) % 10}
    assert places[b"foobar"] == {(-790332482 & 0x7FFFFFFF) % 10}
    futures = [producer.send("keys", b"v") for _ in range(5)]
    assert len({future.result(WAIT_S).partition for future in futures}) == 1


def test_a_partitioner_must_choose_an_existing_partition(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "partitioned", 2)
    for number in (-1, 2):
        with (
            Producer(
                bootstrap_servers=broker.bootstrap_servers,
                partitioner=lambda key, count, number=number: number,
            ) as producer,
            pytest.raises(ConfigError, match=f"chose partition {number} of topic partitioned"),
        ):
            producer.send("partitioned", b"x")


def test_many_records_at_once(producer: Producer, client: WireClient) -> None:
    make_topic(client, "bulk")
    values = [b"%d" % number for number in range(20_000)]
    result = producer.send_many("bulk", values, headers={"h": b"x"}).result(WAIT_S)
    assert len(result) == 20_000
    assert (result[0].offset, result[19_999].offset) == (0, 19_999)
    assert uncommitted(client, "bulk") == values


def test_the_error_of_a_record_that_is_too_large_has_the_setting(
    broker: RunningBroker, client: WireClient
) -> None:
    """E2: larger than the producer allows, than its memory, than the topic."""
    make_topic(client, "small", configs={"max.message.bytes": "1000"})
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, max_request_size=5000, buffer_memory=100_000
    ) as producer:
        with pytest.raises(RecordTooLargeError, match="max_request_size=5000"):
            producer.send("small", b"x" * 5001)
        error = producer.send("small", b"x" * 2000).exception(WAIT_S)
        assert isinstance(error, RecordTooLargeError)
        assert "max.message.bytes" in error.message
        assert producer.send("small", b"fits").result(WAIT_S).offset == 0
    with (
        Producer(
            bootstrap_servers=broker.bootstrap_servers, max_request_size=5000, buffer_memory=2000
        ) as producer,
        pytest.raises(RecordTooLargeError, match="buffer_memory=2000"),
    ):
        producer.send("small", b"x" * 3000)


def test_a_batch_that_is_too_large_is_split(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "split", configs={"max.message.bytes": "1000"})
    values = [b"%03d" % number * 20 for number in range(200)]
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=50) as producer:
        futures = [producer.send("split", value) for value in values]
        producer.flush(WAIT_S)
        assert [future.result(0).offset for future in futures] == list(range(200))
    assert uncommitted(client, "split") == values


def test_the_error_of_an_unknown_topic_has_its_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """E5: after max_block_ms, with what to do."""
    from tests.support.broker.in_process import running_broker

    with (
        running_broker(
            tmp_path_factory.mktemp("strict"), {"auto.create.topics.enable": "false"}
        ) as strict,
        Producer(bootstrap_servers=strict.bootstrap_servers, max_block_ms=300) as producer,
    ):
        with pytest.raises(UnknownTopicError, match=r"nowhere.*auto\.create\.topics\.enable"):
            producer.send("nowhere", b"v")
        with strict.connect() as client:
            make_topic(client, "here")
        assert producer.send("here", b"v").result(WAIT_S).offset == 0
        with pytest.raises(UnknownTopicError, match=r"has 1 partitions .* partition 5"):
            producer.send("here", b"v", partition=5)


def test_sending_to_a_topic_creates_it(producer: Producer) -> None:
    assert producer.send("made-by-sending", b"v").result(WAIT_S).offset == 0
    assert len(producer.partitions_for("made-by-sending")) == 1


def test_text_needs_a_serializer(broker: RunningBroker, producer: Producer) -> None:
    with pytest.raises(SerializationError, match="value_serializer"):
        producer.send("text", "v")
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        value_serializer=lambda text: text.encode(),
        key_serializer=lambda number: b"%d" % number,
    ) as producer:
        assert producer.send("text", "v", key=3).result(WAIT_S).serialized_key_size == 1
        with pytest.raises(SerializationError, match="the value for topic 'text'"):
            producer.send("text", 3)
        assert producer.send("text", "after").result(WAIT_S).offset == 1


def test_exhausted_memory_raises_an_error(broker: RunningBroker, client: WireClient) -> None:
    """P5: send waits max_block_ms for memory, then says so."""
    make_topic(client, "memory")
    gate = threading.Event()
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        buffer_memory=4096,
        batch_size=1024,
        max_block_ms=100,
        linger_ms=0,
    ) as producer:
        producer.partitions_for("memory")
        producer._loop_thread.post(gate.wait)
        for _ in range(4):
            producer.send("memory", b"x" * 900)
        with pytest.raises(BufferExhaustedError, match="buffer_memory"):
            producer.send("memory", b"x" * 900)
        gate.set()
        producer.flush(WAIT_S)
        assert producer.send("memory", b"x" * 900).result(WAIT_S).offset == 4


class Seeing(ProducerInterceptor):
    """Adds a header, remembers what it heard, and sometimes fails."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int | None, ErrorCode | None, Headers]] = []
        self.closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if record.value == b"trip":
            raise ValueError("on_send tripped")
        record.headers = (*record.headers, ("seen", b"yes"))
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Headers
    ) -> None:
        offset = None if metadata is None else metadata.offset
        self.acknowledged.append((offset, None if error is None else error.code, headers))
        raise ValueError("on_acknowledgement tripped")

    def close(self) -> None:
        self.closed = True


def test_interceptors_see_all_records_and_their_exceptions_are_ignored(
    broker: RunningBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    """P5."""
    make_topic(client, "intercepted")
    seeing = Seeing()
    with (
        caplog.at_level(logging.CRITICAL, "penstock.client.producer.interceptors"),
        Producer(
            bootstrap_servers=broker.bootstrap_servers,
            interceptors=[seeing],
            max_request_size=2000,
        ) as producer,
    ):
        producer.send("intercepted", b"v").result(WAIT_S)
        producer.send("intercepted", b"trip").result(WAIT_S)
        with pytest.raises(RecordTooLargeError):
            producer.send("intercepted", b"x" * 3000)
    assert seeing.closed
    assert [entry[:2] for entry in seeing.acknowledged] == [
        (0, None),
        (1, None),
        (-1, ErrorCode.MESSAGE_TOO_LARGE),
    ]
    first, second = records_in(fetch_partition(client, "intercepted"))
    assert list(first.headers) == [("seen", b"yes")]
    assert list(second.headers) == []


def test_callbacks_may_send_but_not_block(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback runs on the sender's thread: what would wait for itself is refused."""
    done = threading.Event()
    refused: list[type[BaseException]] = []

    def delivered(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        try:
            producer.flush()
        except IllegalStateError as wrong:
            refused.append(type(wrong))
        producer.send("callbacks", b"second", on_delivery=lambda *_: done.set())
        raise ValueError("a callback that fails")

    with caplog.at_level(logging.CRITICAL, "penstock.client.producer"):
        assert producer.send("callbacks", b"first", on_delivery=delivered).result(WAIT_S)
        assert done.wait(WAIT_S)
    assert refused == [IllegalStateError]
    assert producer.send("callbacks", b"third").result(WAIT_S).offset == 2


def test_close_delivers_records_and_rejects_later_ones(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "closing")
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    futures = [producer.send("closing", b"%d" % number) for number in range(10)]
    producer.close()
    assert [future.result(0).offset for future in futures] == list(range(10))
    for call in (
        lambda: producer.send("closing", b"v"),
        lambda: producer.send_many("closing", [b"v"]),
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            call()
    producer.close()


def test_close_in_a_callback_does_not_wait_for_itself(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
    with caplog.at_level(logging.CRITICAL, "penstock.client.producer"):
        future = producer.send("close-within", b"v", on_delivery=lambda *_: producer.close())
        future.result(WAIT_S)
        producer._loop_thread._thread.join(WAIT_S)
    assert not producer._loop_thread._thread.is_alive()
    with pytest.raises(IllegalStateError):
        producer.send("close-within", b"v")


def test_the_error_without_a_broker_has_its_address() -> None:
    """E6: not the topic is wrong."""
    with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=50) as producer:
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
            producer.send("t", b"v")
        producer.close(0.05)


def test_close_fails_records_after_its_timeout(broker: RunningBroker, client: WireClient) -> None:
    """What was not delivered by then fails, and says so."""
    make_topic(client, "given-up")
    gate = threading.Event()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.partitions_for("given-up")
        producer._loop_thread.post(gate.wait)
        future = producer.send("given-up", b"v")
        threading.Timer(0.01, gate.set).start()
        producer.close(0)
    error = future.exception(0)
    assert isinstance(error, IllegalStateError)
    assert "closed before" in error.message


@pytest.mark.parametrize("call", ["flush", "result"])
def test_a_producer_works_after_an_interrupt(producer: Producer, call: str) -> None:
    """Ctrl-C while the sender is busy; what was sent is on its way all the same."""
    topic = f"interrupted-{call}"
    producer.partitions_for(topic)
    gate = threading.Event()
    producer._loop_thread.post(gate.wait)
    future = producer.send(topic, b"v")
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        producer.flush() if call == "flush" else future.result()
    timer.join()
    with pytest.raises(KafkaTimeoutError):
        producer.flush(0.01)
    with pytest.raises(KafkaTimeoutError):
        future.result(0.01)
    gate.set()
    producer.flush(WAIT_S)
    assert future.result(0).offset == 0


def test_a_producer_that_is_not_closed_warns_and_delivers(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "forgotten")
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    thread = producer._loop_thread._thread
    future = producer.send("forgotten", b"v")
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert [warning.category for warning in caught_warnings] == [ResourceWarning]
    assert future.result(WAIT_S).offset == 0
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_program_that_does_not_close_ends_and_delivers_all_records(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "at-exit")
    program = (
        "from penstock.client import Producer\n"
        f"p = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)\n"
        "p.send('at-exit', b'v')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=30, text=True)
    assert done.returncode == 0
    assert uncommitted(client, "at-exit") == [b"v"]


def test_metrics_have_kafkas_names(producer: Producer) -> None:
    """P5."""
    for _ in range(3):
        producer.send("measured", b"v").result(WAIT_S)
    values = {
        (name.group, name.name, name.tags.get("topic")): value
        for name, value in producer.metrics().items()
    }
    assert values["producer-metrics", "record-send-total", None] == 3
    assert values["producer-topic-metrics", "record-send-total", "measured"] == 3
    assert values["producer-metrics", "record-error-total", None] == 0
    assert values["producer-metrics", "request-latency-avg", None] >= 0
    assert values["producer-metrics", "batch-size-avg", None] > 60
    assert values["producer-metrics", "buffer-available-bytes", None] == 33_554_432
    for name in ("record-queue-time-avg", "record-retry-rate", "request-latency-max"):
        assert ("producer-metrics", name, None) in values


def test_threads_share_a_producer(producer: Producer, client: WireClient) -> None:
    """Each thread's records keep their order."""
    make_topic(client, "threads")

    def work(name: int) -> None:
        for number in range(500):
            producer.send("threads", b"%d:%d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(WAIT_S)
    values = [value or b"" for value in uncommitted(client, "threads")]
    assert len(values) == 2000
    for name in range(4):
        values_of_producer = [value for value in values if value.startswith(b"%d:" % name)]
        assert values_of_producer == [b"%d:%d" % (name, number) for number in range(500)]


def test_the_asyncio_producer(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "aio", 2)

    async def work() -> None:
        producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        with pytest.raises(IllegalStateError, match="not started"):
            await producer.send("aio", b"v")
        async with producer:
            future = await producer.send("aio", b"first", key=b"k", partition=1)
            assert (await future).offset == 0
            futures = [await producer.send("aio", b"%d" % n, partition=1) for n in range(300)]
            await producer.flush(WAIT_S)
            assert [(await future).offset for future in futures] == list(range(1, 301))
            many = await producer.send_many("aio", [b"m"] * 1000, partition=0)
            assert (await many)[999].offset == 999
            with pytest.raises(RecordTooLargeError):
                await producer.send("aio", b"x" * 2_000_000)
            assert len(await producer.partitions_for("aio")) == 2
        with pytest.raises(IllegalStateError, match="closed"):
            await producer.send("aio", b"v")

    asyncio.run(work())
    assert len(uncommitted(client, "aio", 1)) == 301
    assert len(uncommitted(client, "aio", 0)) == 1000
