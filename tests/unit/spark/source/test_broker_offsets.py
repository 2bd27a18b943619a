"""Topics and offsets, as a broker reports them (D1)."""

import uuid

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.errors import DisconnectError, KafkaTimeoutError, UnknownTopicError
from penstock.client.producer.producer import Producer
from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.broker_offsets import BrokerOffsets
from penstock.spark.source.options import stream_options
from penstock.spark.source.positions import AtOffsets, AtTime, AtTimes, LogBoundary
from penstock.spark.source.topic_ids import from_text, to_text
from penstock.testing import Broker
from tests.support.spark.topics import Topics

NOON = 1_700_000_000_000


class FakeSleep:
    """Counts the calls of sleep, without waiting."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


def broker_offsets(topics: Topics, sleep: FakeSleep | None = None, **options: str) -> BrokerOffsets:
    source_options = {"kafka.bootstrap.servers": topics.bootstrap_servers, **options}
    return BrokerOffsets(stream_options(source_options), sleep=sleep or FakeSleep())


def of(topic: str, *offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_boundaries_offsets_and_times_are_resolved(topics: Topics, name: str) -> None:
    topics.create(name, 2)
    topics.fill(name, {0: 5, 1: 3}, timestamp=NOON)
    topics.delete_records(name, 0, 2)
    with broker_offsets(topics, subscribe=name, sourceName="clicks") as broker:
        first = broker.resolve(LogBoundary.EARLIEST, is_start=True)
        assert first.offsets == of(name, 2, 0)
        assert first.source == "clicks"
        assert from_text(first.topic_ids[name]) is not None
        assert broker.resolve(LogBoundary.LATEST, is_start=True).offsets == of(name, 5, 3)
        mixed = AtOffsets(SourceOffsets(of(name, -2, -1)))
        assert broker.resolve(mixed, is_start=True).offsets == of(name, 2, 3)
        exact = AtOffsets(SourceOffsets(of(name, 4, 1)))
        assert broker.resolve(exact, is_start=True).offsets == of(name, 4, 1)
        late = AtTime(NOON + 2, False)
        assert broker.resolve(late, is_start=True).offsets == of(name, 2, 2)
        times = AtTimes(of(name, NOON + 4, NOON), False)
        assert broker.resolve(times, is_start=True).offsets == of(name, 4, 0)
        assert broker.latest().offsets == of(name, 5, 3)
        partitions = [TopicPartition(name, 0), TopicPartition("absent", 0)]
        assert broker.earliest(partitions) == {partitions[0]: 2}


def test_a_time_after_the_last_record_is_an_error_or_the_end(topics: Topics, name: str) -> None:
    topics.create(name, 2)
    topics.fill(name, {0: 5, 1: 3}, timestamp=NOON)
    with broker_offsets(topics, subscribe=name) as broker:
        with pytest.raises(OptionError, match=f"no record of {name}-1 is as late as {NOON + 4}"):
            broker.resolve(AtTime(NOON + 4, False), is_start=True)
        assert broker.resolve(AtTime(NOON + 4, True), is_start=True).offsets == of(name, 4, 3)


def test_offsets_must_name_each_partition(topics: Topics, name: str) -> None:
    topics.create(name, 2)
    with broker_offsets(topics, subscribe=name) as broker:
        message = f"startingOffsets must name each partition .*: {name}-1 is missing$"
        with pytest.raises(OptionError, match=message):
            broker.resolve(AtOffsets(SourceOffsets(of(name, 0))), is_start=True)
        message = f"endingOffsetsByTimestamp must name each partition: {name}-2 is not read$"
        with pytest.raises(OptionError, match=message):
            broker.resolve(AtTimes(of(name, 0, 0, 0), True), is_start=False)


def test_topic_ids_in_starting_offsets_are_kept(topics: Topics, name: str) -> None:
    topics.create(name)
    topic_id = to_text(uuid.uuid4())
    with broker_offsets(topics, subscribe=name) as broker:
        position = AtOffsets(SourceOffsets(of(name, 0), {name: topic_id}))
        assert broker.resolve(position, is_start=True).topic_ids == {name: topic_id}


def test_a_pattern_may_match_any_part_of_the_name(topics: Topics, name: str) -> None:
    for suffix in ("orders", "old-orders", "clicks"):
        topics.create(f"{name}-{suffix}")
    with broker_offsets(topics, subscribePattern=f"{name}-.*ord") as broker:
        result = {partition.topic for partition in broker.current_partitions().partitions}
        assert result == {f"{name}-orders", f"{name}-old-orders"}
        topics.create(f"{name}-ord")
        assert f"{name}-ord" in broker.current_partitions().topic_ids
    with broker_offsets(topics, subscribePattern=f"{name}-nothing") as broker:
        assert broker.resolve(LogBoundary.EARLIEST, is_start=True) == SourceOffsets({})
    with broker_offsets(
        topics, subscribePattern="__consumer_offsets|__transaction_state"
    ) as broker:
        assert broker.current_partitions().partitions == frozenset()


def test_only_assigned_partitions_are_read(topics: Topics, name: str) -> None:
    topics.create(name, 3)
    with broker_offsets(topics, assign=f'{{"{name}": [0, 2]}}') as broker:
        assert {partition.partition for partition in broker.latest().offsets} == {0, 2}
    with (
        broker_offsets(topics, assign=f'{{"{name}": [2, 3]}}') as broker,
        pytest.raises(UnknownTopicError, match=f"{name}-3: there is no such partition"),
    ):
        broker.resolve(LogBoundary.EARLIEST, is_start=True)


def test_a_missing_topic_is_an_error_at_the_start(topics: Topics, name: str) -> None:
    """E5: the lookup does not create it."""
    sleep = FakeSleep()
    options = {"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "50"}
    with broker_offsets(topics, sleep, subscribe=name, **options) as broker:
        with pytest.raises(UnknownTopicError, match=f"{name}: there is no such topic"):
            broker.resolve(LogBoundary.EARLIEST, is_start=True)
        assert sleep.waits == [0.05] * 3
        assert broker.current_partitions().partitions == frozenset()
        assert broker.latest() == SourceOffsets({})


def test_committed_records_end_at_the_last_stable_offset(topics: Topics, name: str) -> None:
    """P4"""
    topics.create(name)
    topics.in_transaction(name, 0, 2)
    with Producer(
        bootstrap_servers=topics.bootstrap_servers, transactional_id=f"{name}-open"
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open", partition=0).result(30)
        with broker_offsets(topics, subscribe=name) as broker:
            assert broker.latest().offsets == of(name, 4)
        committed = {"kafka.isolation.level": "read_committed"}
        with broker_offsets(topics, None, subscribe=name, **committed) as broker:
            assert broker.latest().offsets == of(name, 3)
            producer.abort_transaction()
            assert broker.latest().offsets == of(name, 5)


def test_end_offsets_that_decrease_are_read_again(
    topics: Topics, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(name)
    topics.fill(name, {0: 5})
    sleep = FakeSleep()
    with broker_offsets(topics, sleep, subscribe=name) as broker:
        latest_offsets = broker.latest()
        list_offsets = Admin.list_offsets
        stale = [3, 4]

        def respond(admin: Admin, *args: object, **options: object) -> object:
            result = list_offsets(admin, *args, **options)  # type: ignore[arg-type]
            if stale:
                end = stale.pop(0)
                return {tp: listed._replace(offset=end) for tp, listed in result.items()}
            return result

        monkeypatch.setattr(Admin, "list_offsets", respond)
        assert broker.latest(latest_offsets) == latest_offsets
        assert sleep.waits == [1.0, 1.0]
        larger_offsets = SourceOffsets(of(name, 9), latest_offsets.topic_ids)
        assert broker.latest(larger_offsets) == latest_offsets, "the smaller offsets are confirmed"
        assert len(sleep.waits) == 4
        offsets_of_another_topic = SourceOffsets(of(name, 9), {name: to_text(uuid.uuid4())})
        assert broker.latest(offsets_of_another_topic) == latest_offsets
        assert len(sleep.waits) == 4, "another topic may have fewer records"


def test_an_unreachable_broker_is_an_error_after_retries(
    broker: Broker, topics: Topics, name: str
) -> None:
    topics.create(name)
    sleep = FakeSleep()
    short = {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"}
    with broker_offsets(topics, sleep, subscribe=name, **short) as source:
        source.latest()
        with broker.refused(), pytest.raises((KafkaTimeoutError, DisconnectError)):
            source.latest()
        assert sleep.waits == [1.0, 1.0]
        assert source.latest().offsets == of(name, 0)
