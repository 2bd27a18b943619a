"""`consumer.transaction`: consumers with offsets in a database (C6)."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import confluent_kafka
import pytest
from sqlalchemy import Column, Engine, Integer, LargeBinary, MetaData, Table, insert, select
from sqlalchemy.ext.asyncio import create_async_engine

from penstock.client.aio.consumer import Consumer as AioConsumer
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import ConfigError, IllegalStateError, NoOffsetForPartitionError
from penstock.client.external_offsets.store import OffsetStore
from penstock.client.external_offsets.transaction import ExternalOffsets
from penstock.client.settings import ConsumerOptions
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_consumer import at, consumer_of, polled, until, values
from tests.support.protocol.requests import make_topic, produce_values
from tests.support.spark.databases import engine_for, sqlite_url

RESULTS = Table(
    "results",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("value", LargeBinary),
)
ALL_VALUES = [b"%d" % number for number in range(8)]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "50",
    }


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_for(sqlite_url(tmp_path)) as engine:
        RESULTS.create(engine)
        yield engine


@pytest.fixture
def topic(client: WireClient, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions of four records, with the values 0 to 7."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    make_topic(client, name, 2)
    for partition in range(2):
        produce_values(
            client, name, *ALL_VALUES[partition * 4 : partition * 4 + 4], partition=partition
        )
    return name


def in_group(broker: RunningBroker, topic: str, protocol: str = "classic") -> Consumer:
    options = ConsumerOptions(
        group_id=f"group of {topic}", enable_auto_commit=False, group_protocol=protocol
    )
    if protocol == "classic":
        options["heartbeat_interval_ms"] = 50
    return consumer_of(broker, **options)


def consume(
    consumer: Consumer, engine: Engine, max_records: int = 3, name: str | None = None
) -> int:
    """Runs one iteration of the loop that a user writes."""
    with consumer.transaction(engine, group_id=name) as tx:
        records = consumer.poll(0.2, max_records)
        for record in records:
            tx.connection.execute(insert(RESULTS), {"value": record.value})
    return len(records)


def results(engine: Engine) -> list[bytes]:
    with engine.connect() as connection:
        return list(connection.scalars(select(RESULTS.c.value).order_by(RESULTS.c.id)))


def stored(engine: Engine, group: str) -> dict[TopicPartition, int]:
    with engine.connect() as connection:
        matches = OffsetStore().read(connection, group)
    return {partition: item.position.offset for partition, item in matches.items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_run_one_after_the_other(
    broker: RunningBroker, engine: Engine, topic: str, protocol: str
) -> None:
    """C6: consumers seek on a rebalance, and every record is processed once."""
    with in_group(broker, topic, protocol) as consumer:
        consumer.subscribe([topic])
        until(lambda: len(results(engine)) >= 3, lambda: consume(consumer, engine))
    with in_group(broker, topic, protocol) as consumer:
        consumer.subscribe([topic])
        until(lambda: len(results(engine)) >= 8, lambda: consume(consumer, engine))
        assert consume(consumer, engine) == 0
    assert sorted(results(engine)) == ALL_VALUES
    assert stored(engine, f"group of {topic}") == {at(topic): 4, at(topic, 1): 4}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_run_concurrently(
    broker: RunningBroker, engine: Engine, client: WireClient, topic: str, protocol: str
) -> None:
    """C6: partitions move between the members while records arrive."""
    expected = list(ALL_VALUES)
    with in_group(broker, topic, protocol) as first:
        first.subscribe([topic])
        until(lambda: len(first.assignment()) == 2, lambda: consume(first, engine, 1))
        with in_group(broker, topic, protocol) as second:
            second.subscribe([topic])
            until(
                lambda: len(first.assignment()) == len(second.assignment()) == 1,
                lambda: (consume(first, engine, 1), consume(second, engine, 1)),
            )
            for partition in range(2):
                produce_values(client, topic, b"more", partition=partition)
                expected.append(b"more")
            until(
                lambda: len(results(engine)) >= len(expected),
                lambda: (consume(first, engine, 1), consume(second, engine, 1)),
            )
        produce_values(client, topic, b"last")
        expected.append(b"last")
        until(lambda: len(results(engine)) >= len(expected), lambda: consume(first, engine, 1))
    assert sorted(results(engine)) == sorted(expected)


def test_records_of_a_failed_block_are_read_again(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        assert consume(consumer, engine, 1, "loader") == 1
        observed: list[bytes] = []

        def fail() -> None:
            with consumer.transaction(engine) as tx:
                observed.extend(values(polled(consumer, 2, at_once=2)))
                tx.connection.execute(insert(RESULTS), {"value": b"undone"})
                raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                fail()
        assert observed == [b"1", b"2", b"1", b"2"]
        assert consumer.position(at(topic)) == 1
        until(lambda: len(results(engine)) >= 4, lambda: consume(consumer, engine))
    assert results(engine) == ALL_VALUES[:4]
    assert stored(engine, "loader") == {at(topic): 4}


def test_manually_reassigned_partitions_are_sought(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    """A partition that is assigned again is sought again."""
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        until(lambda: len(results(engine)) >= 2, lambda: consume(consumer, engine, 1, "loader"))
        consumer.assign([at(topic, 1)])
        consumer.assign([at(topic)])
        until(lambda: len(results(engine)) >= 3, lambda: consume(consumer, engine, 1))
        consumer.unsubscribe()
        consumer.assign([at(topic)])
        until(lambda: len(results(engine)) >= 4, lambda: consume(consumer, engine, 1))
    assert results(engine) == ALL_VALUES[:4]


def test_only_iterated_records_are_saved(broker: RunningBroker, engine: Engine, topic: str) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        with consumer.transaction(engine, group_id="loader"):
            assert values(list(islice(consumer, 3))) == ALL_VALUES[:3]
        assert stored(engine, "loader") == {at(topic): 3}
        with consumer.transaction(engine):
            assert values(consumer.poll(1.0)) == [b"3"]
        assert stored(engine, "loader") == {at(topic): 4}


def test_positions_of_arrow_batches_are_saved(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        with consumer.transaction(engine, group_id="loader"):
            batch = consumer.poll_arrow(5.0)
            rows = batch.num_rows
        assert stored(engine, "loader") == {at(topic): rows}


def test_offsets_are_committed_to_the_group_but_not_read_from_it(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    """The position comes from the database only, or else from `auto_offset_reset`."""
    partitions = [at(topic), at(topic, 1)]
    with in_group(broker, topic) as consumer:
        consumer.assign(partitions)
        consumer.commit({at(topic): 3})
        until(lambda: len(results(engine)) >= 8, lambda: consume(consumer, engine))
        until(
            lambda: (
                consumer.committed(partitions)
                == {partition: OffsetAndMetadata(4, "", 0) for partition in partitions}
            ),
            lambda: consumer.poll(0.02),
        )
    assert sorted(results(engine)) == ALL_VALUES


def test_commits_to_the_group_can_be_disabled(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    with in_group(broker, topic) as consumer:
        consumer.assign([at(topic)])
        with consumer.transaction(engine, commit_to_group=False):
            polled(consumer, 4)
        consumer.poll(0.05)
        assert consumer.committed([at(topic)]) == {at(topic): None}


def test_manually_stored_offsets_are_used(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    store = OffsetStore("somewhere_else")
    store.create_table(engine)
    with engine.begin() as connection:
        store.put(connection, "loader", {at(topic): OffsetAndMetadata(3)})
        store.put(connection, "loader", {at(topic, 1): OffsetAndMetadata(4)})
    options = ConsumerOptions(group_id="g", enable_auto_commit=False, auto_offset_reset="none")
    with consumer_of(broker, **options) as consumer:
        consumer.subscribe([topic])
        with consumer.transaction(engine, store=store, group_id="loader"):
            assert values(polled(consumer, 1)) == [b"3"]


def test_a_missing_offset_without_a_reset_policy_raises(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([at(topic)])
        with pytest.raises(NoOffsetForPartitionError, match=r"OffsetStore\.put"):
            consume(consumer, engine, 1, "loader")


def test_invalid_uses_raise_errors(
    broker: RunningBroker, engine: Engine, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        consumer_of(broker, group_id="g") as consumer,
        pytest.raises(ConfigError, match="enable_auto_commit must be False"),
    ):
        consumer.transaction(engine)
    with consumer_of(broker) as consumer:
        with pytest.raises(ConfigError, match="has no group_id"):
            consumer.transaction(engine)
        consumer.assign([at(topic)])
        consume(consumer, engine, 1, "loader")
        with (
            engine_for(sqlite_url(tmp_path_factory.mktemp("other"))) as second,
            pytest.raises(ConfigError, match="pass the same engine"),
        ):
            consumer.transaction(second)
        with pytest.raises(ConfigError, match="'loader'"):
            consumer.transaction(engine, group_id="another")
    with consumer_of(broker) as consumer:
        consumer.assign([at(topic)])
        polled(consumer, 4)
        with pytest.raises(IllegalStateError, match="before the first poll"):
            consumer.transaction(engine, group_id="late")


def test_the_asyncio_consumer_with_an_async_engine(
    broker: RunningBroker, engine: Engine, topic: str, tmp_path: Path
) -> None:
    """C6: with AsyncEngine."""

    async def scenario() -> None:
        async_engine = create_async_engine(sqlite_url(tmp_path).set(drivername="sqlite+aiosqlite"))
        for _ in range(2):
            async with AioConsumer(
                bootstrap_servers=broker.bootstrap_servers,
                group_id=f"group of {topic}",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer:
                consumer.subscribe([topic])
                count = 0
                while count < 4:
                    async with consumer.transaction(async_engine) as tx:
                        for record in await consumer.poll(0.2, 2):
                            connection = await tx.connection()
                            await connection.execute(insert(RESULTS), {"value": record.value})
                            count += 1
        await async_engine.dispose()

    asyncio.run(scenario())
    assert sorted(results(engine)) == ALL_VALUES


class ConfluentReader:
    """The consumer interface of ExternalOffsets, with confluent-kafka."""

    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer
        self._consumed: dict[TopicPartition, OffsetAndMetadata] = {}

    def poll(self, count: int) -> list[confluent_kafka.Message]:
        messages = self._consumer.consume(count, 0.5)
        for message in messages:
            partition = TopicPartition(message.topic() or "", message.partition() or 0)
            self._consumed[partition] = OffsetAndMetadata((message.offset() or 0) + 1)
        return messages

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(item.topic, item.partition) for item in self._consumer.assignment()]

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._consumed

    def start(self, partition: TopicPartition) -> OffsetAndMetadata:
        first, _ = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition))
        return OffsetAndMetadata(first)

    def seek(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        self._consumed.pop(partition, None)
        self._consumer.incremental_unassign([confluent_kafka.TopicPartition(*partition)])
        self._consumer.incremental_assign(
            [confluent_kafka.TopicPartition(*partition, position.offset)]
        )


def test_external_offsets_with_confluent_kafka(
    broker: RunningBroker, engine: Engine, topic: str
) -> None:
    """ExternalOffsets works with any consumer that has positions and can seek."""
    for _ in range(2):
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"}
        )
        consumer.incremental_assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        reader = ConfluentReader(consumer)
        offsets = ExternalOffsets(reader, engine, "loader")
        previous = len(results(engine))
        while len(results(engine)) < previous + 2:
            with offsets.transaction() as tx:
                for message in reader.poll(2):
                    tx.connection.execute(insert(RESULTS), {"value": message.value()})
        consumer.close()
    assert results(engine) == ALL_VALUES[:4]
    assert stored(engine, "loader") == {at(topic): 4}
