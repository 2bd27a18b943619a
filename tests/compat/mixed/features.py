"""Feature levels: those that Kafka 3.9 does not know are raised when the last Kafka has gone."""

from penstock.client import Consumer, Producer
from penstock.core.ids import TopicPartition
from tests.compat.mixed.view import KAFKA, MixedView

NEW_LEVELS = ("--feature", "group.version=1", "--feature", "transaction.version=2")


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
    bootstrap = view.cluster.network.bootstrap
    epochs = []
    with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(2):
            producer.begin_transaction()
            producer.send(name, b"%d" % number, partition=0)
            producer.commit_transaction()
            epochs.append(view.admin.describe_transactions([name])[name].producer_epoch)
    assert epochs[1] == epochs[0] + 1, "every transaction has an epoch of its own"
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=name,
        group_protocol="consumer",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([name])
        values: list[bytes | None] = []
        view.wait_until(
            lambda: bool(values.extend(r.value for r in consumer.poll(0.5)) or len(values) == 2),
            "both records",
        )
        assert consumer.assignment() == {TopicPartition(name, 0)}
    view.cluster.start(KAFKA)
    assert not view.cluster.processes[KAFKA].wait_until_ready(), "Kafka has started"
    assert "feature compatibility checks failed" in view.cluster.log_end(KAFKA)
