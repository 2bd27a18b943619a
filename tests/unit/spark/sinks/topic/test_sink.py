"""The topic sink: every row exactly once for read_committed consumers (D3, P4)."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.client import Admin, Producer
from penstock.core.ids import TopicPartition
from penstock.spark.errors import FencedError, OptionError, PipelineError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.rows import RecordSender
from penstock.spark.sinks.topic.sink import TopicSink
from penstock.testing import Broker
from tests.support.spark.topic_sinks import at, batch, committed, dying, values_of

STEPS = [
    "before:begin",
    "after:begin",
    "before:rows",
    "after:rows",
    "before:ledger",
    "after:ledger",
    "before:commit",
    "after:commit",
]

NewSink = Callable[..., TopicSink]


@pytest.fixture
def new_sink(client: dict[str, str], topic: str) -> Iterator[NewSink]:
    """Creates sinks of one query, each for another driver."""
    sinks: list[TopicSink] = []

    def make(**options: str) -> TopicSink:
        spec = TopicSinkSpec(name="out", view="v", topic=topic, options=options)
        sinks.append(TopicSink(spec, f"{topic}.out", client))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"value": pa.array([str(number) for number in range(start, end)], pa.string())})


def texts(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def test_rows_and_progress_are_stored_together(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    sink = new_sink()
    assert sink.open("first") is None
    sink.begin_at(at(0))
    assert new_sink().open("second") == StoredProgress(at(0))

    sink = new_sink()
    sink.open("third")
    assert sink.write_table(numbers(0, 5), batch(0, 5, 7)).rows == 5
    assert new_sink().open("fourth") == StoredProgress(at(5), "q", 7)
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 5)


def test_a_batch_without_rows_moves_on_too(new_sink: NewSink, broker: Broker, topic: str) -> None:
    sink = new_sink()
    sink.open("first")
    assert sink.write_table(numbers(0, 0), batch(0, 5, 1)).rows == 0
    assert new_sink().open("second") == StoredProgress(at(5), "q", 1)
    assert values_of(broker.bootstrap_servers, topic) == []


def test_an_owner_that_was_replaced_is_refused(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    old, new = new_sink(), new_sink()
    old.open("old")
    new.open("new")
    with pytest.raises(FencedError, match=f"another driver has taken over {topic}.out"):
        old.write_table(numbers(0, 5), batch(0, 5))
    with pytest.raises(PipelineError, match="is not open"):
        old.write_table(numbers(0, 5), batch(0, 5))
    new.write_table(numbers(0, 5), batch(0, 5))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 5)


def test_an_owner_is_replaced_in_the_middle_of_its_transaction(
    new_sink: NewSink, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the log, but invisible, and the new owner writes them again."""
    old, new = new_sink(), new_sink()
    old.open("old")
    real = RecordSender.send

    def send_and_be_replaced(self: RecordSender, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        self._producer.flush()
        monkeypatch.undo()
        assert new.open("new") is None

    monkeypatch.setattr(RecordSender, "send", send_and_be_replaced)
    with pytest.raises(FencedError):
        old.write_table(numbers(0, 5), batch(0, 5))
    new.write_table(numbers(0, 5), batch(0, 5))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 5)


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_dies_at_every_step(
    new_sink: NewSink, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The batch is repeated: skipped if it was committed, else written."""
    sink = new_sink()
    sink.open("first")
    sink.write_table(numbers(0, 5), batch(0, 5, 0))
    with dying(sink._transactions, monkeypatch, step) as death:
        sink.write_table(numbers(5, 9), batch(5, 9, 1))
    assert death["happened"]

    sink = new_sink()
    stored = sink.open("second")
    assert stored is not None
    decision = decide(stored, batch(5, 9, 1))
    assert decision is (Decision.SKIP if step == "after:commit" else Decision.APPLY)
    if decision is Decision.APPLY:
        sink.write_table(numbers(5, 9), batch(5, 9, 1))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 9)


DRIVER = """
import sys
import pyarrow as pa
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.sink import TopicSink
from tests.support.spark.topic_sinks import batch

servers, topic = sys.argv[1:]
sink = TopicSink(
    TopicSinkSpec(name="out", view="v", topic=topic), topic + ".out", {"bootstrap.servers": servers}
)
sink.open("process")
producer = sink._transactions._producer
commit = producer.commit_transaction

def wait_to_be_killed():
    producer.flush()
    print("sent", flush=True)
    sys.stdin.read()

producer.commit_transaction = wait_to_be_killed
sink.write_table(pa.table({"value": ["0", "1"]}), batch(0, 2))
"""


def test_a_process_is_killed_before_its_commit(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    command = [sys.executable, "-c", DRIVER, broker.bootstrap_servers, topic]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "sent\n"
        driver.kill()
    sink = new_sink()
    assert sink.open("next") is None
    sink.write_table(numbers(0, 2), batch(0, 2))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 2)


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_crashes_and_takeovers(
    new_sink: NewSink,
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """D3: drivers start, are killed and return as zombies; each number is read once, in order."""
    rng = random.Random(seed)
    drivers: list[tuple[TopicSink, StoredProgress]] = []

    def take_over() -> None:
        sink = new_sink()
        stored = sink.open("driver")
        if stored is None:
            stored = StoredProgress(at(0))
            sink.begin_at(at(0))
        drivers.append((sink, stored))

    def run_batch(index: int, step: str | None) -> None:
        sink, stored = drivers[index]
        start = next(iter(stored.progress["clicks"].offsets.values()))
        this = batch(start, start + rng.randint(1, 4), stored.batch_id + 1)
        table = numbers(start, next(iter(this.end["clicks"].offsets.values())))
        if sink._transactions._producer is None:
            del drivers[index]
            return
        try:
            if step is None:
                sink.write_table(table, this)
                drivers[index] = sink, StoredProgress(this.end, "q", this.batch_id)
            else:
                with dying(sink._transactions, monkeypatch, step):
                    sink.write_table(table, this)
                del drivers[index]
        except FencedError:
            del drivers[index]

    take_over()
    for _ in range(40):
        action = rng.random()
        if not drivers or action < 0.15:
            take_over()
        elif action < 0.35:
            run_batch(rng.randrange(len(drivers)), rng.choice(STEPS))
        else:
            run_batch(rng.randrange(len(drivers)), None)
    take_over()
    end = next(iter(drivers[-1][1].progress["clicks"].offsets.values()))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, end)
    assert end > 0


def test_a_batch_that_cannot_be_written_leaves_no_trace(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    """E2: the message says what to do, and the sink can be used for another batch."""
    sink = new_sink()
    sink.open("first")
    table = pa.table({"value": ["small", "x" * 2_000_000]})
    with pytest.raises(PipelineError, match=r"nothing of the batch was stored.*max_request_size"):
        sink.write_table(table, batch(0, 2))
    sink.write_table(numbers(0, 2), batch(0, 2))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 2)


def test_a_batch_that_takes_too_long_is_aborted(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    """Before the broker aborts the transaction, which would look like a takeover."""
    sink = new_sink()
    sink.open("first")
    sink._transactions.timeout_s = 0.0
    with pytest.raises(
        PipelineError, match=r"could not be written within transaction\.timeout\.ms"
    ):
        sink.write_table(numbers(0, 2), batch(0, 2))
    sink._transactions.timeout_s = 60.0
    sink.write_table(numbers(0, 2), batch(0, 2))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 2)


def test_a_transaction_that_the_broker_ends_is_no_takeover(
    client: dict[str, str], broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TopicSinkSpec(
        name="out", view="v", topic=topic, options={"kafka.transaction.timeout.ms": "300"}
    )
    sink = TopicSink(spec, f"{topic}.out", client)
    try:
        sink.open("first")
        producer = sink._transactions._producer
        assert producer is not None
        commit = producer.commit_transaction

        def wait_and_commit() -> None:
            producer.flush()
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                name = f"penstock-{topic}.out"
                while str(admin.describe_transactions([name])[name].state) == "Ongoing":
                    pass
            commit()

        monkeypatch.setattr(producer, "commit_transaction", wait_and_commit)
        with pytest.raises(PipelineError, match=r"within transaction\.timeout\.ms=300") as raised:
            sink.write_table(numbers(0, 2), batch(0, 2))
        assert not isinstance(raised.value, FencedError)
    finally:
        sink.close()
    assert values_of(broker.bootstrap_servers, topic) == []


def test_a_rebuild_is_refused_unless_the_option_is_set(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    sink = new_sink()
    sink.open("first")
    sink.write_table(numbers(0, 3), batch(0, 3))
    with pytest.raises(PipelineError, match="would see every row a second time"):
        sink.clear()
    assert new_sink().open("second") == StoredProgress(at(3), "q", 0)


def test_a_rebuild_deletes_the_records(new_sink: NewSink, broker: Broker, topic: str) -> None:
    sink = new_sink(onRebuild="delete")
    sink.open("first")
    sink.write_table(numbers(0, 3), batch(0, 3))
    sink.clear()
    assert new_sink().open("second") is None
    assert values_of(broker.bootstrap_servers, topic) == []


def test_a_rebuild_that_was_interrupted_is_finished(
    new_sink: NewSink, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = new_sink(onRebuild="delete")
    sink.open("first")
    sink.write_table(numbers(0, 3), batch(0, 3))
    monkeypatch.setattr(sink, "_delete_records", lambda ends: None)
    sink.clear()
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 3)
    assert new_sink().open("second") is None
    assert values_of(broker.bootstrap_servers, topic) == []
    assert new_sink().open("third") is None


def test_a_rebuild_may_keep_the_records(new_sink: NewSink, broker: Broker, topic: str) -> None:
    sink = new_sink(onRebuild="keep")
    sink.open("first")
    sink.write_table(numbers(0, 3), batch(0, 3))
    sink.clear()
    assert new_sink().open("second") is None
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 3)


def test_the_error_of_a_compacted_topic_names_the_remedy(
    client: dict[str, str], broker: Broker
) -> None:
    broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    spec = TopicSinkSpec(name="o", view="v", topic="compacted", options={"onRebuild": "delete"})
    sink = TopicSink(spec, "compacted.o", client)
    try:
        sink.open("first")
        sink.write_table(pa.table({"key": ["k"], "value": ["1"]}), batch(0, 3))
        with pytest.raises(PipelineError, match=r"[Ss]et onRebuild to `keep`"):
            sink.clear()
        with pytest.raises(PipelineError, match=r"[Ss]et onRebuild to `keep`"):
            sink.open("second")
    finally:
        sink.close()
    with closing(
        TopicSink(replace(spec, options={"onRebuild": "keep"}), "compacted.o", client)
    ) as sink:
        assert sink.open("third") is None
        sink.begin_at(at(0))
        assert sink.open("fourth") == StoredProgress(at(0))


def test_columns_say_topic_partition_and_headers(client: dict[str, str], broker: Broker) -> None:
    broker.create_topic("columns-a", 3)
    broker.create_topic("columns-b", 3)
    sink = TopicSink(TopicSinkSpec(name="o", view="v"), "columns.o", client)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": ["k", None],
            "value": ["1", "2"],
            "topic": ["columns-a", "columns-b"],
            "partition": pa.array([2, 1], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None], kind),
        }
    )
    try:
        sink.open("first")
        sink.write_table(table, batch(0, 2))
    finally:
        sink.close()
    (first,) = committed(broker.bootstrap_servers, "columns-a")
    assert (first.partition, first.key, first.value) == (2, b"k", b"1")
    assert list(first.headers) == [("h", b"x")]
    (second,) = committed(broker.bootstrap_servers, "columns-b")
    assert (second.partition, second.key, second.value) == (1, None, b"2")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rebuild": "keep"}, "there is no option rebuild"),
        ({"onRebuild": "all"}, "onRebuild=all: it is one of refuse, delete, keep"),
        ({"kafka.transactional.id": "x"}, "'transactional.id' is not supported"),
        ({"kafka.transaction.timeout.ms": "1 min"}, "it is a number of milliseconds"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, str], problem: str) -> None:
    spec = TopicSinkSpec(name="o", view="v", topic="t", options=options)
    with pytest.raises(OptionError, match=problem):
        TopicSink(spec, "p.o", {})


def test_a_broker_restarts_between_two_batches(
    new_sink: NewSink, broker: Broker, topic: str
) -> None:
    sink = new_sink()
    sink.open("first")
    sink.write_table(numbers(0, 3), batch(0, 3, 0))
    broker.kill()
    broker.start()
    sink.write_table(numbers(3, 6), batch(3, 6, 1))
    assert values_of(broker.bootstrap_servers, topic) == texts(0, 6)


def test_other_producers_are_not_disturbed(new_sink: NewSink, broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        where = producer.send(topic, b"other").result()
        sink = new_sink()
        sink.open("first")
        sink.write_table(numbers(0, 1), batch(0, 1))
    assert TopicPartition(where.topic, where.partition) == TopicPartition(topic, 0)
    assert values_of(broker.bootstrap_servers, topic) == ["other", "0"]
