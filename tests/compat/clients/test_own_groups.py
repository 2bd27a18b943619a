"""Members of our client and of others in one group, on our broker or Apache Kafka's (C4, C5)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from penstock.client.errors import RebalanceInProgressError
from tests.support.kafka.broker import MissingPartError
from tests.support.kafka_clients.confluent_members import ConfluentGroups
from tests.support.kafka_clients.java_members import JavaGroups
from tests.support.kafka_clients.members import PolledMember, share
from tests.support.kafka_clients.own_members import OwnPolledMember
from tests.support.kafka_clients.program import java_client, java_versions

NewTopic = Callable[..., str]
OURS = {"session_timeout_ms": 2_000}
JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
KAFKA_PYTHON_ASSIGNORS = {
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
NEWEST_JAVA = java_versions()[-1]


class KafkaPythonMember(PolledMember):
    """A member with a thread that polls all the time.

    kafka-python 3.0.12 joins again if a join completes between two polls. With other members that
    are polled alternately, that continues forever.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, assignor: str) -> None:
        super().__init__()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[assignor]],
            session_timeout_ms=2_000,
            heartbeat_interval_ms=100,
        )
        self._is_leaving = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_leaving.is_set():
            self._consumer.poll(50)
            self.assignment = frozenset((p.topic, p.partition) for p in self._consumer.assignment())
        self._consumer.close()
        self.assignment = frozenset()

    def poll(self, seconds: float) -> None:
        self._is_leaving.wait(seconds)

    def leave(self) -> None:
        self._is_leaving.set()
        self._thread.join()


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGroups]:
    try:
        with JavaGroups(java_client(NEWEST_JAVA)) as client:
            yield client
    except MissingPartError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture
def members() -> Iterator[ExitStack]:
    """A stack of group members, which leave at the end of the test."""
    with ExitStack() as stack:
        yield stack


def check_shared_group(
    members: ExitStack,
    topic: str,
    ours: Callable[[], PolledMember],
    theirs: Callable[[], PolledMember],
) -> None:
    """Checks that both clients share all partitions, with either one as the group leader."""
    partitions = [(topic, partition) for partition in range(5)]
    first = members.enter_context(ours())
    share([first], partitions)
    their_member = members.enter_context(theirs())
    share([first, their_member], partitions)
    second = members.enter_context(ours())
    share([first, their_member, second], partitions)
    first.leave()
    second.leave()
    share([their_member], partitions)
    rejoined = members.enter_context(ours())
    share([their_member, rejoined], partitions)


@pytest.mark.parametrize("assignor", ["roundrobin", "cooperative-sticky"])
def test_a_group_is_shared_with_librdkafka(
    bootstrap: str, new_topic: NewTopic, members: ExitStack, assignor: str
) -> None:
    topic = new_topic(partitions=5)
    check_shared_group(
        members,
        topic,
        lambda: OwnPolledMember(
            bootstrap, topic, topic, partition_assignment_strategy=assignor, **OURS
        ),
        lambda: ConfluentGroups().member(
            bootstrap, topic, [topic], protocol="classic", partition_assignment_strategy=assignor
        ),
    )


@pytest.mark.parametrize("assignor", list(JAVA_ASSIGNORS))
def test_a_group_is_shared_with_java(
    bootstrap: str, new_topic: NewTopic, members: ExitStack, java: JavaGroups, assignor: str
) -> None:
    topic = new_topic(partitions=5)
    name = f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[assignor]}"
    check_shared_group(
        members,
        topic,
        lambda: OwnPolledMember(
            bootstrap, topic, topic, partition_assignment_strategy=assignor, **OURS
        ),
        lambda: java.member(
            bootstrap, topic, [topic], protocol="classic", partition_assignment_strategy=name
        ),
    )


@pytest.mark.parametrize("assignor", list(KAFKA_PYTHON_ASSIGNORS))
def test_a_group_is_shared_with_kafka_python(
    bootstrap: str, new_topic: NewTopic, members: ExitStack, assignor: str
) -> None:
    topic = new_topic(partitions=5)
    check_shared_group(
        members,
        topic,
        lambda: OwnPolledMember(
            bootstrap, topic, topic, partition_assignment_strategy=assignor, **OURS
        ),
        lambda: KafkaPythonMember(bootstrap, topic, topic, assignor),
    )


@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_a_consumer_protocol_group_is_shared(
    bootstrap: str, new_topic: NewTopic, members: ExitStack, java: JavaGroups, client: str
) -> None:
    topic = new_topic(partitions=5)
    groups = java if client == "java" else ConfluentGroups()
    check_shared_group(
        members,
        topic,
        lambda: OwnPolledMember(bootstrap, topic, topic, group_protocol="consumer"),
        lambda: groups.member(bootstrap, topic, [topic], protocol="consumer"),
    )


def test_a_group_migrates_between_protocols_with_members(
    bootstrap: str, new_topic: NewTopic, members: ExitStack
) -> None:
    """The group keeps its offsets while its members change the protocol."""
    topic = new_topic(partitions=5)
    partitions = [(topic, partition) for partition in range(5)]
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    old = members.enter_context(OwnPolledMember(bootstrap, topic, topic, **OURS, **strategy))
    share([old], partitions)
    old.commit({(topic, 0): 3})
    new = members.enter_context(OwnPolledMember(bootstrap, topic, topic, group_protocol="consumer"))
    share([old, new], partitions)
    assert new.committed((topic, 0), (topic, 1)) == [3, None]
    old.leave()
    share([new], partitions)


def test_a_waiting_join_does_not_block_other_requests(
    bootstrap: str, new_topic: NewTopic, members: ExitStack
) -> None:
    """A broker responds to a connection's requests in order, and to JoinGroup late."""
    topic = new_topic(partitions=4)
    partitions = [(topic, partition) for partition in range(4)]
    options = {**OURS, "partition_assignment_strategy": "cooperative-sticky"}
    first = members.enter_context(OwnPolledMember(bootstrap, topic, topic, **options))
    second = members.enter_context(OwnPolledMember(bootstrap, topic, topic, **options))
    share([first, second], partitions)
    first.subscribe(topic, "another")
    # Its join waits for the second member, which is not polling.
    first.poll(0.2)
    with pytest.raises(RebalanceInProgressError):
        first.commit({(topic, 0): 1})
    begin = time.monotonic()
    assert first.committed((topic, 0)) == [None]
    assert time.monotonic() - begin < 1.0
    share([first, second], partitions)
