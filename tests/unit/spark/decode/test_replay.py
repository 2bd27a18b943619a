"""Dead letters are sent again exactly once, also after crashes (D5)."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import URL, text

from penstock.client import Admin
from penstock.spark.decode import replay_table, replay_topic
from penstock.spark.decode.dead_letters import SCHEMA
from penstock.spark.decode.replay import REPLAYED_FROM, replay
from penstock.spark.errors import FencedError, PipelineError
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.sinks.database.engines import open_engine
from penstock.testing import Broker
from tests.support.spark.dead_letter_replay import (
    KILLED,
    TABLE,
    TIME,
    dead_letters,
    put_in_table,
    put_in_topic,
    replay_and_die,
    table_pipeline,
    topic_pipeline,
)
from tests.support.spark.topic_sinks import committed, values_of


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(char if char.isalnum() else "-" for char in request.node.name)[:80]


@pytest.fixture
def origin(broker: Broker, name: str) -> str:
    topic = f"{name}-origin"
    broker.create_topic(topic, partitions=2)
    return topic


@pytest.fixture
def dead(broker: Broker, name: str) -> str:
    topic = f"{name}-dead"
    broker.create_topic(topic, partitions=2)
    return topic


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_topic, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(replay_table, "CHUNK_RECORDS", 3)


@pytest.fixture
def address(database_url: URL) -> str:
    """The address of a new, empty database of each kind."""
    return database_url.render_as_string(hide_password=False)


def values(broker: Broker, topic: str) -> list[str]:
    return values_of(broker.bootstrap_servers, topic)


def sqlite(directory: Path, name: str = "results") -> str:
    return f"sqlite:///{directory / name}.sqlite"


def replayed_rows(address: str) -> Counter[bool]:
    engine = open_engine(address, 10)
    with engine.connect() as connection:
        marks = connection.execute(text(f"SELECT replayed_at IS NOT NULL FROM {TABLE}"))
        counted = Counter(bool(mark) for mark in marks.scalars())
    engine.dispose()
    return counted


def test_records_are_sent_again_unchanged(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, [4, 7], partition=1), name)
    assert replay(spec, dry_run=True).by_reason == {"even": 1, "odd": 1}
    assert committed(broker.bootstrap_servers, origin) == []
    result = replay(spec)
    assert (result.replayed, result.by_topic) == (2, {origin: 2})
    records = committed(broker.bootstrap_servers, origin)
    assert [record.value.decode() for record in records] == [f"{origin}-1@4", f"{origin}-1@7"]
    for record, offset in zip(records, (4, 7), strict=True):
        assert record.key == b"key"
        assert record.partition == 1
        assert record.timestamp == round(TIME.timestamp() * 1000)
        from_text = f"{origin}-1@{offset}".encode()
        assert record.headers == (("trace", b"7"), ("penstock.replayed-from", from_text))
    assert replay(spec).replayed == 0
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = f"{name}.replay-dlq"
        group_offsets = admin.list_group_offsets([group])[group]
    assert sum(offset.offset for offset in group_offsets.values() if offset is not None) == 2


@pytest.mark.usefixtures("small_chunks")
def test_a_topic_is_replayed_in_chunks_up_to_a_limit(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, range(10)), name)
    assert replay(spec, limit=4).replayed == 4
    assert replay(spec, limit=4, dry_run=True).replayed == 4
    assert replay(spec, limit=0).replayed == 0
    assert replay(spec).replayed == 6
    assert sorted(values(broker, origin)) == sorted(f"{origin}-0@{at}" for at in range(10))


@pytest.mark.usefixtures("small_chunks")
def test_a_record_that_two_sinks_could_not_read_is_sent_once(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    """Also if the second dead letter is written after the first was replayed."""
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    servers = broker.bootstrap_servers
    put_in_topic(servers, dead, dead_letters(origin, range(5)), name)
    put_in_topic(servers, dead, dead_letters(origin, range(2)), name)
    assert (replay(spec).replayed, values(broker, origin).count(f"{origin}-0@1")) == (5, 1)
    put_in_topic(servers, dead, dead_letters(origin, range(6)), name)
    put_in_topic(servers, dead, dead_letters(origin, [1], topic_id="recreated"), name)
    result = replay(spec)
    assert (result.replayed, result.repeated) == (2, 5)
    assert Counter(values(broker, origin))[f"{origin}-0@1"] == 2


def test_other_records_of_a_shared_topic_are_not_touched(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    servers = broker.bootstrap_servers
    put_in_topic(servers, dead, dead_letters(origin, [1, 2]), "another")
    put_in_topic(servers, dead, dead_letters(origin, [3]), name)
    result = replay(spec)
    assert (result.replayed, result.foreign) == (1, 2)
    assert values(broker, origin) == [f"{origin}-0@3"]
    assert replay(topic_pipeline(servers, "another", dead)).replayed == 2


def test_a_recreated_dead_letter_topic_is_replayed_from_its_start(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, range(4)), name)
    assert replay(spec).replayed == 4
    broker.delete_topic(dead)
    broker.create_topic(dead, partitions=2)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, [9]), name)
    assert replay(spec).replayed == 1


def test_dead_letters_can_be_sent_to_another_topic(broker: Broker, name: str, dead: str) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(f"{name}-gone", [1]), name)
    with pytest.raises(PipelineError, match=f"sent to the topic {name}-gone.* with --to"):
        replay(spec)
    broker.create_topic(f"{name}-fixed")
    assert replay(spec, to=f"{name}-fixed").by_topic == {f"{name}-fixed": 1}
    assert values(broker, f"{name}-fixed") == [f"{name}-gone-0@1"]


def test_a_pipeline_needs_dead_letters_for_a_replay(
    broker: Broker, name: str, tmp_path: Path
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, f"{name}-none")
    with pytest.raises(PipelineError, match=f"there is no dead-letter topic {name}-none"):
        replay(spec)
    with pytest.raises(PipelineError, match="has no dead-letter topic or table"):
        replay(PipelineSpec(**{**vars(spec), "dead_letters": None}))
    with pytest.raises(PipelineError, match="no sink with a database"):
        replay(table_pipeline(broker.bootstrap_servers, name, []))
    assert replay(table_pipeline(broker.bootstrap_servers, name, [sqlite(tmp_path)])).replayed == 0


@pytest.mark.long
@pytest.mark.parametrize(("step", "time"), [("sent", 1), ("offsets", 1), ("committed", 1)])
def test_a_killed_replay_of_a_topic_is_continued(
    broker: Broker, name: str, origin: str, dead: str, step: str, time: int
) -> None:
    """After kill -9 at any step, nothing is lost or duplicated (D5, P4)."""
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, range(20)), name)
    assert replay_and_die(spec, step, time) == KILLED
    replay(spec)
    assert sorted(values(broker, origin)) == sorted(f"{origin}-0@{at}" for at in range(20))
    assert replay(spec).replayed == 0


@pytest.mark.long
@pytest.mark.parametrize("step", ["sent", "committed", "marked"])
def test_a_killed_replay_of_a_table_is_continued(
    broker: Broker, name: str, origin: str, tmp_path: Path, address: str, step: str
) -> None:
    """Also after kill -9 between the Kafka transaction and the update of the database."""
    addresses = [address, sqlite(tmp_path, "other")]
    spec = table_pipeline(broker.bootstrap_servers, name, addresses)
    put_in_table(spec, 0, dead_letters(origin, range(20)))
    put_in_table(spec, 1, dead_letters(origin, range(15, 25)))
    assert replay_and_die(spec, step, 1) == KILLED
    replay(spec)
    assert sorted(values(broker, origin)) == sorted(f"{origin}-0@{at}" for at in range(25))
    assert replay(spec).replayed == 0
    assert replayed_rows(addresses[0]) == {True: 20}
    assert replayed_rows(addresses[1]) == {True: 10}


@pytest.mark.usefixtures("small_chunks")
def test_tables_are_replayed_in_chunks_each_record_once(
    broker: Broker, name: str, origin: str, address: str
) -> None:
    spec = table_pipeline(broker.bootstrap_servers, name, [address, address])
    put_in_table(spec, 0, dead_letters(origin, range(8)))
    put_in_table(spec, 0, dead_letters(origin, [3], partition=1))
    put_in_table(spec, 1, dead_letters(origin, [1, 2]))
    look = replay(spec, dry_run=True, limit=5)
    assert (look.replayed, look.is_dry_run) == (5, True)
    assert replayed_rows(address) == {False: 11}
    assert replay(spec, limit=4).replayed == 4
    put_in_table(spec, 1, dead_letters(origin, [0, 7]))
    result = replay(spec)
    assert (result.replayed, result.repeated) == (5, 2)
    assert result.by_reason == {"even": 2, "odd": 3}
    expected = [*(f"{origin}-0@{at}" for at in range(8)), f"{origin}-1@3"]
    assert sorted(values(broker, origin)) == sorted(expected)
    records = committed(broker.bootstrap_servers, origin)
    assert {record.headers[0] for record in records} == {("trace", b"7")}
    assert {record.timestamp for record in records} == {round(TIME.timestamp() * 1000)}
    assert replayed_rows(address) == {True: 13}


def test_a_row_of_a_recreated_topic_is_another_record(
    broker: Broker, name: str, origin: str, address: str
) -> None:
    spec = table_pipeline(broker.bootstrap_servers, name, [address])
    put_in_table(spec, 0, dead_letters(origin, [1], topic_id="old"))
    assert replay(spec).replayed == 1
    put_in_table(spec, 0, dead_letters(origin, [1], topic_id="new"))
    assert replay(spec).replayed == 1


def test_a_second_replay_of_a_table_fences_the_first(
    broker: Broker, name: str, origin: str, address: str
) -> None:
    """The first has sent, but not committed: the second sends everything, the first nothing."""
    spec = table_pipeline(broker.bootstrap_servers, name, [address])
    put_in_table(spec, 0, dead_letters(origin, range(5)))
    taken_over: list[int] = []

    def step(done: str) -> None:
        if done == "sent" and not taken_over:
            taken_over.append(0)
            taken_over[0] = replay(spec).replayed

    with pytest.raises(FencedError, match="another driver has taken over"):
        replay(spec, on_step=step)
    assert taken_over == [5]
    assert len(values(broker, origin)) == 5
    assert replayed_rows(address) == {True: 5}


def test_a_table_preserves_all_bytes(broker: Broker, name: str, origin: str, address: str) -> None:
    """Null and empty keys, values and headers, all bytes, and times to the millisecond (D5)."""
    spec = table_pipeline(broker.bootstrap_servers, name, [address])
    letters = dead_letters(origin, range(3)).to_pylist()
    every = bytes(range(256))
    letters[0] |= {"key": None, "value": every, "headers": None, "reason": "it's \0 ü 😀 \\"}
    letters[1] |= {"key": b"", "value": None, "headers": [{"key": "é", "value": None}]}
    letters[2] |= {"key": every, "value": b"", "headers": [{"key": "", "value": every}]}
    letters[2]["timestamp"] = TIME.replace(microsecond=123_000)
    put_in_table(spec, 0, pa.Table.from_pylist(letters, schema=SCHEMA))
    assert replay(spec).replayed == 3
    records = committed(broker.bootstrap_servers, origin)
    headers = [[h for h in record.headers if h[0] != REPLAYED_FROM] for record in records]
    assert headers == [[], [("é", None)], [("", every)]]
    assert [(record.key, record.value) for record in records] == [
        (None, every),
        (b"", None),
        (every, b""),
    ]
    assert records[2].timestamp == round(TIME.timestamp() * 1000) + 123


def test_a_second_replay_of_a_topic_fences_the_first(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, range(5)), name)
    taken_over: list[int] = []

    def step(done: str) -> None:
        if done == "sent" and not taken_over:
            taken_over.append(0)
            taken_over[0] = replay(spec).replayed

    with pytest.raises(FencedError, match="another driver has taken over"):
        replay(spec, on_step=step)
    assert taken_over == [5]
    assert len(values(broker, origin)) == 5


def test_a_missing_partition_is_replaced_by_the_keys(
    broker: Broker, name: str, origin: str, dead: str
) -> None:
    spec = topic_pipeline(broker.bootstrap_servers, name, dead)
    put_in_topic(broker.bootstrap_servers, dead, dead_letters(origin, [1], partition=7), name)
    assert replay(spec).replayed == 1
    assert values(broker, origin) == [f"{origin}-7@1"]
