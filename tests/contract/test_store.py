"""What every metadata store promises, case by case."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from penstock.cluster.store import MetadataStore, StoreConflictError
from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ClusterKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    FeaturesRecord,
    Put,
    Record,
    TopicKey,
)
from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import TopicPartition
from tests.contract.homes import StoreHome
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

OpenStore = Callable[[], MetadataStore]


def puts(*records: Record) -> list[Change]:
    return [Put(record) for record in records]


def conflict_of(store: MetadataStore, *changes: Change) -> StoreConflictError:
    """The conflict that these changes run into, after which nothing may be different."""
    before = store.load().records
    with pytest.raises(StoreConflictError) as caught:
        store.commit(changes)
    assert store.load().records == before
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    return caught.value


def test_a_new_store_is_empty(store: MetadataStore) -> None:
    assert store.load().records == []


def test_every_record_comes_back_after_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    store.commit(puts(*PERSISTENT_RECORDS))
    store.close()
    loaded = open_store().load().records
    assert len(loaded) == len(PERSISTENT_RECORDS)
    assert image_of(loaded) == image_of(PERSISTENT_RECORDS)


def test_what_was_committed_survives_a_crash(home: StoreHome, open_store: OpenStore) -> None:
    """S7: durable when `commit` returns."""
    store = open_store()
    store.commit(puts(*PERSISTENT_RECORDS))
    home.crash(store)
    assert image_of(open_store().load().records) == image_of(PERSISTENT_RECORDS)


def test_a_topic_is_loaded_before_its_partitions(store: MetadataStore) -> None:
    names = ("t", "t-x", "t.y", "t0", "T", "t_")
    for number, name in enumerate(names):
        store.commit(puts(topic(name, number=number), partition(name)))
    keys = [record.key for record in store.load().records]
    assert len(keys) == 2 * len(names)
    for name in names:
        assert keys.index(TopicKey(name)) < keys.index(TopicPartition(name, 0))


@pytest.mark.parametrize("crashed", [False, True])
def test_ephemeral_records_go_with_their_session(
    home: StoreHome, open_store: OpenStore, crashed: bool
) -> None:
    """R7: this is how the failure of a broker is detected."""
    store = open_store()
    lasting = ControllerEpochRecord(1)
    store.commit(puts(lasting, *EPHEMERAL_RECORDS))
    assert len(store.load().records) == 1 + len(EPHEMERAL_RECORDS)
    if crashed:
        home.crash(store)
    else:
        store.close()
    assert open_store().load().records == [lasting]


def test_the_next_session_may_register_again(open_store: OpenStore) -> None:
    for _ in range(2):
        store = open_store()
        store.commit(puts(*EPHEMERAL_RECORDS))
        assert len(store.load().records) == len(EPHEMERAL_RECORDS)
        store.close()


def test_a_commit_is_all_or_nothing(store: MetadataStore) -> None:
    store.commit(puts(topic("t"), partition("t"), config(("topics", "t"), a="1")))
    changes: list[Change] = [
        Put(topic("new", number=2)),
        Put(config(("topics", "t"), a="2")),
        Delete(TopicPartition("t", 0)),
        Delete(TopicKey("missing")),
    ]
    assert conflict_of(store, *changes).path == "/brokers/topics/missing"
    store.commit(changes[:-1])
    assert image_of(store.load().records) == image_of(
        [topic("t"), topic("new", number=2), config(("topics", "t"), a="2")]
    )


@pytest.mark.parametrize(
    "record", [*PERSISTENT_RECORDS, *EPHEMERAL_RECORDS], ids=lambda record: str(record.key)
)
def test_what_is_missing_can_not_be_deleted(store: MetadataStore, record: Record) -> None:
    assert "is missing" in conflict_of(store, Delete(record.key)).message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (config(("users", "ann"), a="1"), config(("users", "ann"), b="2")),
        (acl("x"), acl("x", operation="WRITE")),
        (topic("t"), topic("t", partitions=2)),
        (ControllerEpochRecord(1), ControllerEpochRecord(2)),
    ],
    ids=["config", "acl", "topic", "epoch"],
)
def test_a_record_is_changed_and_deleted(
    store: MetadataStore, first: Record, second: Record
) -> None:
    store.commit(puts(first))
    store.commit(puts(second))
    assert store.load().records == [second]
    store.commit([Delete(second.key)])
    assert store.load().records == []


def test_changes_of_one_commit_build_on_each_other(store: MetadataStore) -> None:
    store.commit(
        [
            *puts(topic("t"), partition("t"), partition("t", epoch=1)),
            Delete(TopicPartition("t", 0)),
            Put(partition("t")),
        ]
    )
    assert store.load().records == [topic("t"), partition("t")]


def test_a_partition_is_put_on_the_version_before(store: MetadataStore) -> None:
    """R7: of two changes that were decided on the same state, one is done."""
    store.commit(puts(topic("t"), partition("t", epoch=0)))
    store.commit(puts(partition("t", epoch=1)))
    for stale in (0, 1, 3):
        assert conflict_of(store, Put(partition("t", epoch=stale))).path.endswith("/0/state")
    store.commit(puts(partition("t", epoch=2)))
    assert store.load().records == [topic("t"), partition("t", epoch=2)]


def test_a_new_partition_has_epoch_0(store: MetadataStore) -> None:
    store.commit(puts(topic("t")))
    assert "version 0" in conflict_of(store, Put(partition("t", epoch=1))).message


def test_the_partitions_of_a_topic_made_anew_count_from_0(store: MetadataStore) -> None:
    store.commit(puts(topic("t"), partition("t"), partition("t", epoch=1)))
    store.commit([Delete(TopicPartition("t", 0)), Delete(TopicKey("t"))])
    store.commit(puts(topic("t", number=2), partition("t")))
    assert store.load().records == [topic("t", number=2), partition("t")]


def test_a_partition_needs_its_topic(store: MetadataStore) -> None:
    assert conflict_of(store, Put(partition("t")), Put(topic("t"))).path == "/brokers/topics/t"


def test_a_topic_goes_after_its_partitions(store: MetadataStore) -> None:
    store.commit(puts(topic("t"), partition("t"), topic("t-", number=2), topic("t0", number=3)))
    both = [Delete(TopicKey("t")), Delete(TopicPartition("t", 0))]
    assert "still has partitions" in conflict_of(store, *both).message
    store.commit([*reversed(both)])
    assert store.load().records == [topic("t-", number=2), topic("t0", number=3)]


def test_settings_of_a_user_and_of_its_clients_are_apart(store: MetadataStore) -> None:
    user = config(("users", "ann"), a="1")
    client = config(("users", "ann"), ("clients", "c"), b="2")
    store.commit(puts(client, user))
    store.commit([Delete(user.key)])
    assert store.load().records == [client]
    store.commit([Put(user), Delete(client.key)])
    assert store.load().records == [user]


def test_features_are_put_on_the_epoch_before(store: MetadataStore) -> None:
    store.commit(puts(FeaturesRecord({"a": 1}, epoch=0)))
    store.commit(puts(FeaturesRecord({"a": 2}, epoch=1)))
    conflict_of(store, Put(FeaturesRecord({"a": 3}, epoch=1)))
    assert store.load().records == [FeaturesRecord({"a": 2}, epoch=1)]


def test_the_first_controller_wins_until_it_resigns(store: MetadataStore) -> None:
    """R6"""
    store.commit(puts(ControllerRecord(1, 10)))
    assert conflict_of(store, Put(ControllerRecord(2, 11))).path == "/controller"
    store.commit([Delete(ClusterKey("controller")), Put(ControllerRecord(2, 12))])
    assert store.load().records == [ControllerRecord(2, 12)]


def test_a_cluster_has_one_id(store: MetadataStore) -> None:
    store.commit(puts(ClusterIdRecord("one")))
    assert "exists already" in conflict_of(store, Put(ClusterIdRecord("two"))).message


def test_transaction_ids_rise_over_restarts_and_crashes(
    home: StoreHome, open_store: OpenStore
) -> None:
    ids = []
    for session in range(6):
        store = open_store()
        ids += [store.commit(puts(ControllerEpochRecord(n))) for n in range(2)]
        if session % 2:
            home.crash(store)
        else:
            store.close()
    assert ids == sorted(set(ids))


def test_a_brokers_epoch_is_the_transaction_that_registered_it(store: MetadataStore) -> None:
    def epoch() -> int:
        (loaded,) = store.load().records
        assert isinstance(loaded, BrokerRecord)
        return loaded.epoch

    registered = store.commit(puts(broker()))
    assert epoch() == registered
    store.commit(puts(broker(rack="r2")))
    assert store.load().records == [msgspec.structs.replace(broker(rack="r2"), epoch=registered)]
    again = store.commit([Delete(broker().key), Put(broker())])
    assert epoch() == again > registered


def test_commits_may_come_from_another_thread(store: MetadataStore) -> None:
    with ThreadPoolExecutor(1) as executor:
        executor.submit(store.commit, puts(topic("t"), partition("t"))).result()
    assert store.load().records == [topic("t"), partition("t")]


def test_a_closed_store_takes_nothing(store: MetadataStore) -> None:
    store.close()
    store.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        store.commit(puts(topic("t")))


def test_a_thousand_partitions_are_made_in_one_commit(store: MetadataStore) -> None:
    seconds = {}
    for name, count in (("s", 100), ("t", 1000)):
        changes = puts(topic(name, count), *(partition(name, index) for index in range(count)))
        started = time.process_time()
        store.commit(changes)
        seconds[count] = time.process_time() - started
    assert seconds[1000] < 50 * seconds[100]  # 10 times, if the cost grows in proportion
    assert len(store.load().records) == 101 + 1001
