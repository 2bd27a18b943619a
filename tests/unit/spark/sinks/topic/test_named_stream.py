"""`writeStream` with a name: the batches that the driver's commit writes (D3)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client import Producer
from penstock.spark.errors import FencedError, ProgressError
from penstock.spark.exactly_once import Decision
from penstock.spark.sinks.topic.named_stream import NamedStream, fingerprint
from penstock.spark.sinks.topic.options import WriterOptions
from penstock.spark.sinks.topic.transactions import CheckDeadline, Work
from penstock.testing import Broker
from tests.support.spark.topic_sinks import dying, values_of

Commit = Callable[..., Decision]


@pytest.fixture
def new_stream(broker: Broker, topic: str) -> Iterator[Callable[..., NamedStream]]:
    """Creates a stream for each commit, like Spark."""
    streams: list[NamedStream] = []

    def make(**options: str) -> NamedStream:
        stream_options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
        streams.append(NamedStream(WriterOptions.of(stream_options), topic))
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


@pytest.fixture
def commit(new_stream: Callable[..., NamedStream], topic: str) -> Commit:
    def run(query_id: str, batch_id: int, *values: str, **options: str) -> Decision:
        stream = new_stream(**options)
        return stream.commit(query_id, batch_id, len(values), sending(topic, *values))

    return run


def sending(topic: str, *values: str) -> Work:
    def work(producer: Producer, check_deadline: CheckDeadline) -> None:
        producer.send_many(topic, [value.encode() for value in values])
        check_deadline()

    return work


def test_a_batch_that_is_run_again_is_skipped(commit: Commit, broker: Broker, topic: str) -> None:
    """The driver was killed after Kafka's commit and before Spark's."""
    assert commit("q", 0, "a") is Decision.APPLY
    assert commit("q", 1, "b", "c") is Decision.APPLY
    assert commit("q", 1, "b", "c") is Decision.SKIP
    assert commit("q", 2, "d") is Decision.APPLY
    assert values_of(broker.bootstrap_servers, topic) == ["a", "b", "c", "d"]


def test_batches_without_rows_leave_gaps(commit: Commit, broker: Broker, topic: str) -> None:
    assert commit("q", 3, "a") is Decision.APPLY
    assert commit("q", 9, "b") is Decision.APPLY
    assert values_of(broker.bootstrap_servers, topic) == ["a", "b"]


@pytest.mark.parametrize(
    ("query_id", "batch_id", "problem"),
    [
        (
            "other",
            0,
            "written up to batch 1 by the query q, .* of another one .* would be duplicated",
        ),
        ("other", 1, "would be duplicated"),
        ("q", 0, "the checkpoint is an older copy"),
    ],
)
def test_another_checkpoint_is_refused_unless_accepted(
    commit: Commit, broker: Broker, topic: str, query_id: str, batch_id: int, problem: str
) -> None:
    """Its batch numbers are not comparable; the error says which rows would be duplicated."""
    commit("q", 0, "a")
    commit("q", 1, "b")
    with pytest.raises(ProgressError, match=f"(?s){problem}.*newCheckpoint=accept"):
        commit(query_id, batch_id, "x")
    assert values_of(broker.bootstrap_servers, topic) == ["a", "b"]
    assert commit(query_id, batch_id, "x", newCheckpoint="accept") is Decision.APPLY
    assert commit(query_id, batch_id, "x") is Decision.SKIP
    assert values_of(broker.bootstrap_servers, topic) == ["a", "b", "x"]


def test_a_repeated_batch_with_other_offsets_is_refused(commit: Commit, tmp_path: Path) -> None:
    """The checkpoint lost its last file, and batch 0 reads more now."""
    log = tmp_path / "offsets" / "0"
    log.parent.mkdir()
    log.write_text('v1\n{}\n{"in":{"0":5}}')
    assert commit("q", 0, "a", checkpointLocation=str(tmp_path)) is Decision.APPLY
    assert commit("q", 0, "a", checkpointLocation=tmp_path.as_uri()) is Decision.SKIP
    assert commit("q", 0, "a") is Decision.SKIP
    log.write_text('v1\n{}\n{"in":{"0":7}}')
    with pytest.raises(ProgressError, match="batch 0 was written before, with other offsets"):
        commit("q", 0, "a", "b", checkpointLocation=str(tmp_path))


def test_unreadable_checkpoints_have_no_fingerprint(tmp_path: Path) -> None:
    assert fingerprint(None, 0) == ""
    assert fingerprint("hdfs://name/checkpoint", 0) == ""
    assert fingerprint(str(tmp_path), 0) == ""


@pytest.mark.parametrize("step", ["after:begin", "after:rows", "before:commit", "after:commit"])
def test_a_driver_dies_in_its_commit(
    new_stream: Callable[..., NamedStream],
    commit: Commit,
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    commit("q", 0, "a")
    stream = new_stream()
    with dying(stream._transactions, monkeypatch, step) as death:
        stream.commit("q", 1, 1, sending(topic, "b"))
    assert death["happened"]
    expected = Decision.SKIP if step == "after:commit" else Decision.APPLY
    assert commit("q", 1, "b") is expected
    assert values_of(broker.bootstrap_servers, topic) == ["a", "b"]


def test_the_second_of_two_drivers_of_one_checkpoint_fences_the_first(
    new_stream: Callable[..., NamedStream], commit: Commit, broker: Broker, topic: str
) -> None:
    """During the transaction of the first driver: only one of them writes."""

    def commit_elsewhere(producer: Producer, check_deadline: CheckDeadline) -> None:
        sending(topic, "a")(producer, check_deadline)
        producer.flush()
        assert commit("q", 0, "a") is Decision.APPLY

    with pytest.raises(FencedError, match="another driver has taken over sink:"):
        new_stream().commit("q", 0, 1, commit_elsewhere)
    assert values_of(broker.bootstrap_servers, topic) == ["a"]
