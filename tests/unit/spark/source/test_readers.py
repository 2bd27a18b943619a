"""The readers, without Spark: the offsets of batches, and the errors of queries (D1)."""

import json
import logging
import pickle
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.client.errors import AuthenticationError
from penstock.client.producer.producer import Producer
from penstock.net.client.network_client import NetworkClient
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.progress import Json, SourceOffsets
from penstock.spark.source.clients import close_clients
from penstock.spark.source.options import batch_options, stream_options
from penstock.spark.source.ranges import OffsetRange
from penstock.spark.source.readers import PenstockReader, PenstockStreamReader
from penstock.spark.source.topic_ids import to_text
from penstock.testing import Broker
from tests.support.broker.logins import SASL_SETTINGS
from tests.support.spark.topics import Topics

NOON = 1_700_000_000_000
ALL = ReadAllAvailable()


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@contextmanager
def reading(topics: Topics, **options: str) -> Iterator[PenstockStreamReader]:
    source_options = {
        "kafka.bootstrap.servers": topics.bootstrap_servers,
        "startingOffsets": "earliest",
        "fetchOffset.retryIntervalMs": "0",
        **options,
    }
    reader = PenstockStreamReader(stream_options(source_options))
    try:
        yield reader
    finally:
        reader.stop()


def latest(reader: PenstockStreamReader, start: dict[str, Json]) -> dict[str, Json]:
    """Returns the end offsets from the broker, bypassing the reader's cache."""
    reader.stop()
    return reader.latestOffset(start, ALL)


def batch(topics: Topics, **options: str) -> list[OffsetRange]:
    source_options = {"kafka.bootstrap.servers": topics.bootstrap_servers, **options}
    return [
        partition.value for partition in PenstockReader(batch_options(source_options)).partitions()
    ]


def ranges(
    reader: PenstockStreamReader, start: dict[str, Json], end: dict[str, Json]
) -> list[tuple[int, int, int]]:
    return [
        (partition.value.partition, partition.value.start, partition.value.end)
        for partition in reader.partitions(start, end)
    ]


