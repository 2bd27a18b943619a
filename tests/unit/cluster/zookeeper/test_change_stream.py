"""The order of deliveries, without ZooKeeper: events, reads and commits in all interleavings."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.cluster.store import CommittedChanges, Scope
from penstock.cluster.znodes import encode
from penstock.cluster.zookeeper import change_stream
from penstock.cluster.zookeeper.change_stream import ChangeStream, CommittedNode
from penstock.cluster.zookeeper.requests import Node, Stat, new_stat
from penstock.controller.metadata import ConfigKey, ConfigRecord, Delete, Put
from tests.support.cluster.metadata_changes import config


class Server:
    """The nodes of a ZooKeeper server, and the queue of what it has sent to one client."""

    def __init__(self, users: int) -> None:
        self.zxid = 100
        self.nodes: dict[str, Node] = {}
        self.users = users
        self.sent: list[tuple[str, Any]] = []
        self.received: list[CommittedChanges] = []
        self.stream = ChangeStream(self.read, self.received.append)
        self.stream.set_scope(Scope.SETTINGS)
        self.stream.load(Scope.SETTINGS, {}, self.zxid)
        self.stream.resume()
        self.requests: list[tuple[str, Any]] = []
        self.commits: list[tuple[int, int]] = []
        """The versions of own commits, with the number of deliveries when they were reported."""

    def read(self, paths: Sequence[str]) -> None:
        self.requests.append(("read", list(paths)))

    def change(self, path: str, record: ConfigRecord | None) -> Node | None:
        """One transaction, and its event."""
        self.zxid += 1
        before = self.nodes.get(path)
        if record is None:
            del self.nodes[path]
        elif before is None:
            self.nodes[path] = Node(encode(record), new_stat(self.zxid, 0))
        else:
            stat = before.stat._replace(version=before.stat.version + 1, mzxid=self.zxid)
            self.nodes[path] = Node(encode(record), stat)
        self.sent.append(("event", path))
        return self.nodes.get(path)

    def serve(self) -> None:
        """Handles the oldest request of the client."""
        kind, body = self.requests.pop(0)
        if kind == "read":
            nodes = [self.nodes.get(path) for path in body]
            self.sent.append(("nodes", (nodes, self.zxid)))
            return
        path, record, version = body
        before = self.nodes.get(path)
        if (before.stat.version if before else -1) != version:
            self.sent.append(("conflict", None))
            return
        node = self.change(path, record)
        self.sent.append(("done", (path, node.stat if node else None, record, self.zxid)))

    def deliver(self) -> None:
        """The client handles the oldest thing that it was sent."""
        kind, body = self.sent.pop(0)
        if kind == "event":
            self.stream.on_event(body)
        elif kind == "nodes":
            nodes, zxid = body
            self.stream.on_read(nodes, zxid)
        elif kind == "done":
            path, stat, record, version = body
            change = Delete(record_key(path)) if record is None else Put(record)
            self.stream.on_commit(
                version,
                {path: CommittedNode(stat, record)},
                [change],
                lambda: self.commits.append((version, len(self.received))),
            )

    def commit(self, path: str, record: ConfigRecord | None) -> None:
        cached = self.stream.cached(path)
        version = cached.stat.version if cached else -1
        if record is not None or cached is not None:
            self.requests.append(("commit", (path, record, version)))

    @property
    def has_commit(self) -> bool:
        return any(kind == "commit" for kind, _ in self.requests) or any(
            kind in ("done", "conflict") for kind, _ in self.sent
        )


def path_of_user(number: int) -> str:
    return f"/config/users/{number}"


def record_key(path: str) -> ConfigKey:
    return ConfigKey((("users", path.rpartition("/")[2]),))


def apply(values: dict[str, str], committed: CommittedChanges) -> None:
    for change in committed.changes:
        if isinstance(change, Put):
            assert isinstance(change.record, ConfigRecord)
            values[change.record.entity[0][1]] = change.record.values["a"]
        else:
            assert isinstance(change.key, ConfigKey)
            del values[change.key.entity[0][1]]


@pytest.mark.parametrize("seed", range(300))
def test_every_interleaving_ends_with_the_servers_state(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    monkeypatch.setattr(change_stream, "_MAX_ROUNDS", rng.choice([1, 2, 20]))
    server = Server(users=rng.randint(1, 3))
    pressure = rng.random()
    for step in range(rng.randint(5, 80)):
        path = path_of_user(rng.randrange(server.users))
        record = config(("users", path.rpartition("/")[2]), a=str(step))
        match rng.choice(["foreign", "commit", "serve", "serve", "deliver", "deliver", "deliver"]):
            case "foreign" if rng.random() < pressure:
                if rng.random() < 0.7:
                    server.change(path, record)
                elif path in server.nodes:
                    server.change(path, None)
            case "commit" if not server.has_commit and not server.stream._commit:
                server.commit(path, record if rng.random() < 0.7 else None)
            case "serve" if server.requests:
                server.serve()
            case "deliver" if server.sent:
                server.deliver()
    while server.requests or server.sent:
        if server.sent:
            server.deliver()
        else:
            server.serve()
    values: dict[str, str] = {}
    for committed in server.received:
        apply(values, committed)
    assert {path_of_user(int(name)): encode(config(("users", name), a=value))
            for name, value in values.items()} == {
        path: node.data for path, node in server.nodes.items()
    }  # fmt: skip
    versions = [committed.version for committed in server.received]
    assert versions == sorted(set(versions))
    for version, delivered in server.commits:
        assert server.received[delivered - 1].version == version
    assert server.stream._is_quiet()


def test_what_came_before_an_own_commit_is_delivered_before_it() -> None:
    server = Server(users=2)
    foreign, own = config(("users", "0"), a="1"), config(("users", "1"), a="2")
    server.commit(path_of_user(1), own)
    server.change(path_of_user(0), foreign)
    server.serve()
    for _ in range(3):
        server.deliver()
    assert server.received == []
    server.serve()
    server.deliver()
    assert server.received == [(101, [Put(foreign)]), (102, [Put(own)])]


def test_a_constant_flow_of_changes_is_delivered_in_parts() -> None:
    server = Server(users=1)
    for step in range(100):
        server.change(path_of_user(0), config(("users", "0"), a=str(step)))
        server.deliver()
        if server.requests:
            server.change(path_of_user(0), config(("users", "0"), a=f"{step}x"))
            server.serve()
            server.deliver()
            server.deliver()
    assert 2 <= len(server.received) < 10
    versions = [committed.version for committed in server.received]
    assert versions == sorted(set(versions))


def test_an_event_outside_the_scope_is_ignored() -> None:
    server = Server(users=1)
    server.stream.on_event("/brokers/topics/t")
    server.stream.on_event("/brokers/topics/t/partitions")
    assert server.requests == []


def test_changes_during_a_pause_are_delivered_by_a_load() -> None:
    server = Server(users=2)
    for number in range(2):
        server.change(path_of_user(number), config(("users", str(number)), a="1"))
        server.deliver()
        server.serve()
        server.deliver()
    server.stream.pause()
    server.change(path_of_user(0), None)
    server.sent.clear()  # the connection is lost
    node = server.nodes[path_of_user(1)]
    server.stream.load(Scope.SETTINGS, {path_of_user(1): node}, server.zxid)
    server.stream.resume()
    assert server.received[-1] == (103, [Delete(record_key(path_of_user(0)))])
    assert len(server.received) == 3
    assert isinstance(node.stat, Stat)
