"""The nodes that the ZooKeeper store writes, as another client sees them: Kafka's own."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from penstock.cluster.paths import path_of
from penstock.cluster.store import CommittedChanges, StoreConflictError
from penstock.cluster.znodes import encode
from penstock.cluster.zookeeper import store as store_module
from penstock.cluster.zookeeper import transaction
from penstock.cluster.zookeeper.config import ZooKeeperConfig, parse_connect
from penstock.cluster.zookeeper.store import ZooKeeperStore
from penstock.cluster.zookeeper.transaction import MAX_REQUEST_BYTES
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    UNASSIGNED_SEQUENCE,
    BrokerKey,
    Change,
    ConfigKey,
    ControllerEpochRecord,
    Delete,
    LogDirEventRecord,
    Put,
    TopicDeletionRecord,
    TopicKey,
)
from penstock.core.ids import TopicPartition
from tests.support.cluster.metadata_changes import (
    EPHEMERAL_RECORDS,
    PERSISTENT_RECORDS,
    acl,
    broker,
    config,
    image_of,
    partition,
    topic,
)
from tests.support.cluster.waiting import wait_until
from tests.support.cluster.zookeeper_server import new_chroot, shared_server


class Tree:
    """A chroot with a store, and kazoo's client for comparison."""

    def __init__(self) -> None:
        self.chroot = new_chroot()
        self.address = shared_server().address
        self.store = ZooKeeperStore(ZooKeeperConfig(self.address, self.chroot, 4000, 10_000))
        self.kazoo: Any = KazooClient(self.address + self.chroot)
        self.kazoo.start()

    def close(self) -> None:
        self.store.close()
        self.kazoo.stop()
        self.kazoo.close()

    def nodes(self, path: str = "/") -> dict[str, bytes]:
        """All nodes below a path."""
        nodes = {}
        for name in sorted(self.kazoo.get_children(path)):
            child = f"{path.rstrip('/')}/{name}"
            nodes[child] = self.kazoo.get(child)[0]
            nodes |= self.nodes(child)
        return nodes


@pytest.fixture
def tree() -> Iterator[Tree]:
    tree = Tree()
    try:
        yield tree
    finally:
        tree.close()


def test_the_first_start_creates_the_nodes_that_kafka_creates(tree: Tree) -> None:
    assert tree.nodes() == dict.fromkeys(
        [
            "/admin",
            "/admin/delete_topics",
            "/brokers",
            "/brokers/ids",
            "/brokers/seqid",
            "/brokers/topics",
            "/config",
            "/config/brokers",
            "/config/changes",
            "/config/clients",
            "/config/ips",
            "/config/topics",
            "/config/users",
            "/consumers",
            "/isr_change_notification",
            "/latest_producer_id_block",
            "/log_dir_event_notification",
        ],
        b"",
    )


def test_another_client_reads_the_content_of_every_record(tree: Tree) -> None:
    records = (*PERSISTENT_RECORDS, *EPHEMERAL_RECORDS)
    tree.store.commit([Put(record) for record in records])
    for record in records:
        data, stat = tree.kazoo.get(path_of(record.key))
        assert data == encode(record)
        assert stat.version in (0, 1)
    session = tree.store.session.client.session
    assert session is not None
    owners = {
        path: tree.kazoo.exists(path).ephemeralOwner for path in ("/controller", "/brokers/ids/1")
    }
    assert owners == dict.fromkeys(owners, session[0])
    assert tree.kazoo.exists("/brokers/topics/t").ephemeralOwner == 0


def test_a_brokers_epoch_is_the_transaction_that_created_its_node(tree: Tree) -> None:
    version = tree.store.commit([Put(broker())])
    (record,) = tree.store.fetch([BrokerKey(1)])
    assert tree.kazoo.exists("/brokers/ids/1").czxid == version
    assert record == tree.store.load().records[0]


def test_a_topic_that_another_program_writes_is_delivered(tree: Tree) -> None:
    image = ClusterImage()
    tree.store.subscribe(lambda committed: image.apply(committed.changes))
    tree.kazoo.create("/brokers/topics/t", encode(topic("t")))
    tree.kazoo.create("/brokers/topics/t/partitions/0/state", encode(partition("t")), makepath=True)
    tree.kazoo.create("/admin/delete_topics/t", b"")
    tree.kazoo.create("/config/topics/t", b"not json")
    wait_until(lambda: bool(image.topic_deletions))
    assert image.topics == {"t": topic("t")}
    assert image.partitions == {TopicPartition("t", 0): partition("t")}
    tree.kazoo.delete("/admin/delete_topics/t")
    wait_until(lambda: not image.topic_deletions)


