"""Changes reach the subscribers of every metadata store: in order, once, with their version."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.store import CommittedChanges, MetadataStore, StoreConflictError
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerKey,
    ClusterKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Put,
    TopicKey,
)
from penstock.core.ids import TopicPartition
from tests.contract.homes import SHARED_HOMES
from tests.support.cluster.metadata_changes import broker, config, image_of, partition, topic
from tests.support.cluster.waiting import wait_until

OpenStore = Callable[[], MetadataStore]


def subscribe(store: MetadataStore) -> list[CommittedChanges]:
    """The deliveries to a new subscriber, as they come."""
    deliveries: list[CommittedChanges] = []
    store.subscribe(deliveries.append)
    return deliveries


def test_a_commit_is_delivered_before_it_returns(store: MetadataStore) -> None:
    deliveries = subscribe(store)
    first = store.commit([Put(topic("t")), Put(partition("t"))])
    assert deliveries == [(first, [Put(topic("t")), Put(partition("t"))])]
    second = store.commit([Delete(TopicPartition("t", 0))])
    assert deliveries[1:] == [(second, [Delete(TopicPartition("t", 0))])]
    assert second > first


def test_a_failed_commit_is_not_delivered(store: MetadataStore) -> None:
    deliveries = subscribe(store)
    with pytest.raises(StoreConflictError):
        store.commit([Put(topic("t")), Delete(TopicKey("missing"))])
    assert deliveries == []


def test_a_broker_is_delivered_with_the_epoch_of_its_registration(store: MetadataStore) -> None:
    deliveries = subscribe(store)
    epoch = store.commit([Put(broker())])
    store.commit([Put(broker(rack="r"))])
    assert [delivery.changes for delivery in deliveries] == [
        [Put(msgspec.structs.replace(broker(), epoch=epoch))],
        [Put(msgspec.structs.replace(broker(rack="r"), epoch=epoch))],
    ]


def test_the_version_of_a_snapshot_is_that_of_the_last_commit(open_store: OpenStore) -> None:
    store = open_store()
    version = store.commit([Put(topic("t"))])
    assert store.load().version == version
    store.close()
    assert open_store().load().version >= version


def test_a_change_of_a_node_that_changed_since_is_a_conflict(store: MetadataStore) -> None:
    before = store.commit(
        [Put(config(("topics", "t"), a="1")), Put(config(("topics", "u"), a="1"))]
    )
    after = store.commit([Put(config(("topics", "t"), a="2"))])
    with pytest.raises(StoreConflictError, match="/config/topics/t has changed"):
        store.commit([Put(config(("topics", "t"), a="3"))], based_on=before)
    with pytest.raises(StoreConflictError, match="/config/topics/t has changed"):
        store.commit([Delete(config(("topics", "t")).key)], based_on=before)
    store.commit([Put(config(("topics", "u"), a="2"))], based_on=before)
    store.commit([Put(config(("topics", "t"), a="3"))], based_on=after)
    values = {record.key: record for record in store.load().records}
    assert values == {
        record.key: record
        for record in (config(("topics", "t"), a="3"), config(("topics", "u"), a="2"))
    }


# --- several sessions


def test_every_session_receives_the_commits_of_all_in_the_same_order(
    open_session: OpenStore,
) -> None:
    first, second = open_session(), open_session()
    to_first, to_second = subscribe(first), subscribe(second)
    versions = [
        first.commit([Put(topic("a"))]),
        second.commit([Put(topic("b", number=2))]),
        first.commit([Put(partition("b"))]),
    ]
    assert versions == sorted(set(versions))
    wait_until(lambda: len(to_second) == 3)
    expected = [[Put(topic("a"))], [Put(topic("b", number=2))], [Put(partition("b"))]]
    for deliveries in (to_first, to_second):
        assert [delivery.changes for delivery in deliveries] == expected
        rising = [delivery.version for delivery in deliveries]
        assert rising == sorted(set(rising))
    assert [to_first[0].version, to_second[1].version, to_first[2].version] == versions


def test_the_end_of_a_session_is_delivered_to_the_others(open_session: OpenStore) -> None:
    """R7: the controller notices the failure of a broker."""
    first, second = open_session(), open_session()
    deliveries = subscribe(second)
    first.commit([Put(ControllerRecord(1, 10)), Put(broker(1)), Put(ControllerEpochRecord(1))])
    second.commit([Put(broker(2))])
    first.close()
    wait_until(lambda: len(deliveries) == 3)
    version = second.load().version
    changes = deliveries[-1].changes
    assert sorted(changes, key=str) == [Delete(BrokerKey(1)), Delete(ClusterKey("controller"))]
    assert version >= deliveries[-1].version > deliveries[-2].version
    second.commit([Put(ControllerRecord(2, 11))])


def test_a_closed_session_receives_nothing(open_session: OpenStore) -> None:
    first, second = open_session(), open_session()
    deliveries = subscribe(first)
    first.close()
    second.commit([Put(topic("t"))])
    assert deliveries == []


def test_of_two_decisions_on_the_same_version_one_conflicts(open_session: OpenStore) -> None:
    first, second = open_session(), open_session()
    version = first.load().version
    first.commit([Put(config(("users", "ann"), a="1"))], based_on=version)
    with pytest.raises(StoreConflictError):
        second.commit([Put(config(("users", "ann"), a="2"))], based_on=version)
    assert second.load().records == [config(("users", "ann"), a="1")]


def apply_to(image: ClusterImage, committed: CommittedChanges) -> None:
    image.apply(committed.changes)


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 9)), max_size=40)


@pytest.mark.parametrize("kind", sorted(SHARED_HOMES))
def test_images_of_all_sessions_converge(kind: str, tmp_path: Path) -> None:
    examples = 5 if kind == "zookeeper" else 50

    @settings(max_examples=examples, deadline=None)
    @given(steps=STEPS)
    def converge(steps: list[tuple[int, int, int]]) -> None:
        with ExitStack() as stack:
            home = SHARED_HOMES[kind](Path(tempfile.mkdtemp(dir=tmp_path)) / "store")
            stack.callback(home.close)
            sessions = [home.open() for _ in range(3)]
            for session in sessions:
                stack.callback(session.close)
            check_convergence(sessions, steps)

    converge()


def check_convergence(
    sessions: Sequence[MetadataStore], steps: Sequence[tuple[int, int, int]]
) -> None:
    images = [ClusterImage() for _ in sessions]
    for session, image in zip(sessions, images, strict=True):
        session.subscribe(partial(apply_to, image))
    for number, user, value in steps:
        record = config(("users", str(user)), a=str(value))
        records = sessions[number].load().records
        exists = record.key in {record.key for record in records}
        sessions[number].commit([Delete(record.key) if exists and value < 3 else Put(record)])
    expected = image_of(sessions[0].load().records)
    wait_until(lambda: all(vars(image) == expected for image in images))
