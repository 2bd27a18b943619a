"""Groups and transactions whose coordinator moves between Kafka and Penstock."""

from pathlib import Path

from penstock.client import Consumer, Producer
from penstock.coordinator.partitioning import partition_for
from penstock.core.ids import TopicPartition
from penstock.records.batch import read_header
from tests.compat.mixed.moves import wait_for_equal_logs
from tests.compat.mixed.topics import REPLICAS
from tests.compat.mixed.view import KAFKA, MixedView
from tests.support.history.cluster import BROKER_IDS
from tests.support.history.replica_logs import read_batches

PENSTOCK = 2
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
INTERNAL_PARTITIONS = 2


def create_internal_topics(view: MixedView) -> None:
    """Uses a group and a transactional id, so that the topics of their coordinators exist."""
    bootstrap = view.cluster.network.bootstrap
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id="first") as producer,
        Consumer(bootstrap_servers=bootstrap, group_id="first") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["missing"])
        consumer.poll(0.1)
        view.wait_until(lambda: OFFSETS in view.admin.list_topics(include_internal=True), OFFSETS)
    view.cluster.wait_until_in_sync()


def move_group_coordinator(view: MixedView, name: str) -> None:
    """A member commits, and keeps its membership, while its coordinator moves there and back."""
    view.create_topic(name, *REPLICAS)
    bootstrap = view.cluster.network.bootstrap
    partitions = [TopicPartition(name, number) for number in range(len(REPLICAS))]
    move_coordinator(view, OFFSETS, name, KAFKA)
    with Consumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False) as consumer:
        consumer.subscribe([name])
        view.wait_until(lambda: not consumer.poll(0.2) and bool(consumer.assignment()), "members")
        generation = consumer.group_metadata().generation_id
        for offset, broker_id in enumerate((KAFKA, PENSTOCK, KAFKA, PENSTOCK), 1):
            move_coordinator(view, OFFSETS, name, broker_id)
            before = dict.fromkeys(partitions, offset - 1)
            assert offset == 1 or committed(view, name) == before
            consumer.poll(0.1)
            consumer.commit(dict.fromkeys(partitions, offset), 30)
            assert committed(view, name) == dict.fromkeys(partitions, offset)
        assert consumer.group_metadata().generation_id == generation


def committed(view: MixedView, group: str) -> dict[TopicPartition, int]:
    offsets = view.admin.list_group_offsets([group])[group]
    return {partition: value.offset for partition, value in offsets.items() if value is not None}


def move_coordinator(view: MixedView, topic: str, key: str, broker_id: int) -> None:
    """Makes a broker the coordinator of a group, or of a transactional id."""
    view.move_leader(topic, partition_for(key, INTERNAL_PARTITIONS), broker_id)


def move_transaction_coordinator(view: MixedView, name: str) -> None:
    """Transactions that are open while their coordinator moves are committed and aborted."""
    view.create_topic(name, *REPLICAS)
    bootstrap = view.cluster.network.bootstrap
    moves = [(KAFKA, PENSTOCK), (PENSTOCK, KAFKA), (KAFKA, PENSTOCK), (PENSTOCK, KAFKA)]
    move_coordinator(view, TRANSACTIONS, name, KAFKA)
    source = TopicPartition(name, 0)
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
        Consumer(bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False) as group,
    ):
        group.assign([source])
        producer.init_transactions()
        for number, (before, after) in enumerate(moves):
            move_coordinator(view, TRANSACTIONS, name, before)
            producer.begin_transaction()
            for partition in range(len(REPLICAS)):
                producer.send(name, b"%d" % number, partition=partition).result(30)
            producer.send_offsets_to_transaction({source: number}, group.group_metadata())
            move_coordinator(view, TRANSACTIONS, name, after)
            if number < 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert committed(view, name) == {source: 1}
    for partition, replicas in enumerate(REPLICAS):
        assert read_committed(bootstrap, TopicPartition(name, partition)) == [b"0", b"1"]
        wait_for_equal_logs(view, name, partition, replicas)
        for broker_id in BROKER_IDS:
            directory = view.replica_directory(broker_id, name, partition)
            assert count_markers(directory) == len(moves), directory


def read_committed(bootstrap: str, partition: TopicPartition) -> list[bytes | None]:
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = consumer.end_offsets([partition])[partition]
        values: list[bytes | None] = []
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(1)]
        return values


def count_markers(directory: Path) -> int:
    return sum(read_header(batch).is_control for batch in read_batches(directory).values())