def test_a_topic_that_was_replaced_is_deleted_and_put(tree: Tree) -> None:
    """Listeners must not take it for the old one, even if they miss the time in between."""
    tree.store.commit([Put(topic("t")), Put(partition("t")), Put(partition("t", epoch=1))])
    deliveries: list[CommittedChanges] = []
    tree.store.subscribe(deliveries.append)
    tree.store.load()
    multi = tree.kazoo.transaction()
    for path in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
        multi.delete(f"/brokers/topics/t{path}")
    multi.create("/brokers/topics/t", encode(topic("t", number=2)))
    multi.create("/brokers/topics/t/partitions")
    multi.create("/brokers/topics/t/partitions/0")
    multi.create("/brokers/topics/t/partitions/0/state", encode(partition("t")))
    multi.commit()
    tree.store.load()
    assert [delivery.changes for delivery in deliveries] == [
        [
            Delete(TopicPartition("t", 0)),
            Delete(TopicKey("t")),
            Put(topic("t", number=2)),
            Put(partition("t")),
        ]
    ]


def test_the_nodes_of_a_topic_are_all_deleted(tree: Tree) -> None:
    before = tree.nodes("/brokers")
    tree.store.commit([Put(topic("t", 2)), Put(partition("t")), Put(partition("t", 1))])
    assert "/brokers/topics/t/partitions/1/state" in tree.nodes("/brokers")
    tree.store.commit(
        [
            Delete(TopicPartition("t", 0)),
            Delete(TopicPartition("t", 1)),
            Delete(TopicKey("t")),
        ]
    )
    assert tree.nodes("/brokers") == before


def test_a_partition_is_added_to_an_existing_topic(tree: Tree) -> None:
    tree.store.commit([Put(topic("t"))])
    tree.store.commit([Put(partition("t"))])
    tree.store.commit([Put(topic("t", 2)), Put(partition("t", 1))])
    assert len(tree.store.load().records) == 3


def test_settings_of_a_user_with_clients_leave_an_empty_node(tree: Tree) -> None:
    user, client = (
        config(("users", "ann"), a="1"),
        config(("users", "ann"), ("clients", "c"), b="2"),
    )
    tree.store.commit([Put(user), Put(client)])
    tree.store.commit([Delete(user.key)])
    assert tree.kazoo.get("/config/users/ann")[0] == b""
    assert tree.store.load().records == [client]
    with pytest.raises(StoreConflictError, match="is missing"):
        tree.store.commit([Delete(user.key)])
    tree.store.commit([Put(user)])
    assert len(tree.store.load().records) == 2


# --- notifications


def test_kafkas_brokers_are_notified_of_settings_and_acls(tree: Tree) -> None:
    tree.store.commit(
        [
            Put(config(("topics", "t"), a="1")),
            Put(config(("users", "CN=ann"), ("clients", "<default>"), a="1")),
            Put(acl("x")),
            Put(acl("y", "PREFIXED")),
        ]
    )
    tree.store.commit([Delete(ConfigKey((("topics", "t"),)))])
    nodes = tree.nodes()
    changes = {path: data for path, data in nodes.items() if path.startswith("/config/changes/")}
    assert list(changes) == [f"/config/changes/config_change_{n:010}" for n in range(3)]
    assert [data.decode() for data in changes.values()] == [
        '{"version":2,"entity_path":"topics/t"}',
        '{"version":2,"entity_path":"users/CN%3Dann/clients/<default>"}',
        '{"version":2,"entity_path":"topics/t"}',
    ]
    assert nodes["/kafka-acl-changes/acl_changes_0000000000"] == b"TOPIC:x"
    assert json.loads(nodes["/kafka-acl-extended-changes/acl_changes_0000000000"]) == {
        "version": 1,
        "resourceType": "TOPIC",
        "name": "y",
        "patternType": "PREFIXED",
    }


def test_a_new_topic_needs_no_notification(tree: Tree) -> None:
    tree.store.commit([Put(topic("t")), Put(config(("topics", "t"), a="1"))])
    assert tree.nodes("/config/changes") == {}


