"""P3, P5, C1, C2, E7: our clients on three brokers that crash, restart and move leaders.

Every test runs with Kafka's brokers and with ours, except that of fetches from a follower, which
`tests/wire/test_fetch_followers.py` has for ours.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Protocol, Self

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import ElectionType, NewTopic, PartitionDescription
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.record import ConsumerRecord
from penstock.client.errors import KafkaTimeoutError
from penstock.client.producer.future import RecordFuture
from penstock.client.producer.producer import Producer
from penstock.coordinator.partitioning import partition_for
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from tests.support.client.own_consumer import consumer_of
from tests.support.cluster.processes import ProcessCluster
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka_clients.tap import Moment, Stage, Tap

pytestmark = pytest.mark.long


WAIT_S = 60.0
PARTITIONS = 3
GROUPS_LOG, TRANSACTIONS_LOG = "__consumer_offsets", "__transaction_state"


@pytest.fixture(scope="module")
def taps() -> dict[int, Tap]:
    """The proxies by broker id; the cluster opens them."""
    return {}


class Node(Protocol):
    """A broker process."""

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Cluster(Protocol):
    """Brokers 1, 2 and 3."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def nodes(self) -> Mapping[int, Node]: ...

    def start(self) -> None: ...


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def running(
    request: pytest.FixtureRequest,
    kafka_parts: KafkaParts,
    tmp_path_factory: pytest.TempPathFactory,
    taps: dict[int, Tap],
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "penstock":
        with ProcessCluster(directory) as ours:
            yield ours
        return
    cluster = KafkaCluster(kafka_parts, directory)
    with ExitStack() as open_taps:
        for id_, listener in cluster.inside.items():
            taps[id_] = open_taps.enter_context(Tap(listener.address))
        cluster.tap({id_: tap.bootstrap for id_, tap in taps.items()})
        with cluster:
            yield cluster


@pytest.fixture(scope="module")
def admin(running: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=running.bootstrap, retry_backoff_ms=50) as admin:
        make_topic(admin, "alone")  # of the last test, which has no broker to spare
        yield admin


@pytest.fixture
def cluster(running: Cluster, admin: Admin) -> Cluster:
    """A cluster with all brokers running, each the leader of its preferred partitions."""
    running.start()
    until(lambda: is_well(admin), "every replica in sync and every leader the preferred one")
    return running


def until(ready: Callable[[], bool], what: str, step: Callable[[], object] | None = None) -> None:
    """Repeats the step until the condition holds: brokers send no notice when they are done."""
    deadline = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
        time.sleep(0.05) if step is None else step()


def partitions(admin: Admin, topic: str) -> tuple[PartitionDescription, ...]:
    """Returns None if the broker does not have the topic in its metadata yet."""
    try:
        return admin.describe_topics([topic])[topic].partitions
    except AdminError:
        return ()


def leaders(admin: Admin, topic: str) -> dict[int, int]:
    return {
        partition.partition: partition.leader
        for partition in partitions(admin, topic)
        if partition.leader is not None
    }


def in_sync(admin: Admin, topic: str) -> int:
    """The smallest number of in-sync replicas of any partition."""
    return min((len(partition.isr) for partition in partitions(admin, topic)), default=0)


def is_well(admin: Admin) -> bool:
    with suppress(AdminError):  # some replicas have not caught up
        admin.elect_leaders(ElectionType.PREFERRED)
    names = admin.list_topics(include_internal=True)
    return all(
        partition.leader == partition.replicas[0] and len(partition.isr) == len(partition.replicas)
        for name in names
        for partition in partitions(admin, name)
    )


def make_topic(admin: Admin, name: str) -> None:
    """Three partitions: broker 1 is the preferred leader of partition 0, and so on."""
    replicas = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
    admin.create_topics(
        [NewTopic(name, assignments=replicas, configs={"min.insync.replicas": "2"})]
    )
    until(lambda: in_sync(admin, name) >= 2, f"{name} everywhere")


def producer_of(cluster: Cluster, transactional_id: str | None = None) -> Producer:
    return Producer(
        bootstrap_servers=cluster.bootstrap,
        transactional_id=transactional_id,
        acks="all",
        linger_ms=1,
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
    )


def stored(cluster: Cluster, topic: str, partition: int, end: int) -> list[ConsumerRecord]:
    """Returns the stored records up to an offset, committed or not."""
    records: list[ConsumerRecord] = []
    with consumer_of(cluster.bootstrap) as reader:
        topic_partition = TopicPartition(topic, partition)
        reader.assign([topic_partition])
        until(
            lambda: reader.position(topic_partition) >= end,
            f"{topic_partition} up to {end}",
            lambda: records.extend(reader.poll(0.5)),
        )
    return records


class Traffic:
    """A producer and a group member that both run for the duration of the `with` block."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.sent: dict[int, list[RecordFuture]] = {index: [] for index in range(PARTITIONS)}
        self.seen: dict[int, list[ConsumerRecord]] = defaultdict(list)
        self._topic = topic
        self._producer = producer_of(cluster)
        self._consumer = consumer_of(
            cluster.bootstrap,
            group_id=f"readers-of-{topic}",
            auto_commit_interval_ms=200,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        self._consumer.subscribe([topic])
        self._end = threading.Event()
        self._is_read = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=item) for item in (self._send, self._read)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._threads[0].join()
        if error is None:
            self._producer.flush(WAIT_S)
            until(lambda: self._has_read(self._counts()), "the rest")
        self._is_read.set()
        self._threads[1].join()
        self._producer.close(1.0)
        self._consumer.close(1.0)
        assert not self._failures

    def flows(self) -> None:
        """Waits until newly sent records have been read from every partition."""
        counts = self._counts()
        expected_counts = {partition: count + 20 for partition, count in counts.items()}
        until(
            lambda: bool(self._failures) or self._has_read(expected_counts), f"more than {counts}"
        )
        assert not self._failures

    def _counts(self) -> dict[int, int]:
        return {partition: len(futures) for partition, futures in self.sent.items()}

    def _has_read(self, expected_counts: dict[int, int]) -> bool:
        """Compares offsets with counts, since the topic holds only the producer's records."""
        return all(
            self.seen[partition] and self.seen[partition][-1].offset + 1 >= count
            for partition, count in expected_counts.items()
        )

    def _send(self) -> None:
        try:
            while not self._end.wait(0.002):
                for partition, futures in self.sent.items():
                    value = b"%d" % len(futures)
                    futures.append(self._producer.send(self._topic, value, partition=partition))
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            self._failures.append(error)

    def _read(self) -> None:
        try:
            while not self._is_read.is_set():
                for record in self._consumer.poll(0.1):
                    self.seen[record.partition].append(record)
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            self._failures.append(error)


@pytest.mark.parametrize("running", ["kafka"], indirect=True)
def test_a_consumer_reads_from_the_replica_in_its_rack(
    cluster: Cluster, admin: Admin, taps: dict[int, Tap]
) -> None:
    """KIP-392: the leader names the nearby follower and receives no fetches afterwards."""
    make_topic(admin, "near")
    partition = TopicPartition("near", 0)
    with (
        producer_of(cluster) as producer,
        consumer_of(taps[1].bootstrap, client_rack="rack-3") as consumer,
    ):
        producer.send("near", b"first", partition=0).result(WAIT_S)
        consumer.assign([partition])
        fetch = Moment(ApiKey.FETCH, Stage.PASSED_ON)
        taps[3].at(fetch, lambda: None)
        until(
            lambda: not taps[3].check(),
            "the follower receives a fetch",
            lambda: consumer.poll(0.05),
        )
        taps[1].at(fetch, lambda: None)  # the leader
        sent = [producer.send("near", b"%d" % number, partition=0) for number in range(100)]
        assert [future.result(WAIT_S).offset for future in sent] == list(range(1, 101))
        read: list[ConsumerRecord] = []
        until(
            lambda: consumer.position(partition) == 101,
            "all records",
            lambda: read.extend(consumer.poll(0.5)),
        )
        assert taps[1].check(), "the leader received another fetch"
    assert [record.value for record in read if record.offset] == [b"%d" % n for n in range(100)]


def test_no_record_is_lost_while_leaders_crash_restart_and_move(
    cluster: Cluster, admin: Admin
) -> None:
    """P3, P5, C1: every acknowledged record once and in order, and the group sees all of them."""
    make_topic(admin, "moving")
    with Traffic(cluster, "moving") as traffic:
        traffic.flows()

        assert leaders(admin, "moving")[0] == 1
        cluster.nodes[1].kill()
        traffic.flows()
        until(lambda: leaders(admin, "moving")[0] != 1, "another leader")

        cluster.nodes[1].start()
        until(lambda: in_sync(admin, "moving") == 3, "broker 1 has caught up")
        places = [TopicPartition("moving", index) for index in range(PARTITIONS)]
        assert admin.elect_leaders(ElectionType.PREFERRED, places)[places[0]]
        traffic.flows()
        until(lambda: leaders(admin, "moving") == {0: 1, 1: 2, 2: 3}, "the leaders of before")

        cluster.nodes[2].stop()
        traffic.flows()
        until(lambda: leaders(admin, "moving")[1] != 2, "another leader")

    for partition, futures in traffic.sent.items():
        expected = [b"%d" % number for number in range(len(futures))]
        assert [future.result(0).offset for future in futures] == list(range(len(futures)))
        stored_records = stored(cluster, "moving", partition, len(futures))
        assert [record.value for record in stored_records] == expected
        # A rebalance may deliver some of them twice.
        first = {record.offset: record.value for record in traffic.seen[partition]}
        assert list(first.items()) == list(enumerate(expected))


def coordinated_by(admin: Admin, log: str, broker: int, prefix: str) -> str:
    """Returns an id whose coordinator is this broker, the leader of its partition in `log`."""
    led = leaders(admin, log)
    names = (f"{prefix}-{number}" for number in range(1000))
    return next(name for name in names if led[partition_for(name, len(led))] == broker)


def read_on(consumer: Consumer, records: list[ConsumerRecord], count: int) -> None:
    until(
        lambda: len(records) >= count,
        f"{count} records",
        lambda: records.extend(consumer.poll(0.2)),
    )
    consumer.commit(timeout=WAIT_S)


def test_transactions_and_groups_survive_coordinator_crashes(
    cluster: Cluster, admin: Admin
) -> None:
    """P4, C2, C3: a transaction, and groups of both protocols, whose coordinator is killed."""
    make_topic(admin, "txn")
    with producer_of(cluster, "makes-the-log") as producer:
        producer.init_transactions(WAIT_S)
        with consumer_of(cluster.bootstrap, group_id="makes-the-log") as consumer:
            consumer.committed([TopicPartition("txn", 0)])
    until(
        lambda: all(
            len(leaders(admin, log)) == PARTITIONS and in_sync(admin, log) == 3
            for log in (GROUPS_LOG, TRANSACTIONS_LOG)
        ),
        "logs of the coordinators everywhere",
    )
    doomed = leaders(admin, TRANSACTIONS_LOG)[0]
    read: dict[str, list[ConsumerRecord]] = {"classic": [], "consumer": []}
    with ExitStack() as stack:
        producer = stack.enter_context(
            producer_of(cluster, coordinated_by(admin, TRANSACTIONS_LOG, doomed, "writer"))
        )
        consumers = {
            protocol: stack.enter_context(
                consumer_of(
                    cluster.bootstrap,
                    group_id=coordinated_by(admin, GROUPS_LOG, doomed, protocol),
                    group_protocol=protocol,
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                )
            )
            for protocol in read
        }

        def read_to(count: int) -> None:
            for protocol, consumer in consumers.items():
                read_on(consumer, read[protocol], count)

        def send(first: int) -> list[RecordFuture]:
            return [
                producer.send("txn", b"%d" % number, partition=number % PARTITIONS)
                for number in range(first, first + 30)
            ]

        producer.init_transactions(WAIT_S)
        for consumer in consumers.values():
            consumer.subscribe(["txn"])
        producer.begin_transaction()
        send(0)
        producer.commit_transaction(WAIT_S)
        read_to(30)

        producer.begin_transaction()
        for future in send(30):
            future.result(WAIT_S)
        cluster.nodes[doomed].kill()
        send(60)
        producer.commit_transaction(WAIT_S)
        read_to(90)
        producer.begin_transaction()
        for future in send(1000):
            future.result(WAIT_S)
        producer.abort_transaction(WAIT_S)
        producer.begin_transaction()
        send(90)
        producer.commit_transaction(WAIT_S)
        read_to(120)

        places = [TopicPartition("txn", partition) for partition in range(PARTITIONS)]
        for protocol, records in read.items():
            for partition in range(PARTITIONS):
                values = [record.value for record in records if record.partition == partition]
                assert values == [b"%d" % number for number in range(partition, 120, PARTITIONS)]
            committed = consumers[protocol].committed(places, WAIT_S)
            ends = {record.partition: record.offset + 1 for record in records}
            assert {
                topic_partition.partition: result is not None
                and result.offset >= ends[topic_partition.partition]
                for topic_partition, result in committed.items()
            } == dict.fromkeys(range(PARTITIONS), True)


def test_too_few_replicas_fail_the_send_after_the_delivery_timeout(
    running: Cluster, admin: Admin
) -> None:
    """E7: one broker is killed and one stopped; the third leads and rejects the records."""
    if all(node.is_running for node in running.nodes.values()):
        running.nodes[1].kill()
    (alone, _), (_, last) = ((id_, node) for id_, node in running.nodes.items() if node.is_running)
    until(lambda: in_sync(admin, "alone") == 2, "one broker is missed")
    partition = alone - 1
    with Producer(
        bootstrap_servers=running.bootstrap,
        delivery_timeout_ms=2000,
        request_timeout_ms=1500,
        linger_ms=0,
        retry_backoff_ms=50,
        reconnect_backoff_ms=20,
    ) as producer:
        assert _acknowledged(producer, partition) == 0
        last.stop()
        until(lambda: in_sync(admin, "alone") == 1, "two brokers are missed")
        began = time.monotonic()
        error = producer.send("alone", b"refused", partition=partition).exception(WAIT_S)
        took = time.monotonic() - began
        assert isinstance(error, KafkaTimeoutError)
        assert "NOT_ENOUGH_REPLICAS" in error.message
        assert "min.insync.replicas" in error.message
        assert took < 5

        last.start()
        until(lambda: in_sync(admin, "alone") == 2, "a second broker is back")
        assert _acknowledged(producer, partition) == 1


def _acknowledged(producer: Producer, partition: int) -> int:
    """Sends a record until it is acknowledged and returns its offset."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            future = producer.send("alone", b"after", partition=partition)
            return future.result(WAIT_S).offset
        except KafkaError:
            assert time.monotonic() < deadline
