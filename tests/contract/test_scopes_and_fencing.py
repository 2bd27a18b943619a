"""Scopes, fenced commits, single reads and session states of every metadata store."""

from collections.abc import Callable

import pytest

from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    MetadataStore,
    Scope,
    StoreConflictError,
)
from penstock.controller.metadata import (
    UNASSIGNED_SEQUENCE,
    Change,
    ClusterIdRecord,
    ConfigKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    IsrChangeRecord,
    Key,
    LogDirEventRecord,
    PreferredElectionRecord,
    Put,
    ReassignPartitionsRecord,
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
    partition,
    topic,
)

OpenStore = Callable[[], MetadataStore]


def changes_delivered(store: MetadataStore, scope: Scope) -> list[Change]:
    """The changes that a new subscriber receives, as they come."""
    changes: list[Change] = []

    def receive(committed: CommittedChanges) -> None:
        changes.extend(committed.changes)

    store.subscribe(receive, scope)
    return changes


# --- single reads


def test_the_records_of_keys_are_fetched_in_the_order_of_the_keys(store: MetadataStore) -> None:
    store.commit([Put(record) for record in (*PERSISTENT_RECORDS, *EPHEMERAL_RECORDS)])
    by_key = {record.key: record for record in store.load().records}
    keys = list(reversed(by_key))
    assert store.fetch(keys) == [by_key[key] for key in keys]


def test_what_does_not_exist_is_not_fetched(store: MetadataStore) -> None:
    store.commit([Put(config(("topics", "t"), a="1")), Put(topic("t"))])
    keys: list[Key] = [ConfigKey((("topics", "u"),)), ConfigKey((("topics", "t"),)), TopicKey("u")]
    assert store.fetch(keys) == [config(("topics", "t"), a="1")]
    assert store.fetch([]) == []


# --- scopes


def test_settings_are_loaded_without_the_controllers_records(store: MetadataStore) -> None:
    store.commit([Put(record) for record in (*PERSISTENT_RECORDS, *EPHEMERAL_RECORDS)])
    loaded = {record.key for record in store.load(Scope.SETTINGS).records}
    everything = {record.key for record in store.load().records}
    requests = (
        TopicDeletionRecord
        | ReassignPartitionsRecord
        | PreferredElectionRecord
        | IsrChangeRecord
        | LogDirEventRecord
    )
    assert everything - loaded == {
        broker().key,
        topic("t").key,
        TopicPartition("t", 0),
        TopicPartition("t", 1),
        *(record.key for record in PERSISTENT_RECORDS if isinstance(record, requests)),
    }


def test_a_session_receives_the_settings_of_others(open_session: OpenStore) -> None:
    first, second = open_session(), open_session()
    to_second = changes_delivered(second, Scope.SETTINGS)
    settings: list[Change] = [
        Put(config(("users", "ann"), a="1")),
        Put(acl("x")),
        Put(ClusterIdRecord("c")),
        Put(ControllerRecord(1, 10)),
        Put(ControllerEpochRecord(1)),
    ]
    first.commit(settings)
    first.commit([Put(topic("t")), Put(partition("t"))])
    second.commit([Put(config(("topics", "t"), a="1"))])  # delivered after all earlier ones
    assert [change for change in to_second if change in settings] == settings
    assert Put(config(("topics", "t"), a="1")) in to_second


def test_a_session_that_becomes_the_controllers_receives_everything(
    open_session: OpenStore,
) -> None:
    first, second = open_session(), open_session()
    to_second = changes_delivered(second, Scope.SETTINGS)
    first.commit([Put(topic("t"))])
    second.watch(Scope.ALL)
    assert second.load().records == [topic("t")]
    first.commit([Put(partition("t"))])
    first.commit([Put(TopicDeletionRecord("t"))])
    first.commit([Put(config(("users", "ann"), a="1"))])
    second.commit([Put(config(("users", "bob"), a="1"))])
    assert to_second[-4:] == [
        Put(partition("t")),
        Put(TopicDeletionRecord("t")),
        Put(config(("users", "ann"), a="1")),
        Put(config(("users", "bob"), a="1")),
    ]


# --- notifications


def test_notifications_get_rising_sequences(store: MetadataStore) -> None:
    changes = changes_delivered(store, Scope.ALL)
    event = LogDirEventRecord(UNASSIGNED_SEQUENCE, 1)
    store.commit([Put(event), Put(event)])
    store.commit([Put(event), Put(IsrChangeRecord(UNASSIGNED_SEQUENCE, ()))])
    loaded = store.load().records
    events = [record for record in loaded if isinstance(record, LogDirEventRecord)]
    sequences = [record.sequence for record in events]
    assert sequences == sorted(set(sequences))
    assert len(sequences) == 3
    assert {change.record for change in changes if isinstance(change, Put)} == set(loaded)
    store.commit([Delete(record.key) for record in loaded])
    assert store.load().records == []


# --- fencing


def test_only_a_session_that_has_put_the_epoch_commits_fenced(open_session: OpenStore) -> None:
    """R7: a controller that was replaced changes nothing."""
    first, second = open_session(), open_session()
    with pytest.raises(ControllerMovedError):
        first.commit([Put(topic("t"))], fenced=True)
    first.commit([Put(ControllerEpochRecord(1))])
    first.commit([Put(topic("t"))], fenced=True)
    second.commit([Put(ControllerEpochRecord(2))])
    with pytest.raises(ControllerMovedError, match="/controller_epoch"):
        first.commit([Put(partition("t"))], fenced=True)
    second.commit([Put(partition("t"))], fenced=True)
    first.commit([Put(config(("users", "ann"), a="1"))])
    assert len(second.load().records) == 4


def test_a_store_that_has_put_the_epoch_commits_fenced(store: MetadataStore) -> None:
    with pytest.raises(ControllerMovedError):
        store.commit([Put(topic("t"))], fenced=True)
    store.commit([Put(ControllerEpochRecord(1))])
    store.commit([Put(ControllerEpochRecord(2)), Put(topic("t"))], fenced=True)
    store.commit([Put(partition("t"))], fenced=True)
    assert len(store.load().records) == 3


def test_a_fenced_commit_still_checks_versions(store: MetadataStore) -> None:
    store.commit([Put(ControllerEpochRecord(1)), Put(topic("t")), Put(partition("t"))])
    with pytest.raises(StoreConflictError) as caught:
        store.commit([Put(partition("t", epoch=2))], fenced=True)
    assert not isinstance(caught.value, ControllerMovedError)