def test_notifications_are_deleted_after_a_while(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.store.commit([Put(config(("users", "ann"), a="1"))])
    assert len(tree.nodes("/config/changes")) == 1
    monkeypatch.setattr(store_module, "_NOTIFICATION_LIFETIME_MS", 0)
    monkeypatch.setattr(store_module, "_PURGE_INTERVAL_S", 0.0)
    time.sleep(0.01)
    tree.store.commit([Put(config(("users", "ann"), a="2"))])
    assert tree.nodes("/config/changes") == {}


def test_a_log_dir_event_has_zookeepers_sequence(tree: Tree) -> None:
    tree.store.commit([Put(LogDirEventRecord(UNASSIGNED_SEQUENCE, 3))])
    tree.store.commit([Put(LogDirEventRecord(UNASSIGNED_SEQUENCE, 3))])
    assert tree.nodes("/log_dir_event_notification") == dict.fromkeys(
        (f"/log_dir_event_notification/log_dir_event_{n:010}" for n in range(2)),
        b'{"version":1,"broker":3,"event":1}',
    )
    assert tree.store.load().records == [LogDirEventRecord(0, 3), LogDirEventRecord(1, 3)]


# --- large commits


def test_a_commit_larger_than_a_request_is_done_in_parts(tree: Tree) -> None:
    count = 6000
    changes: list[Change] = [
        Put(topic("t", count)),
        *(Put(partition("t", index)) for index in range(count)),
    ]
    deliveries: list[CommittedChanges] = []
    tree.store.subscribe(deliveries.append)
    tree.store.commit([Put(ControllerEpochRecord(1))])
    version = tree.store.commit(changes, fenced=True)
    assert len(deliveries) > 2
    assert deliveries[-1].version == version
    assert [change for delivery in deliveries[1:] for change in delivery.changes] == changes
    another = ZooKeeperStore(ZooKeeperConfig(tree.address, tree.chroot, 4000, 10_000))
    try:
        assert image_of(another.load().records) == image_of(tree.store.load().records)
    finally:
        another.close()
    updates = [Put(partition("t", index, epoch=1)) for index in range(count)]
    tree.store.commit(updates, based_on=version, fenced=True)
    assert MAX_REQUEST_BYTES < 1 << 20


def test_a_conflict_in_a_later_part_says_that_a_part_was_changed(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "MAX_REQUEST_BYTES", 2000)
    version = tree.store.commit([Put(topic("t", 20))])

    def interfere(committed: CommittedChanges) -> None:
        state = "/brokers/topics/t/partitions/19/state"
        if not tree.kazoo.exists(state):
            tree.kazoo.create(state, encode(partition("t", 19)), makepath=True)

    tree.store.subscribe(interfere)
    tree.store.load()
    with pytest.raises(StoreConflictError, match="a part was changed") as caught:
        tree.store.commit([Put(partition("t", n)) for n in range(20)], based_on=version)
    assert "/partitions/19" in caught.value.path
    stored = [record for record in tree.store.load().records if record != topic("t", 20)]
    assert stored[:5] == [partition("t", n) for n in range(5)]
    assert 6 < len(stored) < 20


# --- where the tree is


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ("localhost:2181", "")),
        ("a:1,b:2", ("a:1,b:2", "")),
        ("a:1, b/kafka/x", ("a:1,b:2181", "/kafka/x")),
        ("a:1/", ("a:1", "")),
        ("[::1]:2181/k", ("[::1]:2181", "/k")),
    ],
)
def test_zookeeper_connect_is_parsed(text: str, expected: tuple[str, str]) -> None:
    assert parse_connect(text) == expected


@pytest.mark.parametrize("text", ["", "a:b", "a:1,,b:2", "a:99999", "::1:2181", "a:1//k", "a/../b"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_connect(text)


def test_clusters_in_different_chroots_are_separate(tree: Tree) -> None:
    other = ZooKeeperStore(ZooKeeperConfig(tree.address, f"{tree.chroot}/other/one", 4000, 10_000))
    try:
        other.commit([Put(topic("t")), Put(TopicDeletionRecord("t"))])
        assert tree.store.load().records == []
    finally:
        other.close()
    assert "/other/one/brokers/topics/t" in tree.nodes()
