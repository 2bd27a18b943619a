"""The consumer as a member of a group: commits, listeners and their threads (C3, C4, C5)."""

import re
import threading
from collections.abc import Sequence

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.core import Offsets
from penstock.client.consumer.interceptors import ConsumerInterceptor
from penstock.client.consumer.record import OffsetAndMetadata, RebalanceListener
from penstock.client.errors import IllegalStateError, NoOffsetForPartitionError
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.own_consumer import at, consumer_of, polled, until, values
from tests.support.protocol.requests import make_topic, produce_values

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }


@pytest.fixture
def topic(client: WireClient, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions that have the values a, b and c, d."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    make_topic(client, name, 2)
    produce_values(client, name, b"a", b"b")
    produce_values(client, name, b"c", b"d", partition=1)
    return str(name)


def member(
    broker: RunningBroker, topic: str, protocol: str = "classic", **options: bool
) -> Consumer:
    return consumer_of(
        broker,
        group_id=topic,
        group_protocol=protocol,
        heartbeat_interval_ms=100,
        enable_auto_commit=options.get("commits", False),
    )


class RecordingListener(RebalanceListener):
    """Records its calls and their threads."""

    def __init__(self, consumer: Consumer | None = None) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.threads: set[int] = set()
        self.consumer = consumer

    def _record(self, event: str, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append((event, set(partitions)))
        self.threads.add(threading.get_ident())

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._record("assigned", partitions)
        if self.consumer is not None:
            for partition in partitions:
                self.consumer.seek(partition, 1)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._record("revoked", partitions)


@both_protocols
def test_records_are_read_and_committed(broker: RunningBroker, topic: str, protocol: str) -> None:
    partitions = {at(topic), at(topic, 1)}
    with member(broker, topic, protocol) as consumer:
        consumer.subscribe([topic])
        assert sorted(values(polled(consumer, 4))) == [b"a", b"b", b"c", b"d"]
        assert consumer.assignment() == partitions
        assert consumer.subscription() == {topic}
        assert consumer.committed(partitions) == {at(topic): None, at(topic, 1): None}
        consumer.commit({at(topic): OffsetAndMetadata(1, "note", 0)})
        assert consumer.committed(partitions)[at(topic)] == OffsetAndMetadata(1, "note", 0)
        consumer.commit()
        assert {offset.offset for offset in consumer.committed(partitions).values() if offset} == {
            2
        }
        assert consumer.group_metadata().group_id == topic
        assert consumer.group_metadata().generation_id > 0
    with member(broker, topic, protocol) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.assignment() == partitions, lambda: consumer.poll(0.1))
        assert consumer.position(at(topic)) == 2
        assert consumer.poll(0.2) == []


@both_protocols
def test_listeners_are_called_within_polls(
    broker: RunningBroker, client: WireClient, topic: str, protocol: str
) -> None:
    """C4: on the thread of the caller; a seek in a listener sets the position."""
    with member(broker, topic, protocol) as consumer:
        listener = RecordingListener(consumer)
        consumer.subscribe([topic], listener)
        assert sorted(values(polled(consumer, 2))) == [b"b", b"d"]
        assert listener.calls == [("assigned", {at(topic), at(topic, 1)})]
        consumer.unsubscribe()
        assert listener.calls[1:] == [("revoked", {at(topic), at(topic, 1)})]
        assert listener.threads == {threading.get_ident()}
        assert consumer.assignment() == set()
        consumer.subscribe([topic], listener)
        assert len(polled(consumer, 2)) == 2
    # A member of the consumer protocol may first be assigned no partitions.
    assert [event for event, which in listener.calls if which] == ["assigned", "revoked"] * 2


@both_protocols
def test_offsets_are_committed_before_partitions_are_revoked(
    broker: RunningBroker, topic: str, protocol: str
) -> None:
    """C4, C5: offsets are committed automatically before a partition moves to the second member."""
    with member(broker, topic, protocol, commits=True) as first:
        listener = RecordingListener()
        first.subscribe([topic], listener)
        polled(first, 4)
        with member(broker, topic, protocol, commits=True) as second:
            second.subscribe([topic])
            second_values: list[bytes] = []

            def poll_both() -> None:
                assert first.poll(0.05) == []
                second_values.extend(values(second.poll(0.05)))

            until(lambda: len(first.assignment()) == len(second.assignment()) == 1, poll_both)
            for _ in range(3):
                poll_both()
            assert second_values == []
            (moved,) = second.assignment()
            assert second.position(moved) == 2
        assert any(event == "revoked" for event, _ in listener.calls)
        until(lambda: len(first.assignment()) == 2, lambda: first.poll(0.1))


def test_automatic_commits(broker: RunningBroker, topic: str) -> None:
    """C5: automatic commits on close and every `auto_commit_interval_ms`."""
    observed: list[Offsets] = []

    class CommitRecorder(ConsumerInterceptor):
        def on_commit(self, offsets: Offsets) -> None:
            observed.append(offsets)

    with consumer_of(
        broker, group_id=topic, auto_commit_interval_ms=50, interceptors=[CommitRecorder]
    ) as consumer:
        consumer.assign([at(topic)])
        polled(consumer, 2)
        expected = {at(topic): OffsetAndMetadata(2, "", 0)}
        until(lambda: consumer.committed([at(topic)]) == expected, lambda: consumer.poll(0.02))
        consumer.seek(at(topic), 1)
    assert observed[-1] == {at(topic): OffsetAndMetadata(1)}
    with consumer_of(broker, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.assign([at(topic)])
        assert values(polled(consumer, 1)) == [b"b"]


def test_only_iterated_records_are_committed(broker: RunningBroker, topic: str) -> None:
    with member(broker, topic, commits=True) as consumer:
        consumer.assign([at(topic)])
        for record in consumer:
            assert record.value == b"a"
            consumer.commit()
            break
        assert consumer.committed([at(topic)]) == {at(topic): OffsetAndMetadata(1)}
    with member(broker, topic) as consumer:
        assert consumer.committed([at(topic)]) == {at(topic): OffsetAndMetadata(1)}


def test_async_commits_call_their_callbacks(broker: RunningBroker, topic: str) -> None:
    """C5: callbacks are called by a later poll, on its thread."""
    received: list[tuple[Offsets, KafkaError | None, int]] = []
    with member(broker, topic) as consumer:
        consumer.assign([at(topic)])
        polled(consumer, 2)
        consumer.commit_async(
            callback=lambda offsets, error: received.append((offsets, error, threading.get_ident()))
        )
        until(lambda: bool(received), lambda: consumer.poll(0.05))
        expected = {at(topic): OffsetAndMetadata(2, "", 0)}
        assert received == [(expected, None, threading.get_ident())]
        assert consumer.committed([at(topic)]) == expected
        consumer.commit_async(
            {at(topic): 1}, lambda offsets, error: received.append((offsets, error, 0))
        )
    assert received[1:] == [({at(topic): OffsetAndMetadata(1)}, None, 0)]


def test_a_pattern_matches_later_topics(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    with consumer_of(
        broker, group_id=topic, metadata_max_age_ms=100, heartbeat_interval_ms=100
    ) as consumer:
        consumer.subscribe(re.compile(f"{topic}.*"))
        polled(consumer, 4)
        make_topic(client, f"{topic}-more")
        produce_values(client, f"{topic}-more", b"late")
        assert values(polled(consumer, 1)) == [b"late"]
        assert consumer.subscription() == {topic, f"{topic}-more"}


def test_a_missing_offset_without_a_reset_policy_raises(broker: RunningBroker, topic: str) -> None:
    with consumer_of(broker, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.subscribe([topic])
        with pytest.raises(NoOffsetForPartitionError, match="no offset is committed"):
            until(lambda: False, lambda: consumer.poll(0.5))


def test_exceptions_of_listeners_are_raised(broker: RunningBroker, topic: str) -> None:
    class FailingListener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise RuntimeError("no good")

    class AsyncListener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            return None

    with member(broker, topic) as consumer:
        consumer.subscribe([topic], FailingListener())
        with pytest.raises(RuntimeError, match="no good"):
            until(lambda: False, lambda: consumer.poll(0.5))
    with member(broker, topic) as consumer:
        consumer.subscribe([topic], AsyncListener())
        with pytest.raises(IllegalStateError, match=r"aio\.Consumer"):
            until(lambda: False, lambda: consumer.poll(0.5))


def test_subscribing_to_nothing_unsubscribes(broker: RunningBroker, topic: str) -> None:
    with member(broker, topic) as consumer:
        consumer.subscribe(topic)
        polled(consumer, 4)
        consumer.subscribe([])
        assert consumer.assignment() == set()
        with pytest.raises(ValueError, match="names"):
            consumer.subscribe([" "])


def test_a_former_leader_forgets_the_topics_of_other_members(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    """The leader needs the metadata of all members' topics, the others only that of their own."""
    other_topic = f"{topic}-other"
    make_topic(client, other_topic, 1)
    with (
        consumer_of(
            broker, group_id=topic, heartbeat_interval_ms=100, max_poll_interval_ms=1_000
        ) as leader,
        member(broker, topic) as follower,
    ):
        leader.subscribe([topic])
        until(lambda: bool(leader.assignment()), lambda: leader.poll(0.1))
        follower.subscribe([other_topic])

        def poll_both() -> None:
            leader.poll(0.1)
            follower.poll(0.1)

        until(lambda: bool(follower.assignment()), poll_both)
        leader_metadata = leader._driver.network.metadata
        follower_metadata = follower._driver.network.metadata
        assert leader_metadata.topics == {topic, other_topic}
        # Without polls it leaves the group, and the other member becomes the leader.
        until(lambda: leader.group_metadata().generation_id < 0, lambda: follower.poll(0.1))
        until(lambda: follower_metadata.topics == {topic, other_topic}, poll_both)
        until(lambda: leader._driver.require_group().is_stable, poll_both)
        assert leader_metadata.topics == {topic}
