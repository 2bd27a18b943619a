"""The ZooKeeper store over lost connections and sessions, and while ZooKeeper is away."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    Scope,
    SessionState,
    StoreConflictError,
    StoreUnavailableError,
)
from penstock.cluster.zookeeper.client import OldServerError, ZooKeeperClient
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.cluster.zookeeper.store import ZooKeeperStore
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerKey,
    Change,
    ConfigKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Put,
)
from penstock.core.errors import KafkaError, KafkaStorageError
from tests.support.cluster.metadata_changes import broker, config, image_of, partition, topic
from tests.support.cluster.waiting import wait_until
from tests.support.cluster.zookeeper_server import (
    ZooKeeperEnsemble,
    ZooKeeperServer,
    end_session,
    free_ports,
    new_chroot,
    shared_server,
)

OpenStore = Callable[[], ZooKeeperStore]


class Following:
    """A store's states and its image, as a broker keeps them."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store
        self.states: list[SessionState] = []
        self.deliveries: list[CommittedChanges] = []
        self.image = ClusterImage()
        store.subscribe_session(self.states.append)
        store.subscribe(self._receive)
        _, records = store.load()
        self.image.apply(map(Put, records))

    def _receive(self, committed: CommittedChanges) -> None:
        self.deliveries.append(committed)
        self.image.apply(committed.changes)

    def is_current(self) -> bool:
        return dict(vars(self.image)) == image_of(self.store.load().records)

    @property
    def changes(self) -> list[Change]:
        return [change for delivery in self.deliveries for change in delivery.changes]


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens stores on one chroot of the shared server."""
    config = ZooKeeperConfig(shared_server().address, new_chroot(), 4000, 10_000)
    with ExitStack() as stack:

        def open_one() -> ZooKeeperStore:
            store = ZooKeeperStore(config)
            stack.callback(store.close)
            return store

        yield open_one


def expire(store: ZooKeeperStore) -> None:
    session = store.session.client.session
    assert session is not None
    end_session(shared_server().address, session)


# --- lost connections


def drop_connection(store: ZooKeeperStore) -> None:
    """Closes the connection as if the network had failed; the session continues."""
    store.session.client._kazoo._connection._socket.shutdown(socket.SHUT_RDWR)


def test_changes_during_a_lost_connection_are_delivered_after_it(open_store: OpenStore) -> None:
    store, another = open_store(), open_store()
    another.commit([Put(topic("t")), Put(partition("t")), Put(config(("users", "ann"), a="1"))])
    following = Following(store)
    drop_connection(store)
    another.commit([Put(partition("t", epoch=1)), Delete(ConfigKey((("users", "ann"),)))])
    wait_until(lambda: SessionState.CONNECTED in following.states)
    assert following.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert following.is_current()
    assert set(map(str, following.changes)) == set(
        map(str, [Delete(ConfigKey((("users", "ann"),))), Put(partition("t", epoch=1))])
    )


def test_a_session_survives_a_lost_connection(open_store: OpenStore) -> None:
    store, another = open_store(), open_store()
    following = Following(store)
    epoch = store.commit([Put(broker()), Put(ControllerEpochRecord(1))])
    drop_connection(store)
    store.commit([Put(topic("t"))], fenced=True)
    wait_until(lambda: SessionState.CONNECTED in following.states)
    (record,) = another.fetch([BrokerKey(1)])
    assert record == following.image.brokers[1]
    assert following.image.brokers[1].epoch == epoch


def test_commits_during_lost_connections_are_done_once(open_store: OpenStore) -> None:
    """Whether a commit whose response is lost was done is found out."""
    store, another = open_store(), open_store()
    following, witness = Following(store), Following(another)
    store.commit([Put(topic("t")), Put(partition("t"))])
    is_done = threading.Event()

    def interrupt() -> None:
        while not is_done.wait(0.02):
            if store.session.is_ready:
                drop_connection(store)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        for epoch in range(1, 100):
            version = following.deliveries[-1].version
            store.commit([Put(partition("t", epoch=epoch))], based_on=version)
    finally:
        is_done.set()
        thread.join()
    assert SessionState.SUSPENDED in following.states
    wait_until(following.is_current)
    wait_until(witness.is_current)
    versions = [delivery.version for delivery in following.deliveries]
    assert versions == sorted(set(versions))


# --- expired sessions


def test_after_its_session_expired_a_broker_registers_again(open_store: OpenStore) -> None:
    store, another = open_store(), open_store()
    following, witness = Following(store), Following(another)
    first = store.commit(
        [Put(broker()), Put(ControllerRecord(1, 1)), Put(ControllerEpochRecord(1))]
    )
    expire(store)
    wait_until(lambda: SessionState.CONNECTED in following.states)
    assert following.states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
    assert not following.image.brokers
    assert following.image.controller_id == -1
    with pytest.raises(ControllerMovedError):
        store.commit([Put(topic("t"))], fenced=True)
    second = store.commit([Put(broker()), Put(ControllerRecord(1, 2))])
    assert following.image.brokers[1].epoch == second > first
    another.commit([Put(config(("users", "ann"), a="1"))])
    wait_until(lambda: following.is_current() and witness.is_current())
    assert [change for change in witness.changes if change == Delete(BrokerKey(1))]


def test_a_broker_that_another_session_has_registered_is_a_conflict(
    open_store: OpenStore,
) -> None:
    """Two brokers with the same id: the second one does not replace the first."""
    first, second = open_store(), open_store()
    first.commit([Put(broker())])
    with pytest.raises(StoreConflictError, match="belongs to another session"):
        second.commit([Put(broker(rack="r"))])
    first.commit([Put(broker(rack="r"))])
    first.close()
    second.commit([Put(broker())])


# --- ZooKeeper is away


def test_a_server_that_restarts_keeps_sessions_and_records(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, ExitStack() as stack:
        store = ZooKeeperStore(ZooKeeperConfig(server.address, "/k", 30_000, 30_000))
        stack.callback(store.close)
        following = Following(store)
        epoch = store.commit([Put(broker()), Put(topic("t"))])
        server.kill()
        wait_until(lambda: following.states == [SessionState.SUSPENDED])
        server.start()
        store.commit([Put(partition("t"))])
        assert following.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert following.is_current()
        assert following.image.brokers[1].epoch == epoch


def test_operations_fail_after_the_timeout_while_zookeeper_is_away(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path) as server, ExitStack() as stack:
        store = ZooKeeperStore(ZooKeeperConfig(server.address, "", 500, 1000))
        stack.callback(store.close)
        following = Following(store)
        server.kill()
        operations: list[Callable[[], object]] = [
            lambda: store.commit([Put(topic("t"))]),
            store.load,
            lambda: store.fetch([BrokerKey(1)]),
        ]
        for operation in operations:
            started = time.monotonic()
            with pytest.raises(StoreUnavailableError, match=server.address):
                operation()
            assert time.monotonic() - started < 30
        started = time.monotonic()
        store.close()
        assert time.monotonic() - started < 30
        assert following.states == [SessionState.SUSPENDED]
        with pytest.raises(KafkaStorageError, match="closed"):
            store.load()


def test_an_address_where_nobody_listens() -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        ZooKeeperStore(ZooKeeperConfig(f"127.0.0.1:{port}", "/k", 500, 500))
    assert time.monotonic() - started < 30
    assert f"ZooKeeper at 127.0.0.1:{port}/k cannot be reached" in caught.value.message
    assert "Connection refused" in caught.value.message
    assert "zookeeper.connect" in str(caught.value)


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(KafkaError, match="cannot be reached"):
        ZooKeeperStore(ZooKeeperConfig("no-such-host.invalid:2181", "", 500, 500))


@pytest.mark.long
def test_another_leader_of_the_ensemble(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble, ExitStack() as stack:
        config_ = ZooKeeperConfig(ensemble.address, "/k", 30_000, 30_000)
        first, second = ZooKeeperStore(config_), ZooKeeperStore(config_)
        stack.callback(first.close)
        stack.callback(second.close)
        one, two = Following(first), Following(second)
        first.commit([Put(broker(1)), Put(ControllerRecord(1, 1)), Put(ControllerEpochRecord(1))])
        second.commit([Put(broker(2)), Put(topic("t")), Put(partition("t"))])
        ensemble.leader.kill()
        for epoch in range(1, 20):
            first.commit([Put(partition("t", epoch=epoch))], fenced=True)
            second.commit([Put(config(("users", str(epoch)), a="1"))])
        wait_until(lambda: one.is_current() and two.is_current())
        assert set(one.image.brokers) == {1, 2}
        assert SessionState.EXPIRED not in one.states + two.states


def test_a_broker_follows_settings_only(open_store: OpenStore) -> None:
    store, another = open_store(), open_store()
    deliveries: list[CommittedChanges] = []
    store.subscribe(deliveries.append, Scope.SETTINGS)
    store.load(Scope.SETTINGS)
    another.commit([Put(topic("t")), Put(partition("t"))])
    another.commit([Put(config(("users", "ann"), a="1"))])
    store.load(Scope.SETTINGS)
    assert [delivery.changes for delivery in deliveries] == [[Put(config(("users", "ann"), a="1"))]]
    assert len(store.load().records) == 3


def test_a_broker_that_resigns_and_is_elected_again_receives_everything(
    open_store: OpenStore,
) -> None:
    store, another = open_store(), open_store()
    deliveries: list[CommittedChanges] = []
    store.subscribe(deliveries.append, Scope.SETTINGS)
    for number in range(1, 20):
        store.watch(Scope.ALL)
        assert len(store.load().records) == number - 1
        another.commit([Put(topic(f"t{number}", number=number))])
        store.load()
        assert deliveries.pop().changes == [Put(topic(f"t{number}", number=number))]
        store.watch(Scope.SETTINGS)
    another.commit([Put(topic("t20", number=20))])
    store.load(Scope.SETTINGS)
    assert deliveries == []


def test_a_server_that_is_too_old_is_named(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(*_arguments: object) -> None:
        raise OldServerError

    monkeypatch.setattr(ZooKeeperClient, "request", respond)
    with pytest.raises(KafkaStorageError, match=r"older than version 3\.6") as caught:
        open_store()
    assert "upgrade ZooKeeper" in str(caught.value)
