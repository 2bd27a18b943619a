"""Dead letters in a topic: each once, with its origin and the reason (D5)."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.core.ids import TopicPartition
from penstock.spark.decode.dead_letters import SCHEMA, from_record
from penstock.spark.errors import FencedError, OptionError
from penstock.spark.progress import Batch, SourceOffsets, StoredProgress
from penstock.spark.sinks.topic.dead_letters import (
    DeadLetterTopic,
    Origin,
    advance_entry,
    drop_written,
)
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.ledger import LedgerEntry
from penstock.spark.sinks.topic.sink import TopicSink
from penstock.testing import Broker
from tests.support.spark.topic_sinks import SOURCE, batch, committed, dying, values_of


@pytest.fixture
def new_topic(client: dict[str, str], topic: str) -> Iterator[Callable[[], DeadLetterTopic]]:
    topics: list[DeadLetterTopic] = []

    def make() -> DeadLetterTopic:
        topics.append(DeadLetterTopic(topic, f"{topic}.out", client))
        topics[-1].open("owner")
        return topics[-1]

    yield make
    for dead_letter_topic in topics:
        dead_letter_topic.close()


def letters(*offsets: int, topic_id: str = "id-1", partition: int = 0) -> pa.Table:
    rows = [
        {
            "source": SOURCE,
            "topic": "in",
            "topic_id": topic_id,
            "partition": partition,
            "offset": offset,
            "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
            "key": b"k",
            "value": str(offset).encode(),
            "headers": [{"key": "own", "value": b"h"}],
            "reason": "not JSON",
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_a_dead_letter_has_its_origin(
    new_topic: Callable[[], DeadLetterTopic], broker: Broker, topic: str
) -> None:
    assert new_topic().write(letters(7), batch(0, 9)) == 1
    (record,) = committed(broker.bootstrap_servers, topic)
    letter = from_record(record)
    assert letter is not None
    assert (letter.pipeline, letter.source, letter.reason) == (topic, SOURCE, "not JSON")
    assert letter.origin == ("in", "id-1", 0, 7)
    assert (letter.key, letter.value, letter.headers) == (b"k", b"7", [("own", b"h")])


def test_written_dead_letters_are_skipped(
    new_topic: Callable[[], DeadLetterTopic], broker: Broker, topic: str
) -> None:
    """A batch is repeated, or all records are read again in other batches, after a rebuild."""
    assert new_topic().write(letters(1, 3), batch(0, 5)) == 2
    second = new_topic()
    assert second.write(letters(1, 3), batch(0, 5)) == 0
    assert second.write(letters(1, 3, 6), batch(0, 8)) == 1
    assert second.write(letters(), batch(8, 9)) == 0
    assert second.write(letters(8), batch(8, 9)) == 1
    assert values_of(broker.bootstrap_servers, topic) == ["1", "3", "6", "8"]


@pytest.mark.parametrize("step", ["after:rows", "before:commit", "after:commit"])
def test_a_driver_dies_between_dead_letters_and_results(
    new_topic: Callable[[], DeadLetterTopic],
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    first = new_topic()
    with dying(first._transactions, monkeypatch, step) as death:
        first.write(letters(1, 3), batch(0, 5))
    assert death["happened"]
    assert new_topic().write(letters(1, 3), batch(0, 5)) == (0 if step == "after:commit" else 2)
    assert values_of(broker.bootstrap_servers, topic) == ["1", "3"]


def test_an_owner_that_was_replaced_is_refused(
    new_topic: Callable[[], DeadLetterTopic], broker: Broker, topic: str
) -> None:
    old = new_topic()
    new_topic()
    with pytest.raises(FencedError):
        old.write(letters(1), batch(0, 5))
    assert values_of(broker.bootstrap_servers, topic) == []


def all_written() -> set[Origin]:
    return {(SOURCE, "in", "id-1", part, offset) for part in range(2) for offset in range(20)}


def not_read() -> set[Origin]:
    raise AssertionError("the topic need not be read")


def test_offsets_apply_to_their_own_topic_and_partition() -> None:
    progress = {SOURCE: SourceOffsets({TopicPartition("in", 0): 5}, {"in": "id-1"})}
    entry = LedgerEntry(StoredProgress(progress))
    assert drop_written(letters(4, 5), entry, all_written)["offset"].to_pylist() == [5]
    assert drop_written(letters(4, 5, partition=1), entry, not_read).num_rows == 2
    assert drop_written(letters(4, 5, topic_id="id-2"), entry, all_written).num_rows == 2
    assert drop_written(letters(4, 5), LedgerEntry(None), not_read).num_rows == 2
    assert drop_written(letters(4, 5), LedgerEntry(StoredProgress({})), not_read).num_rows == 2


def test_stored_offsets_never_decrease() -> None:
    """After a rebuild, batches end before offsets whose dead letters are in the topic."""

    def reading(first: int, second: int, topic_id: str = "id-1") -> Batch:
        offsets = {TopicPartition("in", 0): first, TopicPartition("in", 1): second}
        return Batch("q", 0, {}, {SOURCE: SourceOffsets(offsets, {"in": topic_id}, SOURCE)})

    entry = advance_entry(None, reading(10, 10), "me", 1)
    entry = advance_entry(entry, reading(12, 3), "me", 1)
    assert entry.stored is not None
    assert list(entry.stored.progress[SOURCE].offsets.values()) == [12, 10]
    second = drop_written(letters(9, 10, partition=1), entry, all_written)
    assert second["offset"].to_pylist() == [10]
    entry = advance_entry(entry, reading(2, 3, "id-2"), "me", 1)
    assert entry.stored is not None
    assert entry.stored.progress[SOURCE] == reading(2, 3, "id-2").end[SOURCE]


def test_a_rebuild_writes_no_dead_letter_twice(
    client: dict[str, str], broker: Broker, topic: str
) -> None:
    broker.create_topic("letters-once")
    spec = TopicSinkSpec(name="o", view="v", topic=topic, options={"onRebuild": "delete"})
    rows = pa.table({"value": ["a"]})
    with closing(TopicSink(spec, f"{topic}.o", client, dead_letter_topic="letters-once")) as sink:
        sink.open("first")
        sink.write_table(rows, batch(0, 10), letters(3, 7))
        sink.clear()
        assert sink.open("again") is None
        assert sink.write_table(rows, batch(0, 5), letters(3)).dead_letters == 0
        assert sink.write_table(rows, batch(5, 12), letters(7, 11)).dead_letters == 1
    assert values_of(broker.bootstrap_servers, "letters-once") == ["3", "7", "11"]
    assert values_of(broker.bootstrap_servers, topic) == ["a", "a"]


def test_another_schema_results_in_other_dead_letters(
    new_topic: Callable[[], DeadLetterTopic], broker: Broker, topic: str
) -> None:
    """D5: after a rebuild with another schema, new dead letters must not get lost."""
    new_topic().write(letters(1, 3), batch(0, 10))
    second = new_topic()
    assert second.write(letters(1, 2), batch(0, 3)) == 1
    assert second.write(letters(3, 4), batch(3, 5)) == 1
    assert new_topic().write(letters(1, 2, 3, 4, 5), batch(0, 10)) == 1
    assert values_of(broker.bootstrap_servers, topic) == ["1", "3", "2", "4", "5"]


def test_a_dead_letter_with_an_invalid_time_is_written_without_it(
    new_topic: Callable[[], DeadLetterTopic], broker: Broker, topic: str
) -> None:
    """A producer that sends microseconds as milliseconds must not stop the pipeline."""
    times = pa.array([1_700_000_000_000_000_000], pa.timestamp("us", "UTC"))
    letter = letters(7)
    number = letter.schema.get_field_index("timestamp")
    assert new_topic().write(letter.set_column(number, "timestamp", times), batch(0, 9)) == 1
    (record,) = committed(broker.bootstrap_servers, topic)
    result = from_record(record)
    assert result is not None
    assert (result.timestamp, result.origin) == (None, ("in", "id-1", 0, 7))


def test_a_topic_sink_stores_dead_letters_with_its_rows(
    client: dict[str, str], broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction for rows, dead letters and progress."""
    broker.create_topic("letters-of-sink")
    spec = TopicSinkSpec(name="out", view="v", topic=topic)
    rows = pa.table({"value": ["a"]})

    def new_sink() -> TopicSink:
        return TopicSink(spec, f"{topic}.out", client, dead_letter_topic="letters-of-sink")

    with closing(new_sink()) as sink:
        assert sink.takes_dead_letters
        sink.open("first")
        with dying(sink._transactions, monkeypatch, "before:commit"):
            sink.write_table(rows, batch(0, 5), letters(1, 3))
    assert values_of(broker.bootstrap_servers, "letters-of-sink") == []
    with closing(new_sink()) as sink:
        assert sink.open("second") is None
        assert sink.write_table(rows, batch(0, 5), letters(1, 3)).dead_letters == 2
        assert sink.write_table(rows, batch(5, 8, 1), letters(3, 6)).dead_letters == 1
    assert values_of(broker.bootstrap_servers, topic) == ["a", "a"]
    assert values_of(broker.bootstrap_servers, "letters-of-sink") == ["1", "3", "6"]


def test_a_topic_sink_without_a_dead_letter_topic_is_an_error(client: dict[str, str]) -> None:
    with closing(TopicSink(TopicSinkSpec(name="o", view="v", topic="t"), "p.o", client)) as sink:
        assert not sink.takes_dead_letters
        with pytest.raises(OptionError, match="no dead-letter topic"):
            sink.write_table(pa.table({"value": ["a"]}), batch(0, 5), letters(1))
