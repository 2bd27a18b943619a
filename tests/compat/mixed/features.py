"""Feature levels: those that Kafka 3.9 does not know are raised when the last Kafka has gone."""

from penstock.client import Consumer, Producer
from penstock.core.ids import TopicPartition
from tests.compat.mixed.coordinators import OFFSETS, TRANSACTIONS, move_coordinator
from tests.compat.mixed.view import KAFKA, MixedView

NEW_LEVELS = ("--feature", "group.version=1", "--feature", "transaction.version=2")
OLD_LEVELS = ("--feature", "group.version=0", "--feature", "transaction.version=0")


def refuse_levels(view: MixedView) -> None:
    """A level that a registered broker does not know is refused."""
    refused = view.shell.attempt("features", "upgrade", *NEW_LEVELS)
    assert refused.exit == 1, refused.text
    assert f"broker {KAFKA} does not know this feature" in refused.text, refused.text


def raise_levels(view: MixedView, name: str) -> None:
    """Without Kafka, new groups and transactions work, and Kafka refuses to start."""
    view.wait_until(lambda: not view.zookeeper.exists(f"/brokers/ids/{KAFKA}"), "end of Kafka")
    raised = view.shell("features", "upgrade", *NEW_LEVELS)
    assert "group.version was upgraded to 1." in raised.lines, raised.text
    assert "transaction.version was upgraded to 2." in raised.lines, raised.text
    view.create_topic(name, (2, 3))
    epochs = transaction_epochs(view, name, 2)
    assert epochs[1] == epochs[0] + 1, "every transaction has an epoch of its own"
    assert read_in_group(view, name, "consumer") == [b"0", b"1"]
    view.cluster.start(KAFKA)
    assert not view.cluster.processes[KAFKA].wait_until_ready(), "Kafka has started"
    assert "feature compatibility checks failed" in view.cluster.log_end(KAFKA)


def lower_levels(view: MixedView, name: str) -> None:
    """At lower levels Kafka joins again, and continues the transactions of the higher ones."""
    view.shell("features", "downgrade", *OLD_LEVELS)
    view.cluster.start(KAFKA)
    view.cluster.wait_until_ready()
    view.cluster.wait_until_in_sync()
    for topic in (OFFSETS, TRANSACTIONS):
        move_coordinator(view, topic, name, KAFKA)
    epochs = transaction_epochs(view, name, 2)
    assert epochs[1] == epochs[0], "one epoch for all transactions"
    assert read_in_group(view, name, "classic") == [b"0", b"1"]


def transaction_epochs(view: MixedView, name: str, count: int) -> list[int]:
    """Writes a record in each of some transactions, and returns their producer epochs."""
    epochs = []
    with Producer(
        bootstrap_servers=view.cluster.network.bootstrap, transactional_id=name
    ) as producer:
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            producer.send(name, b"%d" % number, partition=0)
            producer.commit_transaction()
            epochs.append(view.admin.describe_transactions([name])[name].producer_epoch)
    return epochs


def read_in_group(view: MixedView, name: str, protocol: str) -> list[bytes | None]:
    """Returns what a member of a group reads after its committed offset, and commits it."""
    values: list[bytes | None] = []
    with Consumer(
        bootstrap_servers=view.cluster.network.bootstrap,
        group_id=name,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([name])

        def has_read() -> bool:
            values.extend(record.value for record in consumer.poll(0.5))
            return len(values) >= 2

        view.wait_until(has_read, "records")
        assert consumer.assignment() == {TopicPartition(name, 0)}
        consumer.commit()
    return values
