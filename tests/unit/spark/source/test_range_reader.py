"""A task's range: exactly the rows that a consumer would return (D1)."""

from collections.abc import Generator, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client import Admin, Consumer, Producer
from penstock.client.admin import NewTopic
from penstock.core.ids import TopicPartition
from penstock.spark.source import range_reader
from penstock.spark.source.clients import close_clients
from penstock.spark.source.range_reader import ReadSettings, read_range
from penstock.spark.source.ranges import OffsetRange
from penstock.testing import Broker
from tests.support.spark import ranges
from tests.support.spark.ranges import Row, polled, range_of, read, rows_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000


class Environment:
    """A broker, and the clients that fill its topics."""

    def __init__(self, broker: Broker) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.admin = Admin(bootstrap_servers=self.bootstrap)
        self.plain = {
            codec: Producer(
                bootstrap_servers=self.bootstrap, compression_type=codec, linger_ms=1000
            )
            for codec in CODECS
        }
        self.in_transactions = {
            name: Producer(
                bootstrap_servers=self.bootstrap,
                transactional_id=name,
                compression_type=codec,
                linger_ms=1000,
            )
            for name, codec in (("a", "none"), ("b", "zstd"))
        }
        for producer in self.in_transactions.values():
            producer.init_transactions()
        self.consumers = {
            level: Consumer(
                bootstrap_servers=self.bootstrap, isolation_level=level, fetch_max_wait_ms=10
            )
            for level in ("read_committed", "read_uncommitted")
        }
        self._topics = 0

    def close(self) -> None:
        for producer in (*self.plain.values(), *self.in_transactions.values()):
            producer.close()
        for consumer in self.consumers.values():
            consumer.close()
        self.admin.close()

    def topic(self, **configs: str) -> str:
        self._topics += 1
        name = f"t{self._topics}"
        self.admin.create_topics([NewTopic(name, 1, configs=configs)])
        return name

    def send(self, producer: Producer, topic: str, count: int, first: int = 0) -> None:
        """Sends one batch."""
        for number in range(first, first + count):
            producer.send(
                topic,
                None if number % 7 == 6 else b"v%d" % number,
                key=None if number % 3 == 2 else b"k%d" % number,
                headers=[("h", b"x" * number), ("n", None)] if number % 4 == 1 else None,
                timestamp=T0 + number,
            )
        producer.flush()

    def end_transaction(self, producer_name: str, *, commits: bool) -> None:
        producer = self.in_transactions[producer_name]
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    def end(self, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        return self.consumers["read_uncommitted"].end_offsets([partition])[partition]


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with Broker() as broker:
        environment = Environment(broker)
        yield environment
        environment.close()
        close_clients()


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from((*CODECS, "a", "b")), st.integers(1, 12)),
        st.tuples(st.sampled_from(("commit a", "commit b", "abort a", "abort b")), st.just(0)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=30)
