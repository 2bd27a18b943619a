"""Exactly-once into topics of a real Apache Kafka (D3, P4): the sinks of pipelines and of streams.

One broker serves them all; no Spark takes part, because rows come as Arrow tables.
"""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client import Admin, Producer
from penstock.client.admin import ConfigResource, ConfigResourceType, NewTopic
from penstock.spark.errors import FencedError, PipelineError, ProgressError
from penstock.spark.exactly_once import Decision, decide
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.ledger import PARTITIONS, TOPIC
from penstock.spark.sinks.topic.named_stream import NamedStream
from penstock.spark.sinks.topic.options import WriterOptions
from penstock.spark.sinks.topic.sink import TopicSink
from penstock.spark.sinks.topic.transactions import CheckDeadline
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.spark.topic_sinks import at, batch, client_of, dying, values_of

STEPS = ("after:begin", "after:rows", "after:ledger", "before:commit", "after:commit")


@pytest.mark.long
def test_topics_of_apache_kafka_are_exactly_once(
    kafka_parts: KafkaParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with KafkaBroker(kafka_parts, tmp_path, settings) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 1) for name in ("steps", "middle", "slow", "copy")])
        drivers_that_die(broker.bootstrap, monkeypatch)
        a_takeover_in_the_middle(broker.bootstrap)
        a_transaction_that_the_broker_ends(broker.bootstrap, monkeypatch)
        a_rebuild(broker.bootstrap)
        a_stream_with_a_name(broker.bootstrap)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert len(admin.describe_topics([TOPIC])[TOPIC].partitions) == PARTITIONS
            ledger = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
            assert admin.describe_configs([ledger])[ledger]["cleanup.policy"].value == "compact"


def new_sink(servers: str, topic: str, **options: str) -> TopicSink:
    spec = TopicSinkSpec(name="out", view="v", topic=topic, options=options)
    return TopicSink(spec, f"{topic}.out", client_of(servers))


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"value": [str(number) for number in range(start, end)]})


def texts(end: int) -> list[str]:
    return [str(number) for number in range(end)]


def drivers_that_die(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, step in enumerate(STEPS):
        this = batch(2 * number, 2 * number + 2, number)
        rows = numbers(2 * number, 2 * number + 2)
        with closing(new_sink(servers, "steps")) as sink:
            if sink.open("first") is None:
                sink.begin_at(at(0))
            with dying(sink._transactions, monkeypatch, step) as death:
                sink.write_table(rows, this)
            assert death["happened"]
        with closing(new_sink(servers, "steps")) as sink:
            stored = sink.open("second")
            assert stored is not None
            if decide(stored, this) is Decision.APPLY:
                sink.write_table(rows, this)
    assert values_of(servers, "steps") == texts(2 * len(STEPS))


def a_takeover_in_the_middle(servers: str) -> None:
    with closing(new_sink(servers, "middle")) as old, closing(new_sink(servers, "middle")) as new:
        old.open("old")
        producer = old._transactions._producer
        assert producer is not None

        def be_replaced(producer: Producer, check_deadline: CheckDeadline) -> None:
            producer.send("middle", b"never seen").result()
            assert new.open("new") is None

        with pytest.raises(FencedError):
            old._transactions.run(be_replaced, {})
        new.write_table(numbers(0, 3), batch(0, 3))
        with pytest.raises(PipelineError, match="is not open"):
            old.write_table(numbers(0, 3), batch(0, 3))
    assert values_of(servers, "middle") == texts(3)


def a_transaction_that_the_broker_ends(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"kafka.transaction.timeout.ms": "500"}
    with closing(new_sink(servers, "slow", **options)) as sink:
        sink.open("first")
        producer = sink._transactions._producer
        assert producer is not None
        commit = producer.commit_transaction

        def wait_and_commit() -> None:
            producer.flush()
            with Admin(bootstrap_servers=servers) as admin:
                name = "penstock-slow.out"
                while admin.describe_transactions([name])[name].state == "Ongoing":
                    pass
            commit()

        with monkeypatch.context() as patched:
            patched.setattr(producer, "commit_transaction", wait_and_commit)
            with pytest.raises(PipelineError, match=r"within transaction\.timeout\.ms=500"):
                sink.write_table(numbers(0, 3), batch(0, 3))
        assert sink.open("again") is None
        sink.write_table(numbers(0, 3), batch(0, 3))
    assert values_of(servers, "slow") == texts(3)


def a_rebuild(servers: str) -> None:
    with closing(new_sink(servers, "slow", onRebuild="delete")) as sink:
        assert sink.open("rebuild") == StoredProgress(at(3), "q", 0)
        sink.clear()
        assert sink.open("rebuild") is None
    assert values_of(servers, "slow") == []


def a_stream_with_a_name(servers: str) -> None:
    def commit(query_id: str, batch_id: int, value: bytes) -> Decision:
        def work(producer: Producer, check_deadline: CheckDeadline) -> None:
            producer.send("copy", value)

        options = WriterOptions.of({"kafka.bootstrap.servers": servers})
        with closing(NamedStream(options, "copy")) as stream:
            return stream.commit(query_id, batch_id, 1, work)

    assert commit("q", 0, b"0") is Decision.APPLY
    assert commit("q", 1, b"1") is Decision.APPLY
    assert commit("q", 1, b"1") is Decision.SKIP
    with pytest.raises(ProgressError, match="newCheckpoint=accept"):
        commit("other", 0, b"0")
    assert commit("q", 2, b"2") is Decision.APPLY
    assert values_of(servers, "copy") == texts(3)
