"""Metadata in one file and back, and from a single node to ZooKeeper (R1, P3, X2, X3, X4)."""

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.broker.config.properties import load_broker_config
from penstock.broker.kraft.metadata_log import read_metadata
from penstock.broker.offline.stopped_store import existing_store, load_image
from penstock.client import Consumer, Producer
from penstock.client.admin.admin import Admin
from penstock.controller.image import ClusterImage
from penstock.core.ids import TopicPartition
from tests.support.broker.process import BrokerError, PenstockBroker
from tests.support.client.cli import Cli
from tests.support.cluster.waiting import wait_until
from tests.support.cluster.zookeeper_server import new_chroot, shared_server
from tests.support.kafka.metadata import change_everything, metadata_of

SETTINGS = {
    "node.id": "1",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PARTITION = TopicPartition("compacted", 0)
penstock = Cli()


def options_of(settings: Mapping[str, str]) -> list[str]:
    return [part for item in settings.items() for part in ("--set", "=".join(item))]


def stored_image(settings: Mapping[str, str]) -> ClusterImage:
    config = load_broker_config(None, [f"{name}={value}" for name, value in settings.items()])
    with existing_store(config) as store:
        return load_image(store)


def fill(broker: PenstockBroker) -> dict[str, object]:
    """Makes metadata of all kinds, records and a group's offset; returns what was made."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        change_everything(admin)
        with Producer(bootstrap_servers=broker.bootstrap, transactional_id="t") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(10):
                producer.send("compacted", b"%d" % number, key=b"%d" % number)
            producer.commit_transaction()
        with Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
            consumer.commit({PARTITION: 4})
        return metadata_of(admin)


def check(bootstrap: str, metadata: dict[str, object]) -> None:
    """Checks that a broker has everything that `fill` has made."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert metadata_of(admin) == metadata
    with Consumer(bootstrap_servers=bootstrap, group_id="g") as consumer:
        [committed] = consumer.committed([PARTITION]).values()
        assert committed is not None
        assert committed.offset == 4
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        values: list[bytes | None] = []
        while len(values) < 10:
            values += [record.value for record in consumer.poll(1)]
        assert values == [b"%d" % number for number in range(10)]


def producer_id(bootstrap: str, transactional_id: str) -> int:
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        producer.init_transactions()
        [transaction] = admin.describe_transactions([transactional_id]).values()
        return transaction.producer_id


def export_arguments(
    settings: Mapping[str, str], node_id: str, data: Path, directory: Path
) -> list[str]:
    options = options_of({**settings, "node.id": node_id, "log.dirs": str(data)})
    output = str(directory / f"kafka-{node_id}")
    return ["cluster", "export", "--to", "kafka", "--output", output, *options]


def test_a_lost_store_is_restored_from_a_backup(tmp_path: Path) -> None:
    broker = PenstockBroker(tmp_path / "broker", SETTINGS)
    settings = {**SETTINGS, "log.dirs": str(broker.data)}
    file = tmp_path / "metadata.json"
    with broker:
        metadata = fill(broker)
        penstock("cluster", "backup", str(file), *options_of(settings))
        last_producer_id = producer_id(broker.bootstrap, "after-the-backup")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    image = stored_image(settings)
    error = penstock.refused("cluster", "restore", str(file), *options_of(settings))
    assert f"has metadata of cluster {image.cluster_id} already; nothing was changed" in error
    error = penstock.refused("cluster", "backup", str(file), *options_of(settings))
    assert f"{file} cannot be written: File exists" in error

    (broker.data / "penstock-metadata.db").unlink()
    penstock("cluster", "restore", str(file), *options_of(settings))
    restored = stored_image(settings)
    assert restored.configs == image.configs, "with the keys of users"
    assert restored.login_secret == image.login_secret
    with broker:
        check(broker.bootstrap, metadata)
        assert producer_id(broker.bootstrap, "new") > last_producer_id


@pytest.mark.long
def test_one_node_becomes_a_cluster(tmp_path: Path) -> None:
    """The metadata moves to ZooKeeper, a second broker joins, and gets a replica."""
    address = shared_server().address + new_chroot()
    broker = PenstockBroker(tmp_path / "first", SETTINGS)
    settings = {**SETTINGS, "log.dirs": str(broker.data)}
    with broker:
        metadata = fill(broker)
        last_producer_id = producer_id(broker.bootstrap, "embedded")
        arguments = ("cluster", "migrate", "--to", address, "--yes", *options_of(settings))
        assert "in use by another process" in penstock.refused(*arguments)
    image = stored_image(settings)
    penstock(*arguments)
    assert "has been moved to ZooKeeper" in penstock.refused(*arguments)
    with pytest.raises(BrokerError, match=r"has been moved to ZooKeeper: set zookeeper\.connect"):
        broker.start()

    shared = {**SETTINGS, "zookeeper.connect": address}
    moved = stored_image({**shared, "log.dirs": str(broker.data)})
    assert moved.cluster_id == image.cluster_id
    assert moved.configs == image.configs, "with the keys of users"
    with (
        PenstockBroker(tmp_path / "first", shared) as first,
        PenstockBroker(tmp_path / "second", {**shared, "node.id": "2"}) as second,
        Admin(bootstrap_servers=second.bootstrap) as admin,
    ):
        check(first.bootstrap, metadata)
        assert producer_id(first.bootstrap, "zookeeper") > last_producer_id
        wait_until(lambda: len(admin.describe_cluster().nodes) == 2)
        admin.alter_partition_reassignments({PARTITION: [2]})
        wait_until(lambda: not admin.list_partition_reassignments())
        [described] = admin.describe_topics(["compacted"]).values()
        assert described.partitions[0].replicas == (2,)
        assert any((second.data / "compacted-0").glob("*.log"))
        with Consumer(bootstrap_servers=second.bootstrap, group_id="g") as consumer:
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 0)
            assert consumer.poll(10)[0].value == b"0"

        file = tmp_path / "metadata.json"
        penstock("cluster", "backup", str(file), *options_of(shared))
    dirs = {"1": first.data, "2": second.data}
    with PenstockBroker(tmp_path / "first", shared):
        error = penstock.refused(*export_arguments(shared, "2", dirs["2"], tmp_path))
        assert "brokers 1 of the cluster are running: stop all of them first" in error
    snapshots = []
    for node_id, data in dirs.items():
        penstock(*export_arguments(shared, node_id, data, tmp_path))
        [directory] = tmp_path.glob(f"kafka-{node_id}/__cluster_metadata-0")
        snapshots.append(list(read_metadata(directory)))
    assert snapshots[0] == snapshots[1], "every controller has the same metadata"
    assert (tmp_path / "kafka-2" / "compacted-0").is_dir()
    assert not (tmp_path / "kafka-1" / "compacted-0").exists()

    restored = {**shared, "zookeeper.connect": shared_server().address + new_chroot()}
    penstock("cluster", "restore", str(file), *options_of(restored))
    image = stored_image({**shared, "log.dirs": str(broker.data)})
    assert stored_image(restored).topics == image.topics
    assert stored_image(restored).configs == image.configs
    assert stored_image(restored).acls == image.acls