@given(steps=steps, data=st.data())
def test_rows_are_the_same_as_those_of_a_consumer(
    environment: Environment, steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    """D1, P4: batches of all sizes and codecs, committed and aborted transactions."""
    topic = environment.topic()
    is_open = {"a": False, "b": False}
    for step, count in [*steps, ("abort a", 0), ("commit b", 0)]:
        action, _, producer_name = step.rpartition(" ")
        if action:
            if is_open[producer_name]:
                environment.end_transaction(producer_name, commits=action == "commit")
                is_open[producer_name] = False
        elif step in is_open:
            if not is_open[step]:
                environment.in_transactions[step].begin_transaction()
                is_open[step] = True
            environment.send(environment.in_transactions[step], topic, count)
        else:
            environment.send(environment.plain[step], topic, count)
    end = environment.end(topic)
    for level, consumer in environment.consumers.items():
        expected = polled(consumer, topic, end)
        read_settings = ranges.settings(
            environment.bootstrap, read_committed=level == "read_committed", include_headers=True
        )
        start = data.draw(st.integers(0, end))
        stop = data.draw(st.integers(start, end))
        for first, last in ((0, end), (start, stop), (stop, end)):
            result = read(range_of(environment.admin, topic, first, last), read_settings)
            assert result == [row for row in expected if first <= row.offset < last]


@pytest.mark.parametrize("headers", [False, True])
def test_schema_is_sparks(environment: Environment, headers: bool) -> None:
    """D1: Spark refuses batches of any other schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from penstock.spark.source.datasource import schema_of

    topic = environment.topic()
    environment.send(environment.plain["none"], topic, 10)
    read_settings = ranges.settings(environment.bootstrap, include_headers=headers)
    expected = to_arrow_schema(schema_of(include_headers=headers), timezone="UTC")
    for batch in read_range(range_of(environment.admin, topic, 0, 10), read_settings):
        assert batch.schema.equals(expected, check_metadata=True)


def test_rows_outside_the_range_are_dropped(environment: Environment) -> None:
    topic = environment.topic()
    environment.send(environment.plain["lz4"], topic, 10)
    rows = read(range_of(environment.admin, topic, 3, 7), ranges.settings(environment.bootstrap))
    assert rows == [
        Row(b"k3", b"v3", topic, 0, 3, 1000 * (T0 + 3), 0),
        Row(b"k4", b"v4", topic, 0, 4, 1000 * (T0 + 4), 0),
        Row(None, b"v5", topic, 0, 5, 1000 * (T0 + 5), 0),
        Row(b"k6", None, topic, 0, 6, 1000 * (T0 + 6), 0),
    ]


def test_an_empty_range_sends_no_request() -> None:
    assert list(read_range(OffsetRange("t", 0, 5, 5), ReadSettings({}))) == []


def test_markers_at_the_end_of_a_range(environment: Environment) -> None:
    """P4: the range ends with a marker and aborted records, none of which is returned."""
    topic = environment.topic()
    environment.send(environment.plain["none"], topic, 3)
    producer = environment.in_transactions["a"]
    producer.begin_transaction()
    environment.send(producer, topic, 4)
    producer.abort_transaction()
    read_settings = ranges.settings(environment.bootstrap, read_committed=True)
    assert len(read(range_of(environment.admin, topic, 0, 8), read_settings)) == 3
    assert read(range_of(environment.admin, topic, 4, 8), read_settings) == []
    assert read(range_of(environment.admin, topic, 7, 8), read_settings) == []


def test_log_append_time(environment: Environment) -> None:
    topic = environment.topic(**{"message.timestamp.type": "LogAppendTime"})
    environment.send(environment.plain["none"], topic, 3)
    rows = read(range_of(environment.admin, topic, 0, 3), ranges.settings(environment.bootstrap))
    assert [row.timestamp_type for row in rows] == [1, 1, 1]
    assert all(row.timestamp > 1000 * (T0 + 3) for row in rows)


def test_a_range_without_a_topic_id(environment: Environment) -> None:
    """Ranges from brokers before Kafka 2.8 have no topic id."""
    topic = environment.topic()
    environment.send(environment.plain["none"], topic, 3)
    rows = read(OffsetRange(topic, 0, 0, 3), ranges.settings(environment.bootstrap))
    assert [row.offset for row in rows] == [0, 1, 2]


def test_memory_is_limited(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that decompresses to a large size is returned in parts."""
    monkeypatch.setattr(range_reader, "BATCH_BYTES", 20_000)
    topic = environment.topic()
    with Producer(
        bootstrap_servers=environment.bootstrap, compression_type="zstd", batch_size=900_000
    ) as producer:
        producer.send_many(topic, [b"%06d" % number * 100 for number in range(1000)])
    batches = list(
        read_range(
            range_of(environment.admin, topic, 0, 1000), ranges.settings(environment.bootstrap)
        )
    )
    assert max(batch.nbytes for batch in batches) < 6 * 20_000
    assert [row.value for row in rows_of(batches)] == [
        b"%06d" % number * 100 for number in range(1000)
    ]


def test_a_range_of_many_fetches(environment: Environment) -> None:
    """A range that needs many fetches, each of which ends within a batch."""
    topic = environment.topic()
    for first in range(0, 300, 10):
        environment.send(environment.plain["none"], topic, 10, first)
    read_settings = ranges.settings(environment.bootstrap, max_partition_fetch_bytes="700")
    batches = list(read_range(range_of(environment.admin, topic, 5, 295), read_settings))
    assert [row.offset for row in rows_of(batches)] == list(range(5, 295))
    assert len(batches) > 10


def test_an_abandoned_range_leaves_nothing_behind(environment: Environment) -> None:
    """Tasks that fail, and queries with a limit, stop within a range."""
    topic = environment.topic()
    for first in range(0, 200, 10):
        environment.send(environment.plain["none"], topic, 10, first)
    read_settings = ranges.settings(environment.bootstrap, max_partition_fetch_bytes="700")
    for start in (0, 50, 120):
        reading = read_range(range_of(environment.admin, topic, start, 200), read_settings)
        assert next(reading).column("offset")[0].as_py() == start
        assert isinstance(reading, Generator)
        reading.close()
        rows = read(range_of(environment.admin, topic, start + 1, start + 40), read_settings)
        assert [row.offset for row in rows] == list(range(start + 1, start + 40))


def test_two_ranges_at_once(environment: Environment) -> None:
    topic = environment.topic()
    for first in range(0, 100, 10):
        environment.send(environment.plain["none"], topic, 10, first)
    read_settings = ranges.settings(environment.bootstrap, max_partition_fetch_bytes="700")
    first_range = read_range(range_of(environment.admin, topic, 0, 50), read_settings)
    second_range = read_range(range_of(environment.admin, topic, 50, 100), read_settings)
    offsets = [[row.offset for row in rows_of(list(item))] for item in (first_range, second_range)]
    assert offsets == [list(range(50)), list(range(50, 100))]