def spans(offset_ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [
        (offset_range.partition, offset_range.start, offset_range.end)
        for offset_range in offset_ranges
    ]


def offsets(name: str, *values: int, topic_id: str = "") -> dict[str, Json]:
    result: dict[str, Json] = {name: {str(number): value for number, value in enumerate(values)}}
    return {"#penstock": {"topicIds": {name: topic_id}}, **result} if topic_id else result


def test_a_stream_reads_new_records_in_each_batch(topics: Topics, name: str) -> None:
    topics.create(name, 2)
    topics.fill(name, {0: 5, 1: 3})
    with reading(topics, subscribe=name) as reader:
        start = reader.initialOffset()
        assert start[name] == {"0": 0, "1": 0}
        end = reader.latestOffset(start, ALL)
        assert end[name] == {"0": 5, "1": 3}
        assert SourceOffsets.from_json(end).topic_ids == SourceOffsets.from_json(start).topic_ids
        assert ranges(reader, start, end) == [(0, 0, 5), (1, 0, 3)]
        assert (reader.reportLatestOffset() or {})[name] == end[name]
        assert json.dumps(latest(reader, end)) == json.dumps(end), "Spark compares text"
        assert reader.partitions(end, end) == []
        topics.fill(name, {1: 2})
        assert ranges(reader, end, latest(reader, end)) == [(1, 3, 5)]


@pytest.mark.parametrize("starting", ["latest", '{"NAME": {"0": -1}}'])
def test_a_query_that_starts_at_the_end_of_a_busy_topic_loses_nothing(
    topics: Topics, name: str, starting: str
) -> None:
    """Records arrive between all the calls of Spark for a first batch.

    Some calls are repeated when the batch is repeated after a crash.
    """
    topics.create(name)
    topics.fill(name, {0: 5})
    options = {"subscribe": name, "startingOffsets": starting.replace("NAME", name)}
    with reading(topics, **options) as reader:
        start = reader.initialOffset()
        topics.fill(name, {0: 2})
        end = reader.latestOffset(start, ALL)
        topics.fill(name, {0: 3})
        assert reader.initialOffset() == start
        assert ranges(reader, start, end) == [(0, 5, 7)]
    with reading(topics, **options) as reader:
        second_start = reader.initialOffset()
        assert second_start != start
        assert ranges(reader, second_start, end) == [(0, 5, 7)]
        after = reader.latestOffset(end, ALL)
        assert ranges(reader, end, after) == [(0, 7, 10)]
        assert ranges(reader, end, end) == []


def test_the_end_of_an_empty_first_batch_is_the_start_of_the_next(
    topics: Topics, name: str
) -> None:
    topics.create(name)
    with reading(topics, subscribe=name, startingOffsets="latest") as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert json.dumps(latest(reader, end)) == json.dumps(end), "nothing new is no batch"
    topics.fill(name, {0: 2})
    with reading(topics, subscribe=name, startingOffsets="latest") as reader:
        assert ranges(reader, reader.initialOffset(), end) == []
        assert ranges(reader, end, reader.latestOffset(end, ALL)) == [(0, 0, 2)]


def test_a_reader_is_pickled_without_its_connections(topics: Topics, name: str) -> None:
    topics.create(name)
    topics.fill(name, {0: 2})
    with reading(topics, subscribe=name) as reader:
        start = reader.initialOffset()
        unpickled = pickle.loads(pickle.dumps(reader))
        [task] = unpickled.partitions(start, reader.latestOffset(start, ALL))
        unpickled.stop()
        results = unpickled.read(pickle.loads(pickle.dumps(task)))
        assert [row.as_py() for result in results for row in result[1]] == [b"0-0", b"0-1"]


def test_an_idle_query_sends_few_requests(
    topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls 90 times a second; the test controls the clock."""
    topics.create(name, 3)
    request_count = 0
    request = NetworkClient.request

    async def counted(network: NetworkClient, *args: object, **options: object) -> object:
        nonlocal request_count
        request_count += 1
        return await request(network, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(NetworkClient, "request", counted)
    now = 1_000.0
    monkeypatch.setattr("penstock.spark.source.readers.time.monotonic", lambda: now)
    with reading(topics, subscribe=name) as reader:
        start = reader.initialOffset()
        for _ in range(900):
            now += 1 / 90
            reader.latestOffset(start, ALL)
        request_count = 0
        for _ in range(900):
            now += 1 / 90
            assert reader.latestOffset(start, ALL)[name] == start[name]
    assert 0 < request_count <= 300, "three for each of ten lookups a second"


def test_the_size_of_a_batch_is_limited(topics: Topics, name: str) -> None:
    topics.create(name, 2)
    topics.fill(name, {0: 30, 1: 10})
    with reading(topics, subscribe=name, maxOffsetsPerTrigger="20") as reader:
        start = reader.initialOffset()
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(20)
        assert reader.latestOffset(start, limit)[name] == {"0": 15, "1": 5}
        assert reader.latestOffset(start, ALL)[name] == {"0": 30, "1": 10}, "Trigger.Once"


def test_a_batch_waits_for_enough_records(
    topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("penstock.spark.source.readers.time.monotonic", lambda: now)
    topics.create(name)
    topics.fill(name, {0: 1})
    more = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}
    with reading(topics, subscribe=name, **more) as reader:
        start = reader.initialOffset()
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMinRows(10)
        first = reader.latestOffset(start, limit)
        assert first[name] == {"0": 1}, "the first batch does not wait"
        topics.fill(name, {0: 9})
        now += 1
        assert reader.latestOffset(first, limit) is first
        topics.fill(name, {0: 1})
        now += 1
        second = reader.latestOffset(first, limit)
        assert second[name] == {"0": 11}
        topics.fill(name, {0: 1})
        now += 31
        assert reader.latestOffset(second, limit)[name] == {"0": 12}
    with reading(topics, subscribe=name, maxOffsetsPerTrigger="20", **more) as reader:
        assert reader.getDefaultReadLimit() == ReadMaxRows(20)
        end = reader.latestOffset(start, ReadMaxRows(20))
        topics.fill(name, {0: 1})
        now += 1
        assert reader.latestOffset(end, ReadMaxRows(20)) is end, "both limits hold"


def test_available_now_reads_up_to_the_offsets_at_the_start(topics: Topics, name: str) -> None:
    topics.create(name)
    topics.fill(name, {0: 25})
    options = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "10"}
    with reading(topics, subscribe=name, **options) as reader:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        batch_ends = []
        while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
            topics.fill(name, {0: 5})
            batch_ends.append(end[name])
            start = end
        assert batch_ends == [{"0": 10}, {"0": 20}, {"0": 25}]
        assert (reader.reportLatestOffset() or {})[name] == start[name]


def test_new_partitions_are_read_from_their_beginning(topics: Topics, name: str) -> None:
    topics.create(name)
    with reading(topics, subscribe=name, startingOffsets="latest") as reader:
        start = reader.initialOffset()
        topics.add_partitions(name, 2)
        topics.fill(name, {1: 4})
        end = latest(reader, start)
        assert ranges(reader, start, end) == [(1, 0, 4)]
        topics.delete_records(name, 1, 3)
        with pytest.raises(DataLossError, match=f"new partition {name}-1 starts at offset 3"):
            reader.partitions(start, end)


def test_deleted_records_stop_a_query(
    topics: Topics, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create(name)
    topics.fill(name, {0: 10})
    with reading(topics, subscribe=name) as reader:
        start = reader.initialOffset()
        topics.delete_records(name, 0, 4)
        end = reader.latestOffset(start, ALL)
        with pytest.raises(DataLossError, match=r"starts at offset 4 now, .* failOnDataLoss"):
            reader.partitions(start, end)
    with reading(topics, subscribe=name, failOnDataLoss="false") as reader:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert ranges(reader, start, end) == [(0, 4, 10)]
        assert caplog.text.count("starts at offset 4 now") == 1


def test_offsets_beyond_the_end_stop_a_query(topics: Topics, name: str) -> None:
    topics.create(name)
    topics.fill(name, {0: 3})
    start = offsets(name, 9)
    with (
        reading(topics, subscribe=name) as reader,
        pytest.raises(DataLossError, match="ends at offset 3, and was read up to 9"),
    ):
        reader.latestOffset(start, ALL)
    with reading(topics, subscribe=name, failOnDataLoss="false") as reader:
        end = reader.latestOffset(start, ALL)
        assert end[name] == {"0": 3}
        assert reader.partitions(start, end) == []


def test_a_recreated_topic_stops_a_query(topics: Topics, name: str) -> None:
    topics.create(name)
    topics.fill(name, {0: 3})
    with reading(topics, subscribe=name) as reader:
        start = reader.latestOffset(reader.initialOffset(), ALL)
        topics.delete(name)
        topics.create(name)
        topics.fill(name, {0: 5})
        with pytest.raises(DataLossError, match=f"topic {name} was deleted and created again"):
            latest(reader, start)
    with reading(topics, subscribe=name, failOnDataLoss="false") as reader:
        end = reader.latestOffset(start, ALL)
        assert end["#penstock"] != start["#penstock"]
        assert ranges(reader, start, end) == [(0, 0, 5)], "from its beginning, not from 3"
        assert reader.latestOffset(start, ReadMaxRows(2))[name] == {"0": 2}


def test_a_topic_that_is_recreated_after_planning_is_not_read(topics: Topics, name: str) -> None:
    """The planned offsets do not belong to the records that exist."""
    topics.create(name)
    topics.fill(name, {0: 3})
    with reading(topics, subscribe=name, failOnDataLoss="false") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        topics.delete(name)
        topics.create(name)
        topics.fill(name, {0: 5})
        assert reader.partitions(start, end) == []
        after = latest(reader, end)
        assert ranges(reader, end, after) == [(0, 0, 5)]
    with (
        reading(topics, subscribe=name) as reader,
        pytest.raises(DataLossError, match=f"{name}-0 is gone"),
    ):
        reader.partitions(start, end)


def test_a_deleted_topic_stops_a_query(topics: Topics, name: str) -> None:
    remaining = f"{name}-other"
    for topic in (name, remaining):
        topics.create(topic)
        topics.fill(topic, {0: 3})
    names = f"{name},{remaining}"
    with reading(topics, subscribe=names) as reader:
        start = reader.initialOffset()
        topics.delete(name)
        with pytest.raises(DataLossError, match=f"{name}-0 is gone"):
            reader.latestOffset(start, ALL)
    with reading(topics, subscribe=names, failOnDataLoss="false") as reader:
        end = reader.latestOffset(start, ALL)
        assert end.keys() == {"#penstock", remaining}
        assert [partition.value.topic for partition in reader.partitions(start, end)] == [remaining]
        topics.create(name)
        topics.fill(name, {0: 2})
        next_end = latest(reader, end)
        assert [partition.value.topic for partition in reader.partitions(end, next_end)] == [name]


def test_a_checkpoint_of_sparks_own_source_is_continued(topics: Topics, name: str) -> None:
    topics.create(name)
    topics.fill(name, {0: 5})
    with reading(topics, subscribe=name) as reader:
        start = offsets(name, 3)
        end = reader.latestOffset(start, ALL)
        assert end[name] == {"0": 5}
        assert "#penstock" in end
        assert ranges(reader, start, end) == [(0, 3, 5)]


def test_a_query_starts_from_offsets_that_a_pipeline_has_stored(topics: Topics, name: str) -> None:
    """Partitions that are not named are new; different topic ids stop the query."""
    topics.create(name, 2)
    topics.fill(name, {0: 5, 1: 2})
    with reading(topics, subscribe=name, sourceName="s") as reader:
        end_offsets = latest(reader, reader.initialOffset())
    stored = {**end_offsets, name: {"0": 3}}
    with reading(topics, subscribe=name, startingOffsets=json.dumps(stored)) as reader:
        start = reader.initialOffset()
        assert ranges(reader, start, reader.latestOffset(start, ALL)) == [(0, 3, 5), (1, 0, 2)]
    foreign = offsets(name, 3, 0, topic_id=to_text(uuid.uuid4()))
    with reading(topics, subscribe=name, startingOffsets=json.dumps(foreign)) as reader:
        start = reader.initialOffset()
        with pytest.raises(DataLossError, match="deleted and created again"):
            reader.latestOffset(start, ALL)


def test_gaps_of_transactions_are_part_of_ranges(topics: Topics, name: str) -> None:
    """P4: offsets are those of the log, including markers."""
    topics.create(name)
    topics.in_transaction(name, 0, 2)
    topics.in_transaction(name, 0, 2, commit=False)
    committed = {"kafka.isolation.level": "read_committed"}
    [result] = batch(topics, subscribe=name, **committed)
    assert (result.start, result.end) == (0, 6)
    with Producer(
        bootstrap_servers=topics.bootstrap_servers, transactional_id=f"{name}-open"
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open", partition=0).result(30)
        assert spans(batch(topics, subscribe=name, **committed)) == [(0, 0, 6)]
        assert spans(batch(topics, subscribe=name)) == [(0, 0, 7)]
        producer.abort_transaction()


def test_batches(topics: Topics, name: str) -> None:
    topics.create(name, 3)
    topics.fill(name, {0: 10, 1: 4}, timestamp=NOON)
    assert spans(batch(topics, subscribe=name)) == [(0, 0, 10), (1, 0, 4)]
    some = batch(
        topics,
        assign=f'{{"{name}": [0]}}',
        startingOffsets=json.dumps(offsets(name, 3)),
        endingOffsets=json.dumps(offsets(name, 7)),
    )
    assert spans(some) == [(0, 3, 7)]
    timed = batch(
        topics,
        assign=f'{{"{name}": [0, 1]}}',
        startingTimestamp=str(NOON + 1),
        endingTimestamp=str(NOON + 6),
    )
    assert spans(timed) == [(0, 1, 6), (1, 1, 4)]
    split = batch(topics, subscribe=name, maxRecordsPerPartition="4")
    assert spans(split) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 4)]
    assert len(batch(topics, subscribe=name, minPartitions="7")) == 7
    assert batch(topics, subscribePattern=f"{name}-none") == []


def test_a_batch_whose_end_lies_before_its_start(topics: Topics, name: str) -> None:
    topics.create(name)
    topics.fill(name, {0: 5}, timestamp=NOON)
    with pytest.raises(OptionError, match=f"{name}-0 is to be read from offset 4 to 1"):
        batch(
            topics,
            subscribe=name,
            startingOffsets=json.dumps(offsets(name, 4)),
            endingTimestamp=str(NOON + 1),
        )


def test_a_login(name: str) -> None:
    """X2: settings of the client reach the driver's connections and those of tasks."""
    with Broker(SASL_SETTINGS) as broker, Topics(broker.bootstrap_servers) as topics:
        topics.create(name)
        topics.fill(name, {0: 2})
        options = {
            "kafka.bootstrap.servers": broker.address("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "subscribe": name,
        }
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=ann"
        right = {**options, "kafka.sasl.jaas.config": f"{login} password=ann-secret;"}
        reader = PenstockReader(batch_options(right))
        [task] = reader.partitions()
        assert sum(result.num_rows for result in reader.read(task)) == 2
        wrong = {**options, "kafka.sasl.jaas.config": f"{login} password=guess;"}
        with pytest.raises(AuthenticationError):
            PenstockReader(batch_options(wrong)).partitions()
        close_clients()
